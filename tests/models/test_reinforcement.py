"""Networks that act: their worlds, PyTorch's values, and what they reach in how many steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError
from models import dqn, environments, ppo
from tests.models.comparison import compare, torch_twin

random = np.random.default_rng(4)


def test_the_pole_moves_by_the_laws_of_mechanics() -> None:
    """Accelerations solve both equations of motion, and states follow by Euler's method."""
    world = environments.CartPole(50)
    world.state = before = random.uniform(-1, 1, (50, 4)) * (2, 2, 0.3, 2)
    actions = random.integers(0, 2, 50)
    rewards, ended = world.move(actions)
    change = (world.state - before) / 0.02
    np.testing.assert_allclose(change[:, [0, 2]], before[:, [1, 3]], atol=1e-9)
    cosine, sine = np.cos(before[:, 2]), np.sin(before[:, 2])
    thrust, spin = change[:, 1], change[:, 3]
    force = np.where(actions == 1, 10, -10)
    along = 1.1 * thrust + 0.05 * (spin * cosine - before[:, 3] ** 2 * sine)
    np.testing.assert_allclose(along, force, atol=1e-8)
    np.testing.assert_allclose(thrust * cosine + 2 / 3 * spin, 9.8 * sine, atol=1e-8)
    leaning = np.abs(world.state[:, 2]) > np.deg2rad(12)
    assert (rewards == 1).all() and leaning.any() and not leaning.all()
    np.testing.assert_array_equal(ended, leaning | (np.abs(world.state[:, 0]) > 2.4))


def test_fields_of_the_grid() -> None:
    world = environments.GridWorld(4)
    world.state = np.array([[0, 0], [0, 1], [4, 3], [2, 2]])
    seen, rewards, ended, cut, last = world.step(np.array([0, 1, 3, 2]))
    np.testing.assert_allclose(rewards, [-0.05, -1, 1, -0.05])
    assert ended.tolist() == [False, True, True, False] and not cut.any()
    assert last.argmax(1).tolist() == [0, 6, 24, 11] and last.sum() == 4
    assert seen.argmax(1)[[0, 3]].tolist() == [0, 11]
    # Where an episode ended, the next has begun on a free field.
    assert not environments.GridWorld(2).worth(world.state)[1].any()
    assert world.steps.tolist() == [1, 0, 0, 1]
    with pytest.raises(ArgumentError, match="give 4 actions from 0 to 3"):
        world.step(np.array([0, 1, 4, 2]))
    with pytest.raises(ArgumentError, match="--world is 'moon'"):
        environments.world_of("moon", 1, 0)


def test_long_episodes_are_cut_off() -> None:
    world = environments.GridWorld(1)
    world.state = np.array([[0, 0]])
    for number in range(1, 41):
        _, _, ended, cut, last = world.step(np.array([0]))
        assert not ended[0] and cut[0] == (number == 40) and last[0, 0] == 1
    assert world.steps[0] == 0


def test_advantages_are_sums_of_what_was_gained() -> None:
    rewards, worths, following = random.standard_normal((3, 7, 2))
    over = np.zeros((7, 2), bool)
    over[3, 0] = True
    found = ppo.advantages(rewards, worths, following, over, 0.9, 0.8)
    gained = rewards + 0.9 * following - worths
    for world, ends in ((0, (4, 7)), (1, (7,))):
        for start in range(7):
            end = min(end for end in ends if end > start)
            expected = sum(0.72 ** (k - start) * gained[k, world] for k in range(start, end))
            np.testing.assert_allclose(found[start, world], expected)


def test_ppo_has_the_values_gradients_and_steps_of_torch() -> None:
    seen, gains, returns = random.standard_normal((9, 4)), *random.standard_normal((2, 9))
    actions, before = random.integers(0, 3, 9), random.uniform(-1.6, -0.7, 9)

    def loss(library: Any, model: Any, seen: Any, *rest: Any) -> tuple[Any, Any]:
        logits, worths = model(seen)
        module = ppo if library is metaop else torch_twin("ppo")
        return logits, module.loss_of(logits, worths, *rest)

    def build(module: Any) -> Any:
        return module.ActorCritic(4, 3, 8)

    compare("ppo", build, loss, seen, actions, before, gains, returns, steps=20)


