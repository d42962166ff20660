"""A variational autoencoder learns small images, and draws some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from models.demonstration import random_batches, train, update

SIZE, CODE = 16, 8


class Autoencoder(nn.Module):
    """Images (batch, size * size) to logits of them, and mean and logarithm of the variance."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(SIZE * SIZE, 128), nn.ReLU())
        self.mean, self.spread = nn.Linear(128, CODE), nn.Linear(128, CODE)
        self.decoder = nn.Sequential(nn.Linear(CODE, 128), nn.ReLU(), nn.Linear(128, SIZE * SIZE))

    def forward(self, x: metaop.Tensor) -> tuple[metaop.Tensor, ...]:
        hidden = self.encoder(x)
        mean, spread = self.mean(hidden), self.spread(hidden)
        code = mean + metaop.randn_like(mean) * (0.5 * spread).exp()
        return self.decoder(code), mean, spread


def _disks(count: int) -> np.ndarray:
    """Images of disks of any place and size."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    middles, radii = random.uniform(3, 13, (2, count, 1, 1)), random.uniform(2, 5, (count, 1, 1))
    distances = (rows - middles[0]) ** 2 + (columns - middles[1]) ** 2
    return (distances < radii**2).reshape(count, -1).astype(np.float32)


def main(steps: int, compiled: Callable[..., Any]) -> list[float]:
    metaop.manual_seed(0)
    batches = random_batches(_disks(600), size=64, seed=0)
    model = Autoencoder()
    optimizer = metaop.optim.Adam(model.parameters(), lr=2e-3)

    @compiled
    def loss_of(x: metaop.Tensor) -> metaop.Tensor:
        logits, mean, spread = model(x)
        likely = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).sum()
        return (likely + divergence) / len(x)

    def step(number: int) -> dict[str, metaop.Tensor]:
        return {"loss": update(optimizer, loss_of(*next(batches)))}

    losses = train(step, steps, "autoencoder")["loss"]
    with metaop.no_grad():
        model.decoder(metaop.randn(16, CODE)).sigmoid().numpy()
    return losses
