"""Neighbours of points: those that lie within a distance."""

from __future__ import annotations

from metaop.elementwise.meta_op import cast, where
from metaop.operators.expressions import index_along
from metaop.operators.places import count_up_to
from metaop.reduce.meta_op import reduce_axes, reduce_with_map
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_expr import lookup
from metaop.unified_graph.node import Node


@composite(differentiable=False)
def ball_query(points: Node, centres: Node, radius: Node, count: int) -> Node:
    """The numbers of the first `count` points (batch, points, size) within each ball, int64.

    Balls around `centres` (batch, centres, size) with fewer points repeat the first one; those with
    none have -1.
    """
    batch, length, size = points.shape
    balls = centres.shape[1]
    shape = (batch, balls, length, size)
    here = views.broadcast_to(views.unsqueeze(points, 1), shape)
    there = views.broadcast_to(views.unsqueeze(centres, 2), shape)
    apart = here - there
    distance = reduce_axes("add", apart * apart, (3,))
    limit = cast(radius, points.dtype)
    counts = count_up_to(distance <= views.broadcast_to(limit * limit, distance.shape), 2)
    # The first point with a count is the one that lies inside; later ones than asked for are left.
    axes = IndexMap.axes(counts.shape)
    target = (batch, balls, count + 2)
    place = where(counts > count, count + 1, counts)
    to_count = IndexMap(counts.shape, (*axes[:2], lookup(1, axes, count + 2)))
    numbers = cast(index_along(counts.shape, 2), counts.dtype)
    found = reduce_with_map("min", numbers, to_count, target, (place,))
    found = views.slice_dimension(found, 2, 1, count)
    first = views.broadcast_to(views.slice_dimension(found, 2, 0, 1), found.shape)
    found = where(found < length, found, first)
    return cast(where(found < length, cast(found, dtypes.int64), -1), dtypes.int64)