def test_both_frameworks_act_alike() -> None:
    model = ppo.ActorCritic(4, 2, 8)
    twin = torch_twin("ppo").ActorCritic(4, 2, 8)
    import torch

    twin.load_state_dict({k: torch.tensor(v.numpy()) for k, v in model.state_dict().items()})
    mine, theirs = (
        module.act(network, environments.CartPole(3, 5), 30)
        for module, network in ((ppo, model), (torch_twin("ppo"), twin))
    )
    np.testing.assert_array_equal(mine.actions, theirs.actions)
    for one, other in zip(mine[2:], theirs[2:]):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_dqn_has_the_values_gradients_and_steps_of_torch() -> None:
    seen, after, rewards = *random.standard_normal((2, 9, 4)), random.standard_normal(9)
    actions, ended = random.integers(0, 3, 9), random.integers(0, 2, 9).astype(float)

    def loss(library: Any, models: Any, *inputs: Any) -> tuple[Any, Any]:
        module = dqn if library is metaop else torch_twin("dqn")
        return models[0](inputs[0]), module.loss_of(models[0], models[1], *inputs)

    def build(module: Any) -> Any:
        return module.nn.ModuleList([module.QNetwork(4, 3, 8) for _ in range(2)])

    compare("dqn", build, loss, seen, actions, rewards, after, ended, steps=20)


def test_memory_forgets_the_oldest() -> None:
    memory = dqn.ReplayMemory(5, 1)
    for number in range(4):
        values = np.array([2 * number, 2 * number + 1])
        steps = dict(actions=values, rewards=values, ended=values)
        memory.add(seen=values[:, None], after=values[:, None], **steps)
    assert sorted(memory.rows["actions"]) == [3, 4, 5, 6, 7]
    other = dqn.ReplayMemory(5, 1)
    other.load_state_dict(memory.state_dict())
    drawn = [part.draw(20, np.random.default_rng(0)) for part in (memory, other)]
    for one, two in zip(*drawn):
        np.testing.assert_array_equal(one.numpy(), two.numpy())


def best_return() -> float:
    """The mean return of the best way through the grid, from the fields of 16 episodes."""
    world = environments.GridWorld(1)
    fields = np.argwhere(np.ones((5, 5)))
    worth = np.zeros((5, 5))
    for _ in range(40):
        ways = []
        for way in world.ways:
            after = np.clip(fields + way, 0, 4)
            rewards, ended = world.worth(after)
            ways.append(rewards + ~ended * worth[tuple(after.T)])
        worth = np.max(ways, 0).reshape(5, 5)
    return float(np.mean([worth[tuple(place)] for place in environments.GridWorld(16, 1).state]))


def test_dqn_finds_the_best_ways_through_the_grid() -> None:
    assert dqn.main(["--width", "32"]) >= best_return() - 0.1


def test_ppo_keeps_the_pole_upright() -> None:
    """In 30,720 steps of the world: 500 is the most, and Gym calls 475 solved."""
    assert ppo.main(["--steps", "30", "--seed", "1"]) >= 475


@pytest.mark.parametrize("module", [ppo, dqn])
def test_training_goes_on_where_it_was_interrupted(module: Any, tmp_path: Path) -> None:
    words = ["--worlds", "2", "--batch-size", "8", "--width", "4", "--checkpoint"]
    words = [*(["--length", "8"] if module is ppo else []), *words]
    module.main([*words, str(tmp_path / "whole.pth"), "--steps", "5"])
    module.main([*words, str(tmp_path / "parts.pth"), "--steps", "2"])
    module.main([*words, str(tmp_path / "parts.pth"), "--steps", "5"])
    whole, parts = (metaop.load(tmp_path / f"{name}.pth") for name in ("whole", "parts"))
    assert len(whole["history"]["loss"]) == 5 and whole["history"] == parts["history"]
