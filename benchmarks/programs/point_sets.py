"""A network on sets of points, after PointNet, tells shapes apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from models.demonstration import train, update

POINTS, SHAPES = 128, 3


class SetNetwork(nn.Module):
    """Points (batch, 3, points) to logits: each point alone, then the largest of all points."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
            layers += [nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU()]
        self.points = nn.Sequential(*layers)
        self.whole = nn.Sequential(
            nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(64, SHAPES),
        )  # fmt: skip

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.whole(self.points(x).amax(2))


def _clouds(random: np.random.Generator, count: int) -> tuple[metaop.Tensor, metaop.Tensor]:
    """Points of spheres, cubes and rings under noise, and which of them they are."""
    labels = random.integers(0, SHAPES, count)
    points = random.standard_normal((count, 3, POINTS))
    flat = points * np.array([1.0, 1.0, 0.0])[:, None]
    sphere = points / np.linalg.norm(points, axis=1, keepdims=True)
    cube = points / np.abs(points).max(1, keepdims=True)
    ring = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    chosen = np.stack((sphere, cube, ring))[labels, np.arange(count)]
    noisy = chosen + 0.05 * random.standard_normal(chosen.shape)
    return metaop.tensor(noisy.astype(np.float32)), metaop.tensor(labels)


def main(steps: int, compiled: Callable[..., Any]) -> list[float]:
    metaop.manual_seed(0)
    random = np.random.default_rng(0)
    model = SetNetwork()
    forward = compiled(model)
    optimizer = metaop.optim.Adam(model.parameters(), lr=1e-3)

    def step(number: int) -> dict[str, metaop.Tensor]:
        points, labels = _clouds(random, 16)
        logits = forward(points)
        hits = (logits.argmax(1) == labels).float().mean()
        return {"loss": update(optimizer, F.cross_entropy(logits, labels)), "accuracy": hits}

    losses = train(step, steps, "set network")["loss"]
    model.eval()
    points, labels = _clouds(random, 64)
    with metaop.no_grad():
        return [*losses, F.cross_entropy(forward(points), labels).item()]
