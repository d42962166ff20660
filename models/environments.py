"""Small worlds to act in, several at once: a pole on a cart, and a grid with pits.

A world has `inputs` numbers that describe it and `actions`; all copies of it act together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import metaop
from metaop.errors import ArgumentError


class World:
    """`count` copies of a world. An episode begins anew by itself when it has ended."""

    inputs: int
    actions: int
    # Episodes are cut off after so many steps.
    limit: int

    def __init__(self, count: int, seed: int = 0) -> None:
        self.count = count
        self.random = np.random.default_rng(seed)
        self.reset()

    def start(self, count: int) -> np.ndarray:
        """States (count, …) in which episodes begin."""
        raise NotImplementedError

    def move(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Changes the states by actions (count,): rewards (count,), and which episodes ended."""
        raise NotImplementedError

    def seen(self) -> np.ndarray:
        """The states as a network reads them (count, inputs), float32."""
        raise NotImplementedError

    def reset(self) -> np.ndarray:
        """Begins all episodes; returns what is seen (count, inputs)."""
        self.steps = np.zeros(self.count, np.int64)
        self.state = self.start(self.count)
        return self.seen()

    def state_dict(self) -> dict[str, metaop.Tensor]:
        """Where all copies stand; what is random in the next steps is not kept."""
        return {"state": metaop.tensor(self.state), "steps": metaop.tensor(self.steps)}

    def load_state_dict(self, kept: dict[str, metaop.Tensor]) -> None:
        """Goes on where all copies stood."""
        self.state, self.steps = (np.array(kept[name].numpy()) for name in ("state", "steps"))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        """What is seen next (count, inputs), rewards, which episodes ended, and which were cut off.

        Fifth comes what an episode that is over showed last; of others it is what is seen next.
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
    """A pole that stands on a cart, which is pushed to the left (0) or to the right (1).

    After A. Barto, R. Sutton, C. Anderson, 1983, with the numbers of Gym's CartPole-v1: steps of 20
    ms, pushes of 10 N, a cart of 1 kg, a pole of 0.1 kg and 1 m. States are the place and speed of
    the cart and the angle and its speed. Each step is worth 1; an episode ends when the pole leans
    by more than 12° or the cart is more than 2.4 m away.
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
    """A square of fields: walk from any of them to the goal, around the pits.

    Actions go up, down, left and right; at the wall nothing moves. A step costs 0.05, a pit 1, and
    the goal is worth 1; both end the episode. A network sees a 1 at the place where it stands.
    """

    actions, limit = 4, 40
    size = 5
    goal = (4, 4)
    pits = ((1, 1), (1, 3), (3, 1), (3, 4), (2, 3))
    ways = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
    inputs = size * size

    def worth(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rewards for coming to places (count, 2), and whether an episode ends there."""
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
    """So many copies of a world of `WORLDS`."""
    if name not in WORLDS:
        raise ArgumentError(f"--world is {name!r}", fix=f"one of {sorted(WORLDS)}")
    return WORLDS[name](count, seed)


def mean_return(name: str, choose: Callable[[np.ndarray], np.ndarray], seed: int) -> float:
    """The mean sum of rewards of 16 episodes; `choose` gives actions for what is seen."""
    world = world_of(name, 16, seed)
    seen, sums, running = world.seen(), np.zeros(16), np.ones(16, bool)
    while running.any():
        seen, rewards, ended, cut, _ = world.step(choose(seen))
        sums += running * rewards
        running &= ~(ended | cut)
    return float(sums.mean())
