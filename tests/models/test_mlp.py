"""The fully connected network on real digits."""

from __future__ import annotations

import pytest

import metaop
from models import mlp

pytest.importorskip("sklearn")


def test_layers_follow_the_sizes() -> None:
    model = mlp.MLP(4, 8, 3)
    shapes = [tuple(parameter.shape) for parameter in model.parameters()]
    assert shapes == [(8, 4), (8,), (3, 8), (3,)]
    assert model(metaop.zeros(5, 4)).shape == (5, 3)


def test_digits_are_learnt_and_runs_are_reproducible() -> None:
    assert mlp.main([]) >= 0.95
    assert mlp.main(["--steps", "40"]) == mlp.main(["--steps", "40"])
