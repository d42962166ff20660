"""Point clouds: farthest-point sampling, neighbours within a radius, and gathering of features."""

from __future__ import annotations

import math
from typing import Any

import metaop
from metaop.errors import ArgumentError, ShapeError
from metaop.kernels import Output, kernel, lanes, task
from metaop.operators import neighbours
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.recording import record, scalar_leaf


@kernel(
    tasks=lambda points, starts, count: points.shape[0],
    outputs=lambda points, starts, count: [
        Output((points.shape[0], count), metaop.int64),
        Output((points.shape[0], points.shape[2]), points.dtype),
        Output((points.shape[0], points.shape[2]), points.dtype),
    ],
)
def _farthest(points, starts, count, chosen, apart, way):  # type: ignore[no-untyped-def]
    """Samples points (clouds, size, points); `apart` is the distance to the nearest chosen."""
    size, length = points.shape[1], points.shape[2]
    for j in lanes(length):
        apart[task(), j] = math.inf
    last = starts[task()]
    for k in range(count):
        chosen[task(), k] = last
        first = points[task(), 0, last]
        for j in lanes(length):
            step = points[task(), 0, j] - first
            way[task(), j] = step * step
        for c in range(1, size):
            own = points[task(), c, last]
            for j in lanes(length):
                step = points[task(), c, j] - own
                way[task(), j] = way[task(), j] + step * step
        farthest = -1.0
        for j in lanes(length):
            nearest = min(apart[task(), j], way[task(), j])
            apart[task(), j] = nearest
            farthest = max(farthest, nearest)
        place = length
        for j in lanes(length):
            place = min(place, j if apart[task(), j] == farthest else length)
        last = place


def _check(name: str, points: Tensor) -> None:
    if points.ndim != 3 or points.dtype.kind != "float" or 0 in points.shape[1:]:
        raise ShapeError(
            f"{name}: points should be floats (batch, points, size), got {points.dtype.name} "
            f"{list(points.shape)}",
            fix="unsqueeze a single cloud",
        )


def farthest_point_sampler(
    pos: Tensor, npoints: int, start_idx: int | Tensor | None = None
) -> Tensor:
    """Indices (batch, npoints), int64, of points from (batch, points, size) that lie far apart.

    Each is the point farthest from all before it, the first one of equal distance. `start_idx`,
    one index or one per cloud, is the first; by default it is drawn at random. From Eldar et al.,
    "The farthest point strategy for progressive image sampling" (1997).

    >>> points = metaop.tensor([[[0.0], [1.0], [5.0]]])
    >>> metaop.graph.farthest_point_sampler(points, 2, start_idx=0)
    tensor([[0, 2]])
    """
    _check("farthest_point_sampler", pos)
    batch, length, _ = pos.shape
    if not 0 <= npoints <= length:
        raise ArgumentError(f"farthest_point_sampler: {npoints} of {length} points")
    if start_idx is None:
        starts: Any = metaop.randint(0, length, (batch,), device=pos.device)
    elif isinstance(start_idx, Tensor):
        starts = start_idx
    else:
        starts = metaop.full((batch,), start_idx, dtype=metaop.int64, device=pos.device)
    columns: Any = pos.detach().to(pos.dtype.compute).transpose(1, 2).contiguous()  # type: ignore
    return _farthest(columns, starts, npoints)[0]


def ball_query(points: Tensor, centres: Tensor, radius: float, count: int) -> Tensor:
    """Indices (batch, centres, count) of the first points within `radius` of each centre.

    Takes points (batch, points, size) and centres (batch, centres, size). A ball with fewer points
    repeats its first one; an empty ball has -1.

    >>> points = metaop.tensor([[[0.0], [1.0], [5.0]]])
    >>> metaop.graph.ball_query(points, metaop.tensor([[[0.5]]]), 1.0, 3)
    tensor([[[0, 1, 0]]])
    """
    _check("ball_query", points)
    _check("ball_query", centres)
    if points.shape[0] != centres.shape[0] or points.shape[2] != centres.shape[2] or count < 1:
        raise ShapeError(
            f"ball_query: {count} of points {list(points.shape)} around {list(centres.shape)}",
            fix="give as many clouds of one size, and a count of 1 or more",
        )
    limit = scalar_leaf(float(radius), points.dtype, points.device)
    calls = (points.call, centres.to(points.dtype).call, limit)  # type: ignore[attr-defined]
    return wrap(record(neighbours.ball_query, calls, (count,)))


def group_points(features: Tensor, numbers: Tensor) -> Tensor:
    """Gathers rows of features (batch, points, size) by index (batch, …): (batch, …, size).

    The gradient accumulates over equal indices.

    >>> features = metaop.tensor([[[1.0], [2.0], [3.0]]])
    >>> metaop.graph.group_points(features, metaop.tensor([[2, 0]])).flatten()
    tensor([3., 1.])
    """
    if features.ndim != 3 or not numbers.ndim or features.shape[0] != numbers.shape[0]:
        raise ShapeError(
            f"group_points: features {list(features.shape)} and numbers {list(numbers.shape)} "
            "should be (batch, points, size) and (batch, …)"
        )
    own = metaop.arange(len(features), device=features.device)
    return features[own.reshape(-1, *(1,) * (numbers.ndim - 1)), numbers]
