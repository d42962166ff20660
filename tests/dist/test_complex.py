"""Complex numbers on simulated ranks: values and gradients as on one device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import metaop
from metaop.dist.placement import Placement
from metaop.dist.rules import rules
from metaop.dist.sbp import BROADCAST, PARTIAL, NdSbp, Split
from metaop.reindex.reinterpret import as_numbers, as_pairs
from metaop.tensor.sharded.global_tensor import distribute_tensor
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import input_node

ROW = Placement("cpu", range(3), simulate=True)
MESH = Placement("cpu", [[0, 1], [2, 3]], simulate=True)
SPLIT, OTHER = Split(0), Split(1)
numbers = np.random.default_rng(0)
LEFT = (numbers.standard_normal((6, 4, 2)) @ [1, 1j]).astype(np.complex64)
RIGHT = (numbers.standard_normal((4, 6, 2)) @ [1, 1j]).astype(np.complex64)

Loss = Callable[[metaop.Tensor, metaop.Tensor], metaop.Tensor]
LOSSES: dict[str, Loss] = {
    "product": lambda a, b: (a @ b).abs().square().sum() + (1j * a + 2 - 3j).abs().sum(),
    "conjugates": lambda a, b: (a.conj() * b.T).sum().abs() + (b @ b.mH).imag.abs().sum(),
    "parts": lambda a, b: (a.real * b.T.imag).sum() + metaop.view_as_real(b).sum(0).sum(),
    "numbers": lambda a, b: metaop.view_as_complex(metaop.view_as_real(a) * 2).abs().sum(),
    "products of many": lambda a, b: (a.prod(0) * b.prod(1)).abs().sum() + a.prod().abs(),
    "functions": lambda a, b: (a.angle() + a.exp().imag + a.sgn().real).sum(),
    "sums": lambda a, b: (a.mean(0) * b.cumsum(0).sum(1)).abs().sum() + a[[0, 3, 3]].abs().sum(),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("placement", "states"),
    [
        *((ROW, (state,)) for state in (BROADCAST, SPLIT, OTHER, PARTIAL)),
        *((MESH, pair) for pair in ((SPLIT, OTHER), (BROADCAST, PARTIAL), (SPLIT, SPLIT))),
    ],
    ids=lambda value: "" if isinstance(value, Placement) else repr(value),
)
def test_same_as_on_one_device(name: str, placement: Placement, states: NdSbp) -> None:
    def computed(place: Callable[[np.ndarray], metaop.Tensor]) -> list[metaop.Tensor]:
        tensors = [place(x).detach().requires_grad_() for x in (LEFT, RIGHT)]
        loss = LOSSES[name](*tensors)
        loss.backward()
        return [loss, *(x.grad for x in tensors if x.grad is not None)]

    def shared(values: np.ndarray) -> metaop.Tensor:
        whole = (BROADCAST,) * len(states)
        given = distribute_tensor(metaop.from_numpy(values), placement, whole)
        return given.to_global(sbp=states)

    for mine, expected in zip(computed(shared), computed(metaop.from_numpy), strict=True):
        found = mine.full_tensor().detach().numpy()
        np.testing.assert_allclose(found, expected.detach().numpy(), rtol=2e-4, atol=2e-4)


def test_no_two_ranks_share_the_parts_of_a_number() -> None:
    whole = input_node(0, (4, 6), dtypes.complex64)
    pairs = input_node(0, (4, 6, 2), dtypes.float32)
    for node in (as_pairs(whole), as_numbers(pairs)):
        found = {(rule.inputs[0], rule.output) for rule in rules(node, 2)}
        same = {(state, state) for state in (BROADCAST, PARTIAL, Split(0), Split(1))}
        assert found == same
