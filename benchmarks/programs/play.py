"""Deep Q-learning: an agent learns to balance a pole on a cart, one frame after the other."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from models.demonstration import train, update

BATCH, DISCOUNT = 32, 0.98


class Pole:
    """A cart of 1 kg that carries a pole of 0.1 kg and 1 m and is pushed left or right by 10 N.

    The state is place, speed, angle and angular speed, in m, m/s, rad and rad/s; a frame is 20 ms.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.reset()

    def reset(self) -> np.ndarray:
        self.state = self.random.uniform(-0.05, 0.05, 4)
        return self.state.astype(np.float32)

    def push(self, right: bool) -> tuple[np.ndarray, bool]:
        """The next state, and whether the pole has fallen or the cart has left its track."""
        _, speed, angle, turn = self.state
        sine, cosine = math.sin(angle), math.cos(angle)
        thrust = ((10.0 if right else -10.0) + 0.05 * turn**2 * sine) / 1.1
        spin = (9.8 * sine - cosine * thrust) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        self.state = self.state + 0.02 * np.array(
            [speed, thrust - 0.05 * spin * cosine / 1.1, turn, spin]
        )
        ended = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state.astype(np.float32), ended


def main(steps: int, compiled: Callable[..., Any]) -> list[float]:
    metaop.manual_seed(0)
    random = np.random.default_rng(0)
    policy, target = (
        nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        for _ in range(2)
    )
    target.load_state_dict(policy.state_dict())
    optimizer = metaop.optim.Adam(policy.parameters(), lr=1e-3)
    game = Pole(random)
    memory: deque[tuple[Any, ...]] = deque(maxlen=2000)
    state = game.reset()

    @compiled
    def loss_of(*batch: metaop.Tensor) -> metaop.Tensor:
        states, actions, rewards, following, going_on = batch
        worth = policy(states).gather(1, actions[:, None])[:, 0]
        with metaop.no_grad():
            hoped = rewards + DISCOUNT * going_on * target(following).amax(1)
        return F.smooth_l1_loss(worth, hoped)

    def play(curiosity: float) -> None:
        nonlocal state
        if random.random() < curiosity:
            action = int(random.integers(2))
        else:
            with metaop.no_grad():
                action = policy(metaop.from_numpy(state[None])).argmax(1).item()
        following, ended = game.push(action == 1)
        reward, going_on = np.float32(-1.0 if ended else 0.1), np.float32(not ended)
        memory.append((state, np.int64(action), reward, following, going_on))
        state = game.reset() if ended else following

    def step(number: int) -> dict[str, metaop.Tensor]:
        for _ in range(2):
            play(max(0.1, 1 - number / steps))
        chosen = [memory[k] for k in random.integers(0, len(memory), BATCH)]
        batch = [metaop.from_numpy(np.stack(column)) for column in zip(*chosen)]
        loss = update(optimizer, loss_of(*batch))
        if number % 20 == 0:
            target.load_state_dict(policy.state_dict())
        return {"loss": loss}

    for _ in range(BATCH):
        play(1.0)
    return train(step, steps, "Q-learning")["loss"]
