"""Clouds of points against PyTorch, unrolled step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop import graph
from metaop.errors import ArgumentError, ShapeError

torch = pytest.importorskip("torch")


def clouds(batch: int, points: int, size: int, dtype: str = "float32") -> np.ndarray:
    """Points of which some are equal, and many equally far from others."""
    random = np.random.default_rng([batch, points, size])
    return (random.integers(0, 9, (batch, points, size)) / 4).astype(dtype)


def farthest(points: np.ndarray, count: int, starts: np.ndarray) -> np.ndarray:
    found = []
    for cloud, start in zip(torch.from_numpy(points), starts):
        apart, last, own = torch.full((len(cloud),), torch.inf, dtype=cloud.dtype), int(start), []
        for _ in range(count):
            own.append(last)
            apart = torch.minimum(apart, ((cloud - cloud[last]) ** 2).sum(1))
            last = int((apart == apart.max()).nonzero()[0])
        found.append(own)
    return np.array(found, np.int64).reshape(len(points), count)


def within(points: np.ndarray, centres: np.ndarray, radius: float, count: int) -> np.ndarray:
    found = np.full((*centres.shape[:2], count), -1)
    for batch, one in np.ndindex(*centres.shape[:2]):
        squares = ((points[batch] - centres[batch, one]) ** 2).sum(1)
        inside = np.flatnonzero(squares <= radius**2)[:count]
        if len(inside):
            found[batch, one] = inside[0]
            found[batch, one, : len(inside)] = inside
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape", [(2, 40, 3), (1, 1, 3), (3, 300, 1), (2, 20, 5), (0, 4, 3)], ids=str
)
def test_farthest_points(shape: tuple[int, int, int], dtype: str) -> None:
    points = clouds(*shape, dtype)
    starts = np.arange(shape[0]) % shape[1]
    tensor = metaop.from_numpy(points)
    for count in (0, 1, shape[1] // 2, shape[1]):
        found = graph.farthest_point_sampler(tensor, count, metaop.from_numpy(starts))
        assert found.dtype is metaop.int64
        np.testing.assert_array_equal(found.numpy(), farthest(points, count, starts))
    found = graph.farthest_point_sampler(tensor, 1, 0).numpy()
    np.testing.assert_array_equal(found, np.zeros((shape[0], 1)))


def test_a_random_start() -> None:
    tensor = metaop.from_numpy(clouds(64, 30, 3))
    metaop.manual_seed(0)
    starts = graph.farthest_point_sampler(tensor, 2)[:, 0].numpy()
    assert starts.min() >= 0 and starts.max() < 30 and len(set(starts.tolist())) > 10


@pytest.mark.parametrize("count", [1, 4, 60])
@pytest.mark.parametrize("radius", [0.0, 0.6, 10.0])
def test_balls(radius: float, count: int) -> None:
    points, centres = clouds(2, 50, 3), clouds(2, 9, 3) + np.float32(0.25)
    centres[:, 0] = points[:, 7]
    found = graph.ball_query(*map(metaop.from_numpy, (points, centres)), radius, count)
    assert found.dtype is metaop.int64
    np.testing.assert_array_equal(found.numpy(), within(points, centres, radius, count))


def test_groups_and_their_gradient() -> None:
    random = np.random.default_rng(0)
    values, numbers = random.standard_normal((2, 10, 4)), random.integers(0, 10, (2, 5, 3))
    grown = []
    for lib in (metaop, torch):
        features = lib.tensor(values, requires_grad=True)
        index = lib.tensor(numbers)
        if lib is metaop:
            groups = graph.group_points(features, index)
        else:
            groups = features[torch.arange(2)[:, None, None], index]
        (groups**2).sum().backward()
        grown.append((groups.detach().numpy(), features.grad.numpy()))
    for ours, theirs in zip(*grown):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    flat = graph.group_points(metaop.from_numpy(values), metaop.from_numpy(numbers[:, 0]))
    np.testing.assert_array_equal(flat.numpy(), values[[[0], [1]], numbers[:, 0]])


def test_captured() -> None:
    @metaop.jit
    def gathered(points: Any, features: Any) -> Any:
        centres = graph.group_points(points, graph.farthest_point_sampler(points, 6, 0))
        return graph.group_points(features, graph.ball_query(points, centres, 0.7, 5)).amax(2)

    for seed in range(4):
        points = np.roll(clouds(2, 40, 3), seed, 1)
        features = np.random.default_rng(seed).standard_normal((2, 40, 7))
        chosen = farthest(points, 6, np.zeros(2, int))
        centres = points[[[0], [1]], chosen]
        groups = features[[[[0]], [[1]]], within(points, centres, 0.7, 5)]
        found = gathered(*map(metaop.from_numpy, (points, features)))
        np.testing.assert_array_equal(found.numpy(), groups.max(2))


def test_refusals() -> None:
    points = metaop.zeros(2, 5, 3)
    with pytest.raises(ShapeError, match="points should be floats"):
        graph.farthest_point_sampler(points[0], 2)
    with pytest.raises(ShapeError, match="got int64"):
        graph.farthest_point_sampler(points.long(), 2)
    with pytest.raises(ArgumentError, match="6 of 5 points"):
        graph.farthest_point_sampler(points, 6)
    with pytest.raises(IndexError, match="out of range"):
        graph.farthest_point_sampler(points, 2, 5).numpy()
    with pytest.raises(ShapeError, match="ball_query"):
        graph.ball_query(points, metaop.zeros(2, 3, 2), 1.0, 2)
    with pytest.raises(ShapeError, match="ball_query: 0 of"):
        graph.ball_query(points, points, 1.0, 0)
    with pytest.raises(ShapeError, match="group_points"):
        graph.group_points(points, metaop.zeros(3, 1, dtype=metaop.int64))
