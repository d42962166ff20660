"""Reductions over a triangle: every element combined with those before it."""

from __future__ import annotations

from metaop.reduce.meta_op import reduce_axes
from metaop.reduce.reducers import REDUCERS
from metaop.reindex.meta_op import reindex
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.node import Node


def reduce_triangle(reducer: str, source: Node, dim: int, backwards: bool = False) -> Node:
    """Element `i` along `dim` combines the elements `j <= i`; `j >= i`, if `backwards`."""
    length = source.shape[dim]
    shape = (*source.shape[: dim + 1], length, *source.shape[dim + 1 :])
    axes = IndexMap.axes(shape)
    distance = axes[dim + 1] - axes[dim] if backwards else axes[dim] - axes[dim + 1]
    guards = [Within(distance, length)]
    index_map = IndexMap(shape, (*axes[:dim], *axes[dim + 1 :]), guards)
    identity = REDUCERS[reducer].identity(source.dtype)
    return reduce_axes(reducer, reindex(source, index_map, identity), [dim + 1])
