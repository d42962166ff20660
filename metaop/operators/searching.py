"""Positions of values among sorted ones."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply, cast, where
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node, constant

# Up to this length, comparing with all sorted values is less work than a binary search.
_SHORT = 64


@composite(differentiable=False)
def searchsorted(edges: Node, values: Node, right: bool) -> Node:
    """The number of elements of the rows of `edges` before each value, int64.

    Rows of `edges` correspond to those of `values`, or there is one row for all. With `right`,
    equal elements count too.
    """
    last, length = edges.ndim - 1, edges.shape[-1]
    if length <= _SHORT:
        shape = (*values.shape, length)
        one_row = (1,) * (values.ndim - last) + (length,)
        rows = views.reshape(edges, (*edges.shape[:last], *one_row))
        spread = views.broadcast_to(views.unsqueeze(values, values.ndim), shape)
        is_before = _is_before(views.broadcast_to(rows, shape), spread, right)
        count = reduce_axes("add", cast(is_before, dtypes.int32), (values.ndim,))
        return cast(count, dtypes.int64)
    place, step = constant(0, dtypes.int64, values.shape), 1
    while 2 * step <= length:
        step *= 2
    while step:
        tried = place + step
        at = apply("minimum", tried, length) - 1
        edge = views.gather(edges, last, at) if last else views.take(edges, 0, at)
        moves = _is_before(edge, values, right) & (tried <= length)
        place, step = where(moves, tried, place), step // 2
    return place


def _is_before(edge: Node, value: Node, right: bool) -> Node:
    is_before = apply("le" if right else "lt", edge, value)
    if value.dtype.kind != "float":
        return is_before
    # NaN follows all numbers, and itself.
    return is_before | apply("isnan", value)
