"""Products as trees: the halves of an axis are multiplied, again and again."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.reindex.views import pad, reshape, slice_dimension
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

    It keeps every partial product, so zeros are right in every order of derivative. The first half
    of an axis has a power of two, and ones fill the second: extents up to the next power have one
    structure.
    """
    result = source
    for dim in dims:
        half = 1
        while 2 * half < result.shape[dim]:
            half *= 2
        while result.shape[dim] > 1:
            left = slice_dimension(result, dim, 0, half)
            right = slice_dimension(result, dim, half, result.shape[dim] - half)
            missing = [0] * result.ndim
            missing[dim] = half - right.shape[dim]
            result = left * pad(right, [0] * result.ndim, missing, 1)
            half //= 2
    return reshape(result, node.shape)
