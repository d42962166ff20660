"""Neighbours of points within a distance."""

from __future__ import annotations

from metaop.elementwise.meta_op import cast, where
from metaop.operators.places import count_up_to, first_places
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex import views
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node


@composite(differentiable=False)
def ball_query(points: Node, centres: Node, radius: Node, count: int) -> Node:
    """The indices of the first `count` points (batch, points, size) within each ball, int64.

    Balls around `centres` (batch, centres, size) with fewer points repeat the first index; empty
    balls have -1.
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
    found = first_places(counts, count, -1)
    first = views.broadcast_to(views.slice_dimension(found, 2, 0, 1), found.shape)
    return where(found < 0, first, found)
