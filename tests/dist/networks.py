"""A small convolutional network trained on one device or on a placement."""

from __future__ import annotations

import numpy as np

import metaop
from metaop import nn
from metaop.dist.placement import Placement
from metaop.dist.sbp import Sbp
from metaop.tensor.sharded.global_tensor import distribute_tensor

BATCH, CLASSES = 9, 10


def train(
    placement: Placement | None, data: Sbp, weights: Sbp, steps: int = 5, rate: float = 0.02
) -> list[float]:
    """The losses of a few steps, with batch norm over the whole batch and dropout."""
    metaop.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(128, CLASSES),
    )
    images = metaop.randn(BATCH, 3, 8, 8)
    labels = metaop.tensor(np.arange(BATCH) % CLASSES)
    if placement is not None:
        network.to_global(placement, weights)
        images = distribute_tensor(images, placement, data)
        labels = distribute_tensor(labels, placement, data)
    optimizer = metaop.optim.SGD(network.parameters(), lr=rate, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
