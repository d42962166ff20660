"""Tensors shorter than the ranks that share them: values, gradients, changes, training."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, Split
from metaop.distributed import distribute_tensor
from tests.dist.short_cases import SHAPES, check_shape

MESHES = [[0, 1], [0, 1, 2], [[0, 1], [2, 3]]]


@pytest.mark.parametrize("ranks", MESHES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_short_tensors_are_as_on_one_device(shape: tuple[int, ...], ranks: list) -> None:
    check_shape(shape, Placement("cpu", ranks, simulate=True))


def test_short_tensors_move_between_placements() -> None:
    here = Placement("cpu", [[0, 1], [2, 3]], simulate=True)
    there = Placement("cpu", [4, 5, 6], simulate=True)
    for shape in SHAPES:
        value = metaop.ones(shape)
        x = distribute_tensor(value, here, (Split(0), Split(0))).requires_grad_()
        moved = x.to_global(placement=there, sbp=Split(0))
        moved.sum().backward()
        assert moved.sbp == Split(0)
        np.testing.assert_array_equal(moved.full_tensor().detach().numpy(), value.numpy())
        np.testing.assert_array_equal(x.grad.numpy(), value.numpy())


@pytest.mark.parametrize("weights", [BROADCAST, Split(0)])
def test_the_last_batches_may_be_small(weights: metaop.sbp.Sbp) -> None:
    random = np.random.default_rng(0)
    batches = [(random.normal(size=(n, 5)), random.integers(0, 3, n)) for n in (6, 2, 1, 3)]

    def losses(placement: Placement | None) -> list[float]:
        metaop.manual_seed(0)
        model = metaop.nn.Linear(5, 3).double()
        if placement is not None:
            model.to_global(placement, weights)
        optimizer = metaop.optim.Adam(model.parameters(), lr=0.1)
        found = []
        for x, y in batches * 2:
            given = [metaop.tensor(x), metaop.tensor(y)]
            if placement is not None:
                given = [distribute_tensor(one, placement, Split(0)) for one in given]
            loss = metaop.nn.functional.cross_entropy(model(given[0]), given[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    row = Placement("cpu", range(4), simulate=True)
    np.testing.assert_allclose(losses(row), losses(None), rtol=1e-9)
