"""A small detector: for each cell of a grid whether a box has its middle there, and its sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from models.demonstration import train, update

SIZE, CELL = 48, 8


class Detector(nn.Module):
    """Images (batch, 1, size, size) to (batch, 5, cells, cells): a logit and four numbers."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((1, 16), (16, 32), (32, 48)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)]
            layers += [nn.LeakyReLU(0.1), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(48, 5, 1))

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.layers(x)


def _scenes(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images with two boxes each, and what the detector should say about them."""
    images = 0.1 * random.standard_normal((count, 1, SIZE, SIZE)).astype(np.float32)
    wanted = np.zeros((count, 5, SIZE // CELL, SIZE // CELL), np.float32)
    for image, truth in zip(images, wanted):
        for _ in range(2):
            height, width = random.integers(6, 20, 2)
            top, left = random.integers(0, SIZE - height), random.integers(0, SIZE - width)
            image[0, top : top + height, left : left + width] += 1
            row, column = top + height / 2, left + width / 2
            sides = (row % CELL, column % CELL, height, width)
            truth[:, int(row // CELL), int(column // CELL)] = [1, *(x / CELL for x in sides)]
    return images, wanted


def main(steps: int, compiled: Callable[..., Any]) -> list[float]:
    metaop.manual_seed(0)
    random = np.random.default_rng(0)
    model = Detector()
    optimizer = metaop.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    schedule = metaop.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=steps)

    @compiled
    def loss_of(images: metaop.Tensor, wanted: metaop.Tensor) -> metaop.Tensor:
        found, there = model(images), wanted[:, 0]
        sure = F.binary_cross_entropy_with_logits(found[:, 0], there, reduction="sum")
        apart = F.smooth_l1_loss(found[:, 1:], wanted[:, 1:], reduction="none").sum(1)
        return (sure + (apart * there).sum()) / len(images)

    def step(number: int) -> dict[str, metaop.Tensor]:
        loss = update(optimizer, loss_of(*map(metaop.from_numpy, _scenes(random, 8))))
        schedule.step()
        return {"loss": loss}

    losses = train(step, steps, "detector")["loss"]
    model.eval()
    images, wanted = _scenes(random, 16)
    with metaop.no_grad():
        found = model(metaop.from_numpy(images))[:, 0].numpy() > 0
    there = wanted[:, 0] > 0
    print(
        f"found {(found & there).sum()} of {there.sum()} boxes, and {(found & ~there).sum()} more"
    )
    return losses
