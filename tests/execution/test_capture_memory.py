"""Captured steps write over memory that nobody else holds, and over no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn, optim
from metaop.capture.steady import Steady
from metaop.codegen.memory import buffers
from metaop.nn import functional as F


class Trained:
    """A small network with its captured step, and the same as plain Python on the same data."""

    def __init__(self, captured: bool) -> None:
        metaop.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.optimizer = optim.Adam(self.net.parameters(), lr=0.05)
        self.step: Callable[..., Any] = metaop.jit(self.plain_step) if captured else self.plain_step
        self.x, self.y = metaop.randn(10, 6), metaop.randint(0, 3, (10,))
        for _ in range(4):
            self.step(self.x, self.y)

    def plain_step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    @property
    def weight(self) -> Any:
        return self.net[0].weight


def pairs() -> tuple[Trained, Trained]:
    return Trained(True), Trained(False)


def test_parameters_states_and_gradients_stay_where_they_are() -> None:
    trained = Trained(True)
    state = trained.optimizer.state[trained.weight]["exp_avg"]

    def addresses() -> list[int]:
        return [one.buffer().address for one in (trained.weight, state, trained.weight.grad)]

    first = addresses()
    gradient = id(trained.weight.grad)
    used = buffers.host.used
    for _ in range(5):
        trained.step(trained.x, trained.y)
        assert addresses() == first
        assert id(trained.weight.grad) == gradient
        assert buffers.host.used == used


def test_peers_that_are_gone_change_nothing() -> None:
    trained = Trained(True)
    trained.net.state_dict()
    _ = trained.weight.data
    address = trained.weight.buffer().address
    for _ in range(3):
        trained.step(trained.x, trained.y)
        assert trained.weight.buffer().address == address
    assert all(parameter._cell is None for parameter in trained.net.parameters())


def test_peers_that_are_held_follow() -> None:
    trained = Trained(True)
    state = trained.net.state_dict()
    for _ in range(3):
        trained.step(trained.x, trained.y)
        np.testing.assert_array_equal(state["0.weight"].numpy(), trained.weight.detach().numpy())


def test_values_are_those_of_plain_python() -> None:
    captured, plain = pairs()
    for _ in range(5):
        a, b = (one.step(one.x, one.y) for one in (captured, plain))
        np.testing.assert_allclose(a.item(), b.item(), rtol=1e-6)
    for a, b in zip(captured.net.parameters(), plain.net.parameters()):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5)
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-6)
        assert a._version == b._version


def test_gradients_that_are_held_stay() -> None:
    trained = Trained(True)
    held = trained.weight.grad
    before = held.numpy().copy()
    trained.step(trained.x, trained.y)
    np.testing.assert_array_equal(held.numpy(), before)
    assert trained.weight.grad is not held
    assert not np.array_equal(trained.weight.grad.numpy(), before)


def test_arrays_of_gradients_stay() -> None:
    trained = Trained(True)
    array = trained.weight.grad.numpy()
    before = array.copy()
    trained.step(trained.x, trained.y)
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("realised", (False, True))
def test_work_on_old_values_is_done_on_old_values(realised: bool) -> None:
    trained = Trained(True)
    before = trained.weight.detach().numpy().copy()
    slope = trained.weight.grad.numpy().copy()
    with metaop.no_grad():
        doubled, shrunk = trained.weight * 2, trained.weight.grad * 0.5
    if realised:
        doubled.numpy()
    trained.step(trained.x, trained.y)
    np.testing.assert_array_equal(doubled.numpy(), before * 2)
    np.testing.assert_array_equal(shrunk.numpy(), slope * 0.5)
    assert not np.array_equal(trained.weight.detach().numpy(), before)


def test_saved_values_still_guard_their_backward() -> None:
    for trained in pairs():
        loss = (trained.weight * trained.weight).sum()
        trained.step(trained.x, trained.y)
        with pytest.raises(RuntimeError, match="inplace"):
            loss.backward()


def test_views_follow() -> None:
    for trained in pairs():
        row, flat = trained.weight.detach()[0], trained.weight.detach().view(-1)
        row.numpy()
        for _ in range(2):
            trained.step(trained.x, trained.y)
            np.testing.assert_array_equal(row.numpy(), trained.weight.detach().numpy()[0])
            np.testing.assert_array_equal(flat.numpy(), trained.weight.detach().numpy().ravel())


def test_an_array_of_the_user_shows_what_a_captured_call_writes() -> None:
    array = np.ones(64, np.float32)
    weight = metaop.from_numpy(array)

    @metaop.jit
    def halve() -> None:
        weight.mul_(0.5)

    for _ in range(4):
        halve()
    np.testing.assert_array_equal(array, np.full(64, 0.0625, np.float32))
    array.fill(8.0)
    halve()
    np.testing.assert_array_equal(weight.numpy(), np.full(64, 4.0, np.float32))


def test_a_failed_step_changes_nothing() -> None:
    table = metaop.randn(5, 4)
    table.requires_grad_()
    optimizer = optim.SGD([table], lr=0.1)

    @metaop.jit
    def step(rows: Any) -> Any:
        optimizer.zero_grad()
        loss = table[rows].square().sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(6):
        step(metaop.tensor([0, 1, 4]))
    before = table.detach().numpy().copy()
    with pytest.raises(IndexError):
        step(metaop.tensor([0, 5, 4]))
    np.testing.assert_array_equal(table.detach().numpy(), before)
    step(metaop.tensor([0, 1, 4]))


def disturb(one: Trained, number: int, kept: list[Any]) -> None:
    """Does something to the state of training between two steps."""
    weight, optimizer = one.weight, one.optimizer
    if number == 0:
        kept.append(weight.detach())
    elif number == 1:
        kept.append(weight.grad)
    elif number == 2:
        kept.append(weight.grad.numpy())
    elif number == 3:
        kept.clear()
    elif number == 4:
        weight.grad = None
    elif number == 5:
        weight.grad = weight.grad * 2
    elif number == 6:
        with metaop.no_grad():
            weight.mul_(0.5)
    elif number == 7:
        one.net.load_state_dict({k: v.clone() for k, v in one.net.state_dict().items()})
    elif number == 8:
        optimizer.load_state_dict(optimizer.state_dict())
    elif number == 9:
        optimizer.param_groups[0]["lr"] *= 0.9
    elif number == 10:
        kept.append(optimizer.state[weight]["exp_avg"].numpy())
    elif number == 11:
        one.x = (one.x + 1)[:]
    elif number == 12:
        one.x = metaop.from_numpy(np.array(one.x.numpy()))
    elif number == 13:
        kept += (weight.detach() * 2, weight.t())


def values_of(kept: list[Any]) -> list[np.ndarray]:
    return [one if isinstance(one, np.ndarray) else one.detach().numpy() for one in kept]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_between_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step finds replaced or held by others is not written, and what it finds is used."""
    short: list[Steady] = []
    run = Steady.run
    monkeypatch.setattr(Steady, "run", lambda steady, *x: short.append(steady) or run(steady, *x))
    random = np.random.default_rng(seed)
    captured, plain = pairs()
    kept: tuple[list[Any], list[Any]] = ([], [])
    for _ in range(15):
        number = int(random.integers(14))
        for one, held in zip((captured, plain), kept):
            disturb(one, number, held)
        for _ in range(3):
            losses = [one.step(one.x, one.y).item() for one in (captured, plain)]
            np.testing.assert_allclose(*losses, rtol=1e-4)
            for mine, theirs in zip(*map(values_of, kept)):
                np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)
            if random.random() < 0.3:
                kept[0].clear(), kept[1].clear()
    for a, b in zip(captured.net.parameters(), plain.net.parameters()):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-3, atol=1e-5)
    assert 5 < len(short) < 45


def test_results_of_steps_have_memory_of_their_own() -> None:
    trained = Trained(True)
    losses = [trained.step(trained.x, trained.y) for _ in range(6)]
    values = [loss.item() for loss in losses]
    assert sorted(values, reverse=True) == values and len(set(values)) == 6
    assert len({loss.buffer().address for loss in losses}) == 6
