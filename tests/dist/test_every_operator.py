"""The derivation rule on every operator of the library: no signature is numerically wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

from torch.testing._internal.common_methods_invocations import op_db

import metaop
from metaop import nn
from metaop.inspect.documents import _operator_modules
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
    yield lambda: nn.LSTM(4, 5).double()(normal(4, 4, 4))[0]
    yield lambda: nn.GRUCell(4, 5).double()(normal(4, 4))
    yield lambda: functional.affine_grid(normal(4, 2, 3), (4, 4, 4, 4), align_corners=False)
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


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_signature_of_every_operator(cases: dict[str, Case], ranks: int) -> None:
    wrong = []
    for name, case in cases.items():
        try:
            check_graph(*case, ranks)
        except AssertionError as error:
            wrong.append(f"{name}: {' '.join(str(error).split())[:200]}")
    assert not wrong


def test_the_library_is_covered(cases: dict[str, Case]) -> None:
    without_inputs = {"constant_fill", "eye"}
    elsewhere = {"segment_reduce", "overwrite", "additive_mask", "renormalised"}
    assert composites() - set(cases) <= without_inputs | elsewhere
