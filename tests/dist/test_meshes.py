"""Meshes of several axes on simulated ranks: every transition, training, and other placements."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.dist.placement import Placement
from metaop.dist.sbp import (
    BROADCAST,
    PARTIAL,
    NdSbp,
    Split,
    mesh_shape,
    partial_max,
    partial_min,
)
from metaop.errors import ArgumentError
from metaop.tensor.sharded.global_tensor import distribute_tensor
from tests.dist.networks import train

SINGLE = [BROADCAST, PARTIAL, Split(0), Split(1)]
PAIRS = list(product(SINGLE, SINGLE))
VALUE = np.random.default_rng(0).normal(size=(7, 9))


def mesh(*extents: int, first: int = 0) -> Placement:
    ranks = first + np.arange(np.prod(extents)).reshape(extents)
    return Placement("cpu", ranks, simulate=True)


def check(tensor: metaop.Tensor, states: NdSbp) -> None:
    """The value is right, and every rank holds a part of the shape that the states mean."""
    placement = tensor.placement
    assert tensor.sbp == (states if len(states) > 1 else states[0])
    for rank, part in tensor.buffer().parts.items():
        place = placement.world.place(rank)
        assert part.shape == mesh_shape(tensor.shape, states, placement.shape, place)
    np.testing.assert_allclose(tensor.full_tensor().numpy(), VALUE)


@pytest.mark.parametrize("extents", [(2, 2), (3, 2), (2, 3), (1, 3)])
@pytest.mark.parametrize("source", PAIRS, ids=str)
def test_every_transition_keeps_the_value(extents: tuple[int, int], source: NdSbp) -> None:
    tensor = distribute_tensor(metaop.tensor(VALUE), mesh(*extents), source)
    for target in PAIRS:
        check(tensor.to_global(sbp=target), target)


@pytest.mark.parametrize("state", [partial_max, partial_min], ids=repr)
def test_partial_extremes(state: object) -> None:
    tensor = distribute_tensor(metaop.tensor(VALUE), mesh(3), state)
    for target in (BROADCAST, Split(0), Split(1)):
        check(tensor.to_global(sbp=target), (target,))
    check(tensor.to_global(sbp=BROADCAST).to_global(sbp=state), (state,))


def test_a_mesh_of_three_axes() -> None:
    states = (Split(0), PARTIAL, Split(0))
    tensor = distribute_tensor(metaop.tensor(VALUE), mesh(2, 2, 3), states)
    for target in [(Split(1), Split(0), BROADCAST), (Split(0), Split(0), BROADCAST)]:
        check(tensor.to_global(sbp=target), target)


@pytest.mark.parametrize("extents", [(2, 2), (2, 3)])
@pytest.mark.parametrize("left", [(0, None), (None, 1), (0, 0), (1, 0), (1, 1)])
@pytest.mark.parametrize("right", [(None, 1), (0, 1), (1, 1), (0, 0), (None, 0)])
def test_matmul_on_a_mesh(extents: tuple, left: tuple, right: tuple) -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(8, 9)), random.normal(size=(9, 7))
    x, y = (
        distribute_tensor(
            metaop.tensor(value), mesh(*extents), [BROADCAST if d is None else Split(d) for d in s]
        )
        for value, s in ((a, left), (b, right))
    )
    np.testing.assert_allclose((x @ y).full_tensor().numpy(), a @ b)


HYBRID = {
    "data": ((Split(0), Split(0)), (BROADCAST, BROADCAST)),
    "data and tensor": ((Split(0), BROADCAST), (BROADCAST, Split(0))),
    "all cut up": ((Split(0), Split(0)), (Split(0), Split(0))),
    "crossed": ((Split(0), BROADCAST), (Split(0), Split(1))),
}


@pytest.mark.parametrize(("name", "extents"), list(zip(HYBRID, [(2, 2), (2, 2), (2, 3), (2, 3)])))
def test_training_gives_the_losses_of_one_device(name: str, extents: tuple) -> None:
    data, weights = HYBRID[name]
    expected = train(None, BROADCAST, BROADCAST)
    np.testing.assert_allclose(train(mesh(*extents), data, weights), expected, rtol=1e-5)


PLACEMENTS = [mesh(4), mesh(2, 2), mesh(3, first=4), mesh(2, 3), mesh(1), mesh(2, first=2)]


@pytest.mark.parametrize("source", PLACEMENTS, ids=repr)
@pytest.mark.parametrize("target", PLACEMENTS, ids=repr)
def test_moving_to_another_placement(source: Placement, target: Placement) -> None:
    if source is target:
        return
    choices = {1: [(state,) for state in SINGLE], 2: PAIRS}
    for one in choices[len(source.shape)]:
        tensor = distribute_tensor(metaop.tensor(VALUE), source, one)
        for other in choices[len(target.shape)][:: len(source.shape)]:
            moved = tensor.to_global(placement=target, sbp=other)
            assert moved.placement is target
            check(moved, other)


def test_gradients_move_back() -> None:
    x = metaop.tensor(VALUE).requires_grad_()
    here = distribute_tensor(x, mesh(2, 2), (Split(0), BROADCAST))
    there = here.to_global(placement=mesh(3, first=4), sbp=Split(1))
    (there * there).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * VALUE)


def test_the_gradient_lies_as_asked() -> None:
    x = distribute_tensor(metaop.tensor(VALUE), mesh(2, 2), (Split(0), BROADCAST))
    x.requires_grad_()
    states = (Split(1), Split(0))
    y = x.to_global(sbp=(BROADCAST, BROADCAST), grad_sbp=states)
    (y * y).sum().backward()
    check(x.grad / 2, states)


def test_parts_of_ranks_make_a_tensor() -> None:
    one = mesh(1, 1)
    tensor = metaop.tensor(VALUE).to_global(placement=one, sbp=(Split(0), Split(0)))
    check(tensor, (Split(0), Split(0)))
    np.testing.assert_allclose(tensor.to_local().numpy(), VALUE)


def test_reshards_are_in_the_graph_picture() -> None:
    tensor = distribute_tensor(metaop.tensor(VALUE), mesh(2, 2), (Split(0), BROADCAST))
    moved = (tensor + 1).to_global(sbp=(BROADCAST, Split(1)))
    text = metaop.inspect.graph(moved)
    assert "ranks=[[0, 1], [2, 3]]" in text and "reshard to B,S1" in text
    assert "= input 0 " in text and text.count("(S0,B)") > 1
    assert "all-gather along axis 0, " in text


def test_collectives_are_in_the_graph_picture_with_their_bytes() -> None:
    tensor = distribute_tensor(metaop.ones(3000, 9), mesh(3), Split(0))
    total = tensor.sum(0).to_global(sbp=BROADCAST)
    lines = metaop.inspect.graph(total).splitlines()
    (moved,) = (line for line in lines if "moves" in line)
    nbytes = total.nbytes // 3 * 4  # Reduced in blocks, which are gathered: twice two thirds.
    assert moved.split()[1:5] == ["moves", "P", "->", "B"]
    assert moved.endswith(f"all-reduce, {nbytes} bytes")
    before = mesh(3).world.sent[0]
    total.buffer()
    assert mesh(3).world.sent[0] - before == nbytes
    assert any(line.endswith("S0 -> P") for line in lines)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ArgumentError, match="mesh of shape"):
        distribute_tensor(metaop.ones(3, 8), mesh(2, 2), Split(0))
    with pytest.raises(ArgumentError, match="every rank once"):
        Placement("cpu", [0, 0], simulate=True)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_states_are_shared_out_along_the_axes_that_have_them_whole(stage: int) -> None:
    class Step(nn.Graph):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model
            self.add_optimizer(metaop.optim.Adam(model.parameters(), lr=0.01))

        def build(self, x: metaop.Tensor) -> metaop.Tensor:
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    def losses(placement: Placement | None) -> tuple[Step, list[float]]:
        metaop.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4)), metaop.randn(6, 6)
        if placement is not None:
            column, row = (BROADCAST, Split(0)), (BROADCAST, Split(1))
            model.to_global(placement, {"0.*": column, "2.weight": row})
            x = distribute_tensor(x, placement, (Split(0), BROADCAST))
        step = Step(model)
        if placement is not None:
            step.config.enable_zero(stage=stage)
        return step, [step(x).item() for _ in range(3)]

    step, found = losses(mesh(2, 2))
    np.testing.assert_allclose(found, losses(None)[1], rtol=1e-5)
    optimizer = step._optimizers[0][0]
    inner = optimizer if stage == 3 else optimizer.optim
    lies = [state["exp_avg"].sbp for state in inner.state_dict()["state"].values()]
    assert lies == [(Split(0), Split(0))] * 2 + [(Split(0), Split(1)), (Split(0), Split(0))]
    weights = (Split(0), Split(0)) if stage == 3 else (BROADCAST, Split(0))
    assert step.model[0].weight.sbp == weights
