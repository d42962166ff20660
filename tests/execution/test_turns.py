"""Gradients that are computed group by group are those that are computed at once."""

from __future__ import annotations

import numpy as np

import metaop
from metaop import nn
from metaop.execution.executor import realize_in_turns


def gradients(network: nn.Module, images: metaop.Tensor) -> list[metaop.Tensor]:
    network.zero_grad()
    labels = metaop.tensor([0, 1, 2, 3])
    nn.functional.cross_entropy(network(images), labels).backward()
    return [parameter.grad for parameter in network.parameters()]


def test_every_group_is_there_in_its_turn_and_nothing_differs() -> None:
    metaop.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5)]
    network, images = nn.Sequential(*layers), metaop.randn(4, 3, 6, 6)
    expected = [gradient.numpy().copy() for gradient in gradients(network, images)]
    found = gradients(network, images)
    calls = [gradient.call for gradient in found]
    groups = [calls[4:], calls[2:4], calls[:2]]
    for turn, _ in enumerate(realize_in_turns(groups)):
        assert all(call.buffer is not None for group in groups[: turn + 1] for call in group)
        assert all(call.is_pending for group in groups[turn + 2 :] for call in group)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-6)
