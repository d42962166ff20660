"""Small vectorised environments for reinforcement learning: a cart pole, and a grid with pits.

An environment has observations of `inputs` numbers and a number of `actions`; all its copies step
together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import metaop
from metaop.errors import ArgumentError


class World:
    """`count` copies of an environment, which reset automatically at the end of an episode."""

    inputs: int
    actions: int
    # Episodes are truncated after this many steps.
    limit: int

    def __init__(self, count: int, seed: int = 0) -> None:
        self.count = count
        self.random = np.random.default_rng(seed)
        self.reset()

    def start(self, count: int) -> np.ndarray:
        """Random initial states (count, …)."""
        raise NotImplementedError

    def move(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Updates the states by actions (count,); returns rewards and terminations (count,)."""
        raise NotImplementedError

    def seen(self) -> np.ndarray:
        """The observations (count, inputs), float32."""
        raise NotImplementedError

    def reset(self) -> np.ndarray:
        """Starts all episodes; returns observations (count, inputs)."""
        self.steps = np.zeros(self.count, np.int64)
        self.state = self.start(self.count)
        return self.seen()

    def state_dict(self) -> dict[str, metaop.Tensor]:
        """The states of all copies, without the random generator."""
        return {"state": metaop.tensor(self.state), "steps": metaop.tensor(self.steps)}

    def load_state_dict(self, kept: dict[str, metaop.Tensor]) -> None:
        """Restores the states of all copies."""
        self.state, self.steps = (np.array(kept[name].numpy()) for name in ("state", "steps"))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        """Observations (count, inputs), rewards, terminations, truncations and last observations.

        The last observations are those before the automatic reset; for episodes that continue they
        equal the first result.
        """
        actions = np.asarray(actions)
        if actions.shape != (self.count,) or not np.isin(actions, range(self.actions)).all():
            raise ArgumentError(
                f"{type(self).__name__} got actions {actions.tolist()}",
                fix=f"give {self.count} actions from 0 to {self.actions - 1}",
            )
        rewards, ended = self.move(actions)
        self.steps += 1
        cut = ~ended & (self.steps >= self.limit)
        last = self.seen()
        over = ended | cut
        if over.any():
            self.state = self.state.copy()
            self.state[over] = self.start(int(over.sum()))
            self.steps[over] = 0
        return self.seen(), rewards.astype(np.float32), ended, cut, last


class CartPole(World):
    """A pole balanced on a cart, which is pushed to the left (0) or to the right (1).

    After A. Barto, R. Sutton, C. Anderson, 1983, with the numbers of Gym's CartPole-v1: steps of 20
    ms, pushes of 10 N, a cart of 1 kg, a pole of 0.1 kg and 1 m. States are the position and
    velocity of the cart, and the angle and angular velocity of the pole. Each step has the reward
    1; an episode ends when the pole leans by more than 12° or the cart is more than 2.4 m away.
    """

    inputs, actions, limit = 4, 2, 500
    gravity, cart, pole, half, force, duration = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def start(self, count: int) -> np.ndarray:
        return self.random.uniform(-0.05, 0.05, (count, 4))

    def move(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _, speed, angle, turning = self.state.T
        cosine, sine = np.cos(angle), np.sin(angle)
        total, moment = self.cart + self.pole, self.pole * self.half
        push = np.where(actions == 1, self.force, -self.force)
        drive = (push + moment * turning**2 * sine) / total
        inertia = self.half * (4 / 3 - self.pole * cosine**2 / total)
        spin = (self.gravity * sine - cosine * drive) / inertia
        thrust = drive - moment * spin * cosine / total
        change = np.stack([speed, thrust, turning, spin], 1)
        self.state = self.state + self.duration * change
        ended = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > np.pi / 15)
        return np.ones(self.count), ended

    def seen(self) -> np.ndarray:
        return self.state.astype(np.float32)


class GridWorld(World):
    """A square grid: walk from a random cell to the goal, around the pits.

    Actions are up, down, left and right; walls block. The reward is -0.05 for a step, -1 for a pit
    and 1 for the goal; the last two end the episode. Observations are the one-hot cell.
    """

    actions, limit = 4, 40
    size = 5
    goal = (4, 4)
    pits = ((1, 1), (1, 3), (3, 1), (3, 4), (2, 3))
    ways = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
    inputs = size * size

    def worth(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rewards of cells (count, 2), and whether an episode ends there."""
        at_goal = (places == self.goal).all(-1)
        in_pit = (places[:, None] == np.array(self.pits)).all(-1).any(1)
        return np.where(at_goal, 1.0, np.where(in_pit, -1.0, -0.05)), at_goal | in_pit

    def start(self, count: int) -> np.ndarray:
        fields = np.argwhere(np.ones((self.size, self.size)))
        free = fields[~self.worth(fields)[1]]
        return free[self.random.integers(0, len(free), count)]

    def move(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.state = np.clip(self.state + self.ways[actions], 0, self.size - 1)
        return self.worth(self.state)

    def seen(self) -> np.ndarray:
        return np.eye(self.inputs, dtype=np.float32)[self.state @ (self.size, 1)]


WORLDS: dict[str, type[World]] = {"cart_pole": CartPole, "grid_world": GridWorld}


def world_of(name: str, count: int, seed: int) -> World:
    """`count` copies of one of `WORLDS`."""
    if name not in WORLDS:
        raise ArgumentError(f"--world is {name!r}", fix=f"one of {sorted(WORLDS)}")
    return WORLDS[name](count, seed)


def mean_return(name: str, choose: Callable[[np.ndarray], np.ndarray], seed: int) -> float:
    """The mean return of 16 episodes; the policy `choose` maps observations to actions."""
    world = world_of(name, 16, seed)
    seen, sums, running = world.seen(), np.zeros(16), np.ones(16, bool)
    while running.any():
        seen, rewards, ended, cut, _ = world.step(choose(seen))
        sums += running * rewards
        running &= ~(ended | cut)
    return float(sums.mean())
