"""`flex_attention` against PyTorch's function, and its gradients against PyTorch's formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

import metaop
from metaop.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    DTypeError,
    ShapeError,
    UnsupportedError,
)
from metaop.nn import functional as F
from metaop.nn.attention import flex_attention as ours
from tests.helpers import assert_same, check, check_derivatives, from_numpy, to_torch
from tests.operators.against_torch import draw

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.nn.attention.flex_attention")
formula = pytest.importorskip("torch._higher_order_ops.flex_attention").math_attention

LENGTH, REACH = 7, 9
SHAPES = ((2, 4, LENGTH, 6), (2, 4, REACH, 6), (2, 4, REACH, 5))
DOCUMENTS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """PyTorch runs the functions themselves."""
    monkeypatch.setattr(theirs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def window(b, h, q_idx, kv_idx):
    return (q_idx - kv_idx).abs() < 3 + h


def prefix(b, h, q_idx, kv_idx):
    return kv_idx < 4 - b


def gaps(b, h, q_idx, kv_idx):
    """Without any key for every second query."""
    return (q_idx % 2 == 0) & (kv_idx <= q_idx)


def islands(b, h, q_idx, kv_idx):
    return (q_idx // 30 == kv_idx // 30) & (b > 0)


def with_formula(query, key, value, score=None, mask=None, scale=None):
    """PyTorch's formula, which has gradients on CPUs; its function has not."""
    mask = theirs.noop_mask if mask is None else mask
    sizes = (query.shape[2], key.shape[2])
    blocks = theirs.create_block_mask(mask, None, None, *sizes, device="cpu")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    same = theirs._identity if score is None else score
    output, logarithm, _ = formula(query, key, value, same, blocks.as_tuple(), scale, {})
    return output, logarithm * math.log(2)


def attend(module, inputs, score, mask, **options):
    """Result and logarithm of either module's `flex_attention`."""
    sizes = (inputs[0].shape[2], inputs[1].shape[2])
    blocks = mask and module.create_block_mask(mask, None, None, *sizes, device="cpu")
    request = module.AuxRequest(lse=True)
    output, aux = module.flex_attention(*inputs, score, blocks, return_aux=request, **options)
    return output, aux.lse


def compare(score=None, mask=None, tables=(), shapes=SHAPES, dtype="float64", **options):
    """Values and gradients; `score` and `mask` take the library and its tables first."""
    inputs = [draw(*shape, dtype=dtype, seed=k) for k, shape in enumerate(shapes)]

    def bound(lib, extra):
        changed = score and (lambda s, b, h, q, k: score(lib, extra, s, b, h, q, k))
        return changed, mask and (lambda b, h, q, k: mask(lib, extra, b, h, q, k))

    def mine(*all_inputs):
        return attend(ours, all_inputs[:3], *bound(metaop, all_inputs[3:]), **options)

    def reference(*all_inputs):
        functions = bound(torch, all_inputs[3:])
        return with_formula(*all_inputs[:3], *functions, options.get("scale"))

    check((mine, reference), *inputs, *tables)
    expected = attend(theirs, to_torch(inputs), *bound(torch, to_torch(list(tables))), **options)
    for result, wanted in zip(mine(*from_numpy([*inputs, *tables])), expected):
        assert_same(result, wanted, "the public function")


def plain(function):
    """A function of positions that needs no library and no tables."""
    return lambda lib, tables, *place: function(*place)


@pytest.mark.parametrize("mask", [None, causal, window, prefix])
def test_masks(mask):
    compare(mask=mask and plain(mask))


def test_documents():
    compare(mask=lambda lib, tables, b, h, q, k: tables[0][q] == tables[0][k], tables=(DOCUMENTS,))


def test_alibi():
    slopes = 2.0 ** -np.arange(1.0, 5.0)
    compare(lambda lib, t, s, b, h, q, k: s + (k - q) * t[0][h], plain(causal), (slopes,))
    compare(lambda lib, t, s, b, h, q, k: s + (k - q) * lib.exp2(-(h + 1).double() / 2))


