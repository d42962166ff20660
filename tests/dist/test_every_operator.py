"""Rules for whole families on every operator of the library: signatures, and maps over a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

from torch.testing._internal.common_methods_invocations import op_db

import metaop
from metaop import nn
from metaop.ao.quantization import quantize_weights
from metaop.batching.rules import batched
from metaop.inspect.documents import _operator_modules
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import input_node
from tests.dist.every_operator import Case, collect
from tests.dist.oracle import check_graph
from tests.parity.op_db import is_public

functional = nn.functional


@pytest.fixture(scope="module")
def cases() -> Iterator[dict[str, Case]]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield collect([entry for entry in op_db if is_public(entry)], programs(), monkeypatch)


def programs() -> Iterator[Callable[[], metaop.Tensor]]:
    """What PyTorch's database lacks."""

    def normal(*shape: int) -> metaop.Tensor:
        return metaop.randn(*shape, dtype=metaop.float64).requires_grad_()

    lengths = metaop.tensor([5, 6, 4, 6])
    yield lambda: functional.fold(normal(4, 16, 16), (5, 5), (2, 2))
    yield lambda: functional.lp_pool2d(normal(4, 4, 8, 8).abs() + 0.1, 2, 2)
    yield lambda: functional.dropout(normal(6, 8))
    yield lambda: functional.gumbel_softmax(normal(6, 8))
    yield lambda: metaop.multinomial(normal(6, 8).detach().abs(), 3, replacement=True)
    yield lambda: metaop.randint(0, 4, (30,)).unique(return_inverse=True)[1]
    yield lambda: metaop.graph.ball_query(normal(4, 6, 3), normal(4, 5, 3), 1.0, 3)
    yield lambda: metaop.vmap(functional.dropout, randomness="different")(normal(6, 8))
    yield lambda: nn.LSTM(4, 5).double()(normal(4, 4, 4))[0]
    yield lambda: nn.GRUCell(4, 5).double()(normal(4, 4))
    yield lambda: quantize_weights(nn.Linear(64, 6), bits=4, group=32)(normal(4, 64))
    yield lambda: functional.affine_grid(normal(4, 2, 3), (4, 4, 4, 4), align_corners=False)
    yield lambda: nn.attention.flex_attention.flex_attention(*[normal(4, 4, 4, 4)] * 3)
    yield lambda: functional.ctc_loss(
        normal(6, 4, 5).log_softmax(2),
        metaop.randint(1, 5, (4, 3)),
        lengths,
        metaop.tensor([3, 2, 2, 3]),
        reduction="none",
    )


def composites() -> set[str]:
    """The names of the operators that the library defines."""
    return {one.name for _, module in _operator_modules() for one in module}


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_signature_of_every_operator(cases: dict[str, Case], ranks: int) -> None:
    wrong = []
    for name, case in cases.items():
        try:
            check_graph(*case, ranks)
        except AssertionError as error:
            wrong.append(f"{name}: {' '.join(str(error).split())[:200]}")
    assert not wrong


def test_every_operator_over_a_batch(cases: dict[str, Case]) -> None:
    random = np.random.default_rng(0)
    wrong = []
    for name, case in cases.items():
        flags = [bool(random.integers(2)) for _ in case.inputs]
        flags[random.integers(len(flags))] = True
        try:
            check_batch(case, flags)
        except AssertionError as error:
            wrong.append(f"{name} {flags}: {' '.join(str(error).split())[:200]}")
    assert not wrong


def check_batch(case: Case, flags: list[bool]) -> None:
    """Three elements, of which inputs with a flag have values of their own, at once and alone."""
    size = 3
    values = [_variants(x) if flag else x for x, flag in zip(case.values, flags)]
    inputs = [
        input_node(k, (size, *node.shape) if flag else node.shape, node.dtype)
        for k, (node, flag) in enumerate(zip(case.inputs, flags))
    ]
    varies = frozenset(node for node, flag in zip(case.inputs, flags) if flag)
    outputs = batched(case.outputs, dict(zip(case.inputs, inputs)), varies, size)
    alone = [
        evaluate(case.outputs, [x[k] if flag else x for x, flag in zip(values, flags)])
        for k in range(size)
    ]
    for got, *wanted in zip(evaluate(outputs, values), *alone):
        np.testing.assert_allclose(got, np.stack(wanted), rtol=1e-9, atol=1e-9)


def _variants(value: np.ndarray) -> np.ndarray:
    """The value, its rows in reverse, and for floats its half: all are valid operands."""
    backwards = value[::-1] if value.ndim else value
    half = (value * 0.5).astype(value.dtype) if value.dtype.kind == "f" else value
    return np.stack([value, backwards, half])


def test_the_library_is_covered(cases: dict[str, Case]) -> None:
    without_inputs = {"constant_fill", "eye", "permutation"}
    elsewhere = {"segment_reduce", "sum_of_rows", "overwrite", "additive_mask", "renormalised"}
    # Loops are unrolled before they are split: tests/control_flow/test_transforms.py.
    elsewhere |= {"choose"}
    assert composites() - set(cases) <= without_inputs | elsewhere
