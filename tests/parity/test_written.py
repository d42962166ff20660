"""In-place operations before backward are errors where they are PyTorch's, and harmless elsewhere.

Every differentiable entry of PyTorch's operator database runs; then an input or a result of it is
written in place, and the gradient is taken.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from tests.parity.op_db import is_public, name_of  # noqa: E402
from tests.parity.written import ALLOWED, WRONG, differences  # noqa: E402

ENTRIES = [entry for entry in op_db if is_public(entry) and entry.supports_autograd]

# PyTorch raises an error for something that its gradient would read after it was written. Here it
# is not read, or is kept: the gradient is that of the value that was there.
RIGHT_ANYWAY = set(
    """
cdist chunk combinations cross cummax cummin cumprod dist div/floor_rounding
div/trunc_rounding gather index_add index_reduce/amax index_reduce/amin index_reduce/mean
index_reduce/prod linalg.cross linalg.householder_product linalg.lstsq linalg.lstsq/grad_oriented
linalg.lu linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve
linalg.vander logaddexp2 logcumsumexp lu masked.cumprod masked.prod masked_select
matrix_exp max/reduction_with_dim min/reduction_with_dim mvlgamma/mvlgamma_p_1
mvlgamma/mvlgamma_p_3 mvlgamma/mvlgamma_p_5 nn.functional.adaptive_avg_pool1d
nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d
nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d
nn.functional.adaptive_max_pool3d nn.functional.grid_sample nn.functional.interpolate/area
nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.nll_loss
nn.functional.pad/reflect nn.functional.pad/replicate nn.functional.pad/replicate_negative
nn.functional.pdist nn.functional.poisson_nll_loss ormqr prod put scatter_reduce/amax
scatter_reduce/amin scatter_reduce/mean scatter_reduce/prod scatter_reduce/sum sgn special.erfcx
special.i0e special.i1 special.i1e special.log_ndtr split split/list_args split_with_sizes std
std/unbiased std_mean std_mean/unbiased take take_along_dim tensordot
triangular_solve unbind
""".split()
)
# Gradients that differ without any write: see op_db_table.py; bases are unique up to signs; the
# gradient of ctc_loss in PyTorch is that behind a log_softmax; dropout is random.
NOT_COMPARED = {
    "as_strided_scatter", "linalg.eigh", "nn.functional.ctc_loss",
    "nn.functional.scaled_dot_product_attention",
}  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_written_before_backward(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    name = name_of(entry)
    tables = ((RIGHT_ANYWAY, ALLOWED), (NOT_COMPARED, WRONG))
    assert differences(entry) == {kind for table, kind in tables if name in table}


# Losses and layers whose next operation writes their result.
NEXT: dict[str, Any] = {
    "pool and relu": lambda lib, x: lib.nn.ReLU(inplace=True)(lib.nn.MaxPool2d(2)(x)),
    "pool with indices": lambda lib, x: lib.nn.functional.max_pool2d(x, 2, return_indices=True)[
        0
    ].mul_(3),
    "adaptive pool": lambda lib, x: lib.nn.AdaptiveMaxPool2d(2)(x).mul_(3),
    "quotient": lambda lib, x: (x / x.exp()).add_(x),
    "sum of losses": lambda lib, x: (x.sum() / (x * x).sum()).add_(x.mean()),
    "largest": lambda lib, x: x.max(0)[0].add_(1).mul_(2),
    "smallest": lambda lib, x: x.min(-1).values.mul_(x[0, 0, 0]),
    "normalised": lambda lib, x: lib.nn.functional.normalize(x).mul_(x),
    "cross entropy": lambda lib, x: (
        lambda y: (lib.nn.functional.cross_entropy(y, lib.ones(2, 4, 4).long()), y.zero_())[0]
    )(x * 2),
    "inverse of a matrix": lambda lib, x: lib.linalg.inv(x[0, 0] + 3 * lib.eye(4)) * 1,
}


@pytest.mark.parametrize("name", NEXT)
def test_results_that_are_written_next(name: str) -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)
    found = []
    for lib in (metaop, torch):
        x = lib.tensor(values, requires_grad=True)
        NEXT[name](lib, x * 1).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-6)


# What an operator reads of these inputs is a copy in PyTorch, for some arguments at least.
BEFORE: dict[str, Any] = {
    "attention": lambda lib, x: lib.nn.functional.scaled_dot_product_attention(
        x[0], x[0], x[0].clone()
    ),
    "attention with a mask that learns": lambda lib, x: (
        lib.nn.functional.scaled_dot_product_attention(x, x, x.clone(), x * 1)
    ),
    "mean of all": lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(x, 1) * 2,
    "largest of a bag": lambda lib, x: lib.nn.functional.embedding_bag(
        lib.tensor([[1, 0, 3], [2, 2, 1]]), x[0, 0], mode="max"
    ),
    "divergence of logarithms": lambda lib, x: lib.nn.functional.kl_div(
        x, x * 0.5, reduction="sum", log_target=True
    ),
    "divergence of values": lambda lib, x: lib.nn.functional.kl_div(
        x * 2, x.detach().exp(), reduction="sum"
    ),
    "counts": lambda lib, x: lib.nn.functional.poisson_nll_loss(
        x, x.detach().exp(), log_input=False, eps=5.0
    ),
    "number and power of two": lambda lib, x: lib.ldexp(x, x.detach() * 2).sum() + x.sum(),
}


@pytest.mark.parametrize("name", BEFORE)
def test_inputs_that_are_written_next(name: str) -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 4, 4))
    found = []
    for lib in (metaop, torch):
        head = lib.tensor(values, requires_grad=True)
        x = head * 1
        y = BEFORE[name](lib, x)
        x.mul_(3)
        y.sum().backward()
        found.append(head.grad.numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("length", [3, 9])
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_outputs_of_a_recurrent_layer_that_are_written_next(name: str, length: int) -> None:
    values = np.random.default_rng(0).normal(size=(2, length, 4))
    found = []
    for lib in (metaop, torch):
        layer = getattr(lib.nn, name)(4, 3, batch_first=True, dtype=lib.float64)
        for parameter in layer.parameters():
            lib.nn.init.constant_(parameter, 0.2)
        x = lib.tensor(values, requires_grad=True)
        (layer(x)[0].relu_() * 2).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-12)


def _refuses(lib: Any, product: Any, shapes: list[tuple[int, ...]], written: int) -> bool:
    operands = [lib.ones(*shape, requires_grad=True) * 1 for shape in shapes]
    result = product(lib, operands)
    operands[written].detach().add_(1)
    try:
        result.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return True
    return False


def _matrices(rng: random.Random) -> tuple[list[tuple[int, ...]], Any]:
    extent = lambda: rng.choice((1, 2, 2, 3))  # noqa: E731
    depth, batch = extent(), [extent() for _ in range(3)]
    shapes = []
    for side in range(2):
        if rng.random() < 0.25:
            shapes.append((depth,))
            continue
        own = [1 if rng.random() < 0.3 else n for n in batch[rng.randint(0, 3) :]]
        ends = (extent(), depth) if side == 0 else (depth, extent())
        shapes.append((*own, *ends))
    return shapes, lambda lib, operands: lib.matmul(*operands)


def _sums(rng: random.Random) -> tuple[list[tuple[int, ...]], Any]:
    sizes = {label: rng.choice((1, 2, 2, 3)) for label in "abcdef"}
    terms = ["".join(rng.sample("abcdef", rng.randint(1, 4))) for _ in range(rng.choice((2, 2, 3)))]
    labels = sorted(set("".join(terms)))
    result = "".join(rng.sample(labels, rng.randint(0, len(labels))))
    shapes = [tuple(sizes[label] for label in term) for term in terms]
    return shapes, lambda lib, operands: lib.einsum(f"{','.join(terms)}->{result}", *operands)


def _axes(rng: random.Random) -> tuple[list[tuple[int, ...]], Any]:
    shared, left, right = (
        [rng.choice((1, 2, 3)) for _ in range(rng.randint(least, 2))] for least in (1, 0, 0)
    )
    dims = len(shared)
    shapes = [(*left, *shared), (*shared, *right)]
    return shapes, lambda lib, operands: lib.tensordot(*operands, dims=dims)


@pytest.mark.parametrize("draw", [_matrices, _sums, _axes], ids=["matmul", "einsum", "tensordot"])
def test_operands_of_products_that_are_written_next(
    draw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch flattens operands into batches of matrices, and saves a copy where it has to copy.

    Sums over labels of extent 1 are not compared where metaop allows more.
    """
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    rng = random.Random(0)
    for _ in range(60):
        shapes, product = draw(rng)
        for written in range(len(shapes)):
            wanted, actual = (_refuses(lib, product, shapes, written) for lib in (torch, metaop))
            assert actual <= wanted, (shapes, written)
            assert actual == wanted or draw is _sums, (shapes, written)


