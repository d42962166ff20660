"""Two recurrent cells learn to continue waves, with LBFGS on all waves at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from models.demonstration import train

WAVES, LENGTH, HIDDEN = 12, 30, 24


class Continuation(nn.Module):
    """Waves (waves, length) to the next value at each time, and to `further` ones after the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GRUCell(1, HIDDEN), nn.GRUCell(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, waves: metaop.Tensor, further: int = 0) -> metaop.Tensor:
        low = high = metaop.zeros(len(waves), HIDDEN, dtype=waves.dtype)
        values = []
        for time in range(waves.shape[1] + further):
            value = waves[:, time, None] if time < waves.shape[1] else values[-1]
            low = self.first(value, low)
            high = self.second(low, high)
            values.append(self.head(high))
        return metaop.cat(values, 1)


def main(steps: int, compiled: Callable[..., Any]) -> list[float]:
    metaop.manual_seed(0)
    phases = np.random.default_rng(0).uniform(0, 6, (WAVES, 1))
    waves = metaop.tensor(np.sin(phases + 0.4 * np.arange(LENGTH + 1)))
    model = Continuation().double()
    forward = compiled(model)
    optimizer = metaop.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6)

    def closure() -> metaop.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(forward(waves[:, :-1]), waves[:, 1:])
        loss.backward()
        return loss

    losses = train(lambda number: {"loss": optimizer.step(closure).detach()}, steps, "LBFGS")
    with metaop.no_grad():
        forward(waves[:3, :-1], 10).numpy()
    return losses["loss"]
