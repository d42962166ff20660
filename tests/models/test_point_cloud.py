"""Networks of point clouds: their sizes, PyTorch's values, symmetry, and learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop.fusion import recompute
from models import point_cloud, pointnet, pointnet2
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


def small_pointnet2(module: Any) -> Any:
    return module.PointNet2(3, 4, (8, 4), (4, 3), (0.9, 1.5), dropout=0.0)


@pytest.mark.parametrize(
    ("name", "build"),
    [("pointnet", lambda m: m.PointNet(3, 4, dropout=0.0)), ("pointnet2", small_pointnet2)],
)
def test_pointnets_have_the_values_gradients_and_steps_of_torch(name: str, build: Any) -> None:
    random = np.random.default_rng(6)
    points, labels = random.standard_normal((5, 3, 14)), random.integers(0, 3, 5)

    def loss(library: Any, model: Any, points: Any, labels: Any) -> tuple[Any, Any]:
        logits, value = classification(library, model, points, labels)
        return logits, value + (0.1 * model.regularisation() if name == "pointnet" else 0)

    # What is normalised in small clouds rounds more.
    compare(name, build, loss, points, labels, tolerance=1e-6, steps=3)


def test_sizes_of_pointnets() -> None:
    """3.5 M and 1.5 M parameters in table 7 and the supplement of PointNet++."""
    assert parameter_count(pointnet.PointNet()) == 3_471_473
    assert parameter_count(pointnet2.PointNet2()) == 1_475_688


def test_chosen_points_are_far_apart_and_balls_hold_what_is_near() -> None:
    points = np.random.default_rng(1).standard_normal((2, 3, 20))
    tensor = metaop.tensor(points)
    chosen = pointnet2.farthest_points(tensor, 6)
    distances = np.sqrt(((points[:, :, :, None] - points[:, :, None, :]) ** 2).sum(1))
    middles = pointnet2.gather_points(tensor, chosen)
    found = pointnet2.ball_query(tensor, middles, 1.2, 5).numpy()
    for cloud, places in enumerate(chosen.tolist()):
        assert places[0] == 0
        for number in range(1, 6):
            nearest = distances[cloud][places[:number]].min(0)
            assert places[number] == nearest.argmax()
        for number, middle in enumerate(places):
            near = np.flatnonzero(distances[cloud][middle] <= 1.2)[:5]
            expected = np.concatenate([near, np.full(5 - len(near), near[0])])
            np.testing.assert_array_equal(found[cloud, number], expected)


def test_pointnet_does_not_see_the_order() -> None:
    model = pointnet.PointNet(3, 4).double().eval()
    random = np.random.default_rng(3)
    points = random.standard_normal((2, 3, 16))
    with metaop.no_grad():
        first = model(metaop.tensor(points)).numpy()
        second = model(metaop.tensor(points[:, :, random.permutation(16)])).numpy()
    np.testing.assert_allclose(first, second, rtol=1e-9)


@pytest.mark.parametrize(("module", "steps"), [(point_cloud, 60), (pointnet, 60), (pointnet2, 100)])
def test_new_solids_are_told(module: Any, steps: int) -> None:
    assert module.main(["--steps", str(steps), "--width", "8", "--lr", "5e-3"]) >= 0.7


def test_the_nearest_points_are_found() -> None:
    points = np.random.default_rng(1).standard_normal((2, 3, 9))
    distances = ((points[:, :, :, None] - points[:, :, None, :]) ** 2).sum(1)
    expected = np.argsort(distances, -1)[..., :4]
    found = point_cloud.nearest_neighbours(metaop.tensor(points), 4).numpy()
    np.testing.assert_array_equal(found, expected)


def test_the_order_of_the_points_does_not_matter() -> None:
    model = point_cloud.DGCNN(3, k=4, width=4).double().eval()
    random = np.random.default_rng(3)
    points = random.standard_normal((2, 3, 16))
    with metaop.no_grad():
        first = model(metaop.tensor(points)).numpy()
        second = model(metaop.tensor(points[:, :, random.permutation(16)])).numpy()
    np.testing.assert_allclose(first, second, rtol=1e-9)


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
