"""Products as trees: neighbouring halves of an axis are multiplied in turn."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.reindex.views import concatenate, reshape, slice_dimension
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.node import Node


def dropped_axes(index_map: IndexMap, node: Node) -> list[int] | None:
    """The axes that a plain map drops, or None when the map does more than drop axes."""
    if index_map.is_guarded:
        return None
    axes = IndexMap.axes(index_map.domain)
    used = [expr for expr in index_map.indices if not expr.is_constant]
    positions = [axes.index(expr) if expr in axes else -1 for expr in used]
    if -1 in positions or positions != sorted(set(positions)):
        return None
    if any(expr.is_constant and expr.constant for expr in index_map.indices):
        return None
    if any(index_map.domain[p] != e for p, e in zip(positions, (n for n in node.shape if n != 1))):
        return None
    return [k for k in range(len(axes)) if k not in positions]


def halving_product(source: Node, dims: Sequence[int], node: Node) -> Node:
    """The product of `node` over the axes `dims` of `source`, half by half.

    It keeps every partial product, so zeros are right in every order of derivative.
    """
    result = source
    for dim in dims:
        while result.shape[dim] > 1:
            extent = result.shape[dim]
            half = extent // 2
            left = slice_dimension(result, dim, 0, half)
            right = slice_dimension(result, dim, half, half)
            product = left * right
            if extent % 2:
                rest = slice_dimension(result, dim, extent - 1, 1)
                product = concatenate([product, rest], dim)
            result = product
    return reshape(result, node.shape)
