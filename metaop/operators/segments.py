"""Reductions over segments of rows, as in message passing on graphs."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply, cast, where
from metaop.reduce.meta_op import reduce_with_map
from metaop.reindex.views import reshape
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_expr import lookup
from metaop.unified_graph.node import Node


@composite
def segment_reduce(values: Node, segments: Node, sizes: Node, reducer: str) -> Node:
    """Row `s` is the reduction of all rows `i` of `values` with `segments[i] == s`.

    `sizes` (rows of the result,) counts the members of each segment; empty segments give 0.
    `reducer` is "add", "mean", "mul", "amax" or "amin".
    """
    (count,) = sizes.shape
    places = list(IndexMap.axes(values.shape))
    places[0] = lookup(1, [places[0]], count)
    target = (count, *values.shape[1:])
    combine = "add" if reducer == "mean" else reducer
    found = reduce_with_map(combine, values, IndexMap(values.shape, places), target, (segments,))
    if reducer == "add":
        return found
    column = reshape(sizes, (count,) + (1,) * (values.ndim - 1))
    if reducer == "mean":
        return found / cast(apply("maximum", column, 1), values.dtype)
    return where(column > 0, found, 0)