def test_relative_positions_from_a_table():
    table = draw(4, LENGTH + REACH, seed=4)
    compare(lambda lib, t, s, b, h, q, k: s + t[0][h, q - k + REACH], plain(causal), (table,))
    # Negative indices count from the end.
    compare(lambda lib, t, s, b, h, q, k: s * t[0][h, q - k], tables=(table,))


def test_soft_cap():
    compare(lambda lib, tables, s, b, h, q, k: 2 * lib.tanh(s / 2), plain(causal), scale=1.5)


def test_what_does_not_vary():
    compare(lambda lib, t, s, b, h, q, k: t[0][b], tables=(draw(2),))
    compare(lambda lib, t, s, b, h, q, k: lib.where(q > 2, s, t[0] * t[0]), tables=(draw(),))


@pytest.mark.parametrize("mask", [None, window])
def test_grouped_heads(mask):
    shapes = ((2, 4, LENGTH, 6), (2, 2, REACH, 6), (2, 2, REACH, 5))
    bias = draw(4)
    options = {"shapes": shapes, "tables": (bias,), "enable_gqa": True}
    compare(lambda lib, t, s, b, h, q, k: s * t[0][h], mask and plain(mask), **options)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_types(dtype):
    compare(mask=plain(causal), dtype="float32")
    if dtype == "float32":
        return
    narrow = [metaop.tensor(draw(*shape)).to(getattr(metaop, dtype)) for shape in SHAPES]
    output, logarithm = attend(ours, narrow, None, causal)
    assert output.dtype == narrow[0].dtype and logarithm.dtype == metaop.float32
    allowed = ours.create_mask(causal, 2, 4, LENGTH, REACH, "cpu")
    expected = F.scaled_dot_product_attention(*narrow, allowed)
    np.testing.assert_array_equal(output.float().numpy(), expected.float().numpy())


def test_autocast():
    inputs = [metaop.tensor(draw(*shape, dtype="float32")) for shape in SHAPES]
    with metaop.amp.autocast("cpu"):
        assert ours.flex_attention(*inputs).dtype == metaop.bfloat16


def test_queries_without_keys():
    inputs = [draw(*shape, seed=k) for k, shape in enumerate(SHAPES)]
    mine = from_numpy(inputs)
    output, logarithm = attend(ours, mine, None, gaps)
    expected = attend(theirs, to_torch(inputs), None, gaps)
    assert_same(output, expected[0], "result")
    assert_same(logarithm, expected[1], "logarithm")
    assert (output[:, :, 1::2] == 0).all() and (logarithm[:, :, 1::2] == -math.inf).all()
    # So do scores of -inf.
    score = lambda s, b, h, q, k: metaop.where(gaps(b, h, q, k), s, -math.inf)  # noqa: E731
    for result, wanted in zip(attend(ours, mine, score, None), (output, logarithm)):
        np.testing.assert_array_equal(result.numpy(), wanted.numpy())
    check(
        (
            lambda *xs: attend(ours, xs, None, gaps)[0],
            lambda *xs: with_formula(*xs, mask=gaps)[0],
        ),
        *inputs,
    )
    for x in mine:
        x.requires_grad_()
    _, logarithm = attend(ours, mine, None, gaps)
    logarithm[:, :, ::2].sum().backward()
    assert all(x.grad is None or x.grad.isfinite().all() for x in mine)


def test_further_results():
    query, key, value = (metaop.tensor(draw(*shape)).requires_grad_() for shape in SHAPES)
    scores = query @ key.mT / math.sqrt(6)
    output, aux = ours.flex_attention(query, key, value, return_aux=ours.AuxRequest(True, True))
    assert metaop.allclose(aux.lse, scores.logsumexp(-1))
    assert metaop.allclose(aux.max_scores, scores.amax(-1))
    assert aux.lse.requires_grad and not aux.max_scores.requires_grad
    same, logarithm = ours.flex_attention(query, key, value, return_lse=True)
    assert metaop.equal(logarithm, aux.lse) and metaop.equal(same, output)
    assert ours.flex_attention(query, key, value, return_aux=ours.AuxRequest())[1] == (None, None)