def test_a_kronecker_product_whose_factors_are_written_next() -> None:
    """PyTorch's gradient reads what was written then, so the measure is one without writes."""
    found = []
    for write in (False, True):
        left, right = (metaop.arange(n, dtype=metaop.float64, requires_grad=True) for n in (3, 4))
        factors = left * 1, right * 1
        product = metaop.kron(*factors)
        if write:
            for factor in factors:
                factor.mul_(3)
        (product * product).sum().backward()
        found.append([left.grad.tolist(), right.grad.tolist()])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["inv", "cholesky", "det", "eigvalsh", "svdvals", "qr"])
def test_functions_of_the_host_keep_what_they_computed(name: str) -> None:
    """A gradient never reads a result that was written after it was computed."""
    matrix = metaop.tensor([[4.0, 1.0], [1.0, 3.0]])
    found = []
    for write in (False, True):
        x = matrix.clone().requires_grad_()
        y = getattr(metaop.linalg, name)(x)
        y = y if isinstance(y, metaop.Tensor) else y[0]
        total = (y * 2).sum()
        if write:
            with metaop.no_grad():
                y.mul_(5)
        try:
            total.backward()
            found.append(x.grad.tolist())
        except metaop.errors.GradientError as error:
            assert write and "modified by an inplace operation" in str(error)
    assert all(one == found[0] for one in found)
