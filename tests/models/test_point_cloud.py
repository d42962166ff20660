"""The network of point clouds: its size, PyTorch's values, symmetry, and learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop.fusion import recompute
from models import point_cloud
from tests.models.comparison import classification, compare, parameter_count


def test_size_is_that_of_the_authors_program() -> None:
    model = point_cloud.DGCNN()
    assert parameter_count(model) == 1_809_576
    assert model.linear3.weight.shape == (40, 256)


def test_values_and_gradients_are_those_of_torch() -> None:
    def build(module: Any) -> Any:
        return module.DGCNN(3, k=4, width=4, dropout=0.0)

    random = np.random.default_rng(6)
    points, labels = random.standard_normal((3, 3, 12)), random.integers(0, 3, 3)
    compare("point_cloud", build, classification, points, labels)


def test_the_nearest_points_are_found() -> None:
    points = np.random.default_rng(1).standard_normal((2, 3, 9))
    distances = ((points[:, :, :, None] - points[:, :, None, :]) ** 2).sum(1)
    expected = np.argsort(distances, -1)[..., :4]
    found = point_cloud.nearest(metaop.tensor(points), 4).numpy()
    np.testing.assert_array_equal(found, expected)


def test_the_order_of_the_points_does_not_matter() -> None:
    model = point_cloud.DGCNN(3, k=4, width=4).double().eval()
    random = np.random.default_rng(3)
    points = random.standard_normal((2, 3, 16))
    with metaop.no_grad():
        first = model(metaop.tensor(points)).numpy()
        second = model(metaop.tensor(points[:, :, random.permutation(16)])).numpy()
    np.testing.assert_allclose(first, second, rtol=1e-9)


def test_training_lowers_the_loss() -> None:
    losses = point_cloud.main(["--steps", "12", "--points", "32", "--width", "8"])
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < np.mean(losses[:2])


def test_what_is_computed_again_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a concatenation may be the very copies that the gradient reads once more."""
    monkeypatch.setattr(recompute, "_LEAST_PEAK", 1 << 10)
    monkeypatch.setattr(recompute, "_LEAST_BYTES", 1 << 6)
    random = np.random.default_rng(0)
    points = metaop.from_numpy(random.standard_normal((4, 3, 33)).astype(np.float32))
    labels = metaop.from_numpy(random.integers(0, 7, 4))
    model = point_cloud.DGCNN(7, 5, 8, 0.0)
    losses = []
    for early in (True, False):
        loss = metaop.nn.functional.cross_entropy(model(points), labels)
        if early:
            losses.append(loss.item())
        loss.backward()
        losses.append(loss.item())
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)