def test_second_derivatives():
    table = draw(2, 6)

    def run(query, key, value, table):
        return ours.flex_attention(
            query, key, value, lambda s, b, h, q, k: metaop.tanh(s) * table[h, q - k + 3]
        )

    check_derivatives(run, draw(1, 2, 3, 2), draw(1, 2, 3, 2, seed=1), draw(1, 2, 3, 2), table)


def test_masks_of_masks():
    for module in (ours, theirs):
        both = module.and_masks(causal, window)
        either = module.or_masks(both, prefix, module.noop_mask)
        found = [
            module.create_mask(f, 2, 4, LENGTH, REACH, "cpu").tolist()
            for f in (both, either, module.or_masks(both, prefix), module.or_masks())
        ]
        if module is ours:
            mine = found
    assert mine == found
    scores = [
        module.create_mask(
            lambda s, b, h, q, k, lib=lib: lib.where(q >= k, s, -math.inf), 1, 1, 3, 3, "cpu"
        ).tolist()
        for module, lib in ((ours, metaop), (theirs, torch))
    ]
    assert scores[0] == scores[1] == ours.create_mask(causal, None, None, 3, 3).tolist()


BLOCKS = [
    *("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"),
    *("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices"),
]


def same_blocks(mine, other):
    for name in BLOCKS:
        one, two = getattr(mine, name), getattr(other, name)
        assert (one is None) == (two is None), name
        if one is not None:
            assert_same(one, two, name)
    assert_same(mine.to_dense(), other.to_dense(), "dense")
    assert mine.shape == other.shape and mine.numel() == other.numel()
    assert mine.sparsity() == pytest.approx(other.sparsity())
    assert mine.to_string(3, 99) == other.to_string(3, 99)
    assert mine.to_string(-1, 99) == other.to_string(-1, 99)
    assert str(mine).split(",\n")[0] == str(other).split(", \n")[0]


@pytest.mark.parametrize("mask", [causal, window, islands])
@pytest.mark.parametrize("size, apart", [(32, False), ((32, 16), True)])
def test_blocks(mask, size, apart):
    arguments = (mask, 2, 3, 100, 150, "cpu", size)
    mine, other = (
        module.create_block_mask(*arguments, separate_full_blocks=apart)
        for module in (ours, theirs)
    )
    same_blocks(mine, other)
    for index in (0, (1, -1), (slice(None), slice(0, 2), slice(1, 3)), (slice(None),) * 2 + (1,)):
        same_blocks(mine[index], other[index])
    for flatten in (True, False):
        one, two = mine.as_tuple(flatten), other.as_tuple(flatten)
        assert len(one) == len(two)
        plainly = [(x, y) for x, y in zip(one, two) if not hasattr(y, "shape")]
        assert all(x == y for x, y in plainly)
    same_blocks(mine.to("cpu"), other)
    same_blocks(mine[0].to("cpu"), other[0])
    given = [getattr(mine, name) for name in BLOCKS[:4]]
    again = ours.BlockMask.from_kv_blocks(*given, size, mask, (100, 150))
    same_blocks(again, other)


def test_a_mask_of_blocks():
    """Blocks are allowed as they are listed, and partial ones where the function says so."""
    counts, indices = metaop.tensor([[[1, 2]]]), metaop.tensor([[[[1, 0], [0, 1]]]])
    full = (metaop.tensor([[[0, 0]]]), metaop.tensor([[[[0, 1], [0, 1]]]]))
    wanted = np.kron([[0, 1], [1, 1]], np.ones((4, 4)))[:7, :7] > 0
    query = metaop.tensor(draw(2, 3, 7, 4))
    options = {"BLOCK_SIZE": 4, "seq_lengths": (7, 7)}
    for mask_mod, blocks in ((None, ()), (None, full), (causal, full), (causal, ())):
        mask = ours.BlockMask.from_kv_blocks(counts, indices, *blocks, mask_mod=mask_mod, **options)
        allowed = wanted & np.tri(7, dtype=bool) if mask_mod else wanted
        expected = F.scaled_dot_product_attention(query, query, query, metaop.tensor(allowed))
        found = ours.flex_attention(query, query, query, block_mask=mask)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-12)
    # Full blocks need no function.
    mask = ours.BlockMask.from_kv_blocks(*full, counts, indices, mask_mod=causal, **options)
    found = ours.flex_attention(query, query, query, block_mask=mask)
    expected = F.scaled_dot_product_attention(query, query, query, metaop.tensor(wanted))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-12)
    assert ours.BlockMask.from_kv_blocks(*full, compute_q_blocks=False).q_indices is None


