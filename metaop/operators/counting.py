"""Counts by value: scatters into bins."""

from __future__ import annotations

from metaop.elementwise.meta_op import cast
from metaop.reduce.meta_op import reduce_with_map
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_expr import lookup
from metaop.unified_graph.node import Node, constant


@composite(differentiable=False)
def bincount(source: Node, weights: Node | None, extent: int) -> Node:
    """The number (or the weight) of elements with each value 0 … extent - 1."""
    if weights is None:
        amounts = constant(1, dtypes.int64, source.shape)
    else:
        amounts = weights if weights.dtype is dtypes.float32 else cast(weights, dtypes.float64)
    index = lookup(1, IndexMap.axes(source.shape), extent)
    return reduce_with_map("add", amounts, IndexMap(source.shape, [index]), (extent,), (source,))