def test_rows_of_a_mask():
    """A part of a mask serves some of the queries, with a function that knows where they begin."""
    query = metaop.tensor(draw(1, 2, 8, 4))
    whole = ours.create_block_mask(causal, 1, 1, 8, 8, "cpu", BLOCK_SIZE=4)
    part = whole[:, :, 1]
    with pytest.raises(ArgumentError, match="sliced BlockMask"):
        ours.flex_attention(query, query, query, block_mask=part)
    part.mask_mod = lambda b, h, q, k: causal(b, h, q + 4, k)
    part.seq_lengths = (4, 8)
    found = ours.flex_attention(query[:, :, 4:], query, query, block_mask=part)
    expected = F.scaled_dot_product_attention(query, query, query, is_causal=True)
    np.testing.assert_allclose(found.numpy(), expected[:, :, 4:].numpy(), atol=1e-12)
    # A new function leaves the blocks as they were.
    before = whole.to_dense().tolist()
    whole.mask_mod = ours.noop_mask
    assert whole.to_dense().tolist() == before


def test_shared_keys_for_a_batch():
    inputs = [metaop.tensor(draw(*s)) for s in ((3, 2, 4, 5), (1, 2, 4, 5), (1, 2, 4, 5))]
    mask = ours.create_block_mask(lambda b, h, q, k: k != b, 3, 1, 4, 4, "cpu")
    found = ours.flex_attention(*inputs, block_mask=mask)
    allowed = ours.create_mask(mask.mask_mod, 3, 1, 4, 4, "cpu")
    whole = [x.expand(3, 2, 4, 5) for x in inputs]
    expected = F.scaled_dot_product_attention(*whole, allowed)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-12)


def test_captured_with_other_sizes():
    """One captured function, sizes that change, masks as closures and as arguments."""
    table = metaop.tensor(draw(2, 40)).requires_grad_()

    def run(query, table):
        length = query.shape[2]
        mask = ours.create_block_mask(causal, None, None, length, length, "cpu")
        score = lambda s, b, h, q, k: s + table[h, q - k + 20]  # noqa: E731
        result = ours.flex_attention(query, query, query, score, mask)
        return result, *metaop.autograd.grad(result.square().sum(), [query, table])

    captured = metaop.jit(run)
    for length in (5, 7, 9, 16):
        query = metaop.tensor(draw(1, 2, length, 4)).requires_grad_()
        for found, expected in zip(captured(query, table), run(query, table)):
            np.testing.assert_allclose(found.detach(), expected.detach(), atol=1e-10)
    attending = metaop.jit(lambda x, mask: ours.flex_attention(x, x, x, block_mask=mask))
    for function in (causal, window, causal):
        mask = ours.create_block_mask(function, 1, 2, 16, 16, "cpu")
        expected = ours.flex_attention(query, query, query, block_mask=mask)
        np.testing.assert_array_equal(attending(query, mask).detach(), expected.detach())


def test_it_runs_as_one_kernel():
    """The mask of a position is computed where its score is, as in attention that is causal."""
    query = metaop.tensor(draw(2, 4, 256, 32, dtype="float32"))
    mask = ours.create_block_mask(causal, None, None, 256, 256, "cpu")

    def kernels(result):
        text = metaop.inspect.kernels(result)
        return [line.split("(")[0] for line in text.splitlines() if line.startswith("kernel")]

    attention = F.scaled_dot_product_attention(query, query, query, is_causal=True)
    flexible = ours.flex_attention(query, query, query, block_mask=mask)
    assert kernels(flexible) == kernels(attention)

    # A bias that is the same for every head is computed once, before.
    place = metaop.arange(256)
    bias = metaop.cos((place[:, None] - place) * 0.1)
    leaves = [query.clone().requires_grad_() for _ in range(2)]
    waves = ours.flex_attention(
        leaves[0], query, query, lambda s, b, h, q, k: s + metaop.cos((q - k) * 0.1)
    )
    assert kernels(waves)[-1] == kernels(attention)[-1]
    given = F.scaled_dot_product_attention(leaves[1], query, query, bias)
    np.testing.assert_allclose(waves.detach(), given.detach(), rtol=1e-4, atol=1e-5)
    slopes = [metaop.autograd.grad(y.square().sum(), x)[0] for y, x in zip((waves, given), leaves)]
    np.testing.assert_allclose(*slopes, rtol=1e-3, atol=1e-4)


def test_errors():
    q, k, v = (metaop.tensor(draw(*shape)) for shape in SHAPES)
    attend = ours.flex_attention
    mask = ours.create_block_mask(causal, 2, 4, LENGTH, REACH, "cpu")
    for changed, fix in (
        ((q[..., :5], k, v), "project"),
        ((q, k, v[:, :, :4]), "value is"),
        ((q[:, :2], k, v), "enable_gqa"),
        ((q, k[:1], v[:1]), "expand"),
    ):
        with pytest.raises(ShapeError, match=f"(?s)flex_attention.*fix: .*{fix}"):
            attend(*changed)
    with pytest.raises(ShapeError, match="multiple of the key heads"):
        attend(q[:, :3], k[:, :2], v[:, :2], enable_gqa=True)
    for lengths in ((LENGTH + 1, REACH), (LENGTH, REACH - 1)):
        with pytest.raises(ShapeError, match=r"(?s)block_mask.shape=.*create a block mask"):
            attend(q, k, v, block_mask=ours.create_block_mask(causal, 1, 1, *lengths, "cpu"))
    with pytest.raises(ShapeError, match="B and H may be 1"):
        attend(q, k, v, block_mask=ours.create_block_mask(causal, 3, 1, LENGTH, REACH, "cpu"))
    short = mask[:, :, :1]
    short.BLOCK_SIZE, short.mask_mod = (2, 128), causal
    with pytest.raises(ShapeError, match="blocks for 2 queries"):
        attend(q, k, v, block_mask=short)
    with pytest.raises(UnsupportedError, match="4D"):
        attend(q[0], k[0], v[0])
    with pytest.raises(DTypeError, match="int64"):
        attend(q.long(), k, v)
    with pytest.raises(DeviceError, match="several devices"):
        attend(q, k, v, block_mask=mask.to("meta"))
    with pytest.raises(ArgumentError, match="both return_lse and return_aux"):
        attend(q, k, v, return_lse=True, return_aux=ours.AuxRequest())
    with pytest.raises(DTypeError, match="truth values"):
        attend(q, k, v, block_mask=ours.create_block_mask(lambda b, h, q, k: q, 1, 1, 7, 9))
    with pytest.raises(ArgumentError, match="requires a mask_mod"):
        ours.create_block_mask(lambda s, b, h, q, k: s, 1, 1, 4, 4)
    with pytest.raises(ArgumentError, match="4 or 5 positional"):
        ours.create_mask(lambda q, k: q, 1, 1, 4, 4)
    with pytest.raises(ArgumentTypeError, match="callable"):
        ours.and_masks(causal, True)
    with pytest.raises(ArgumentError, match="BLOCK_SIZE"):
        ours.create_block_mask(causal, 1, 1, 4, 4, BLOCK_SIZE=0)
    with pytest.raises(ArgumentError, match="both provided or omitted"):
        ours.BlockMask.from_kv_blocks(mask.kv_num_blocks, mask.kv_indices, mask.kv_num_blocks)
    with pytest.raises(ShapeError, match="at least 2 dimensions"):
        ours.BlockMask.from_kv_blocks(metaop.ones(1), metaop.ones(1))
