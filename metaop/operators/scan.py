"""Cumulative operators, and picking elements by index along a dimension.

Sums and products are reductions over a triangle, in blocks where rows are long. The others are
combined in steps.
"""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, cast, where
from metaop.operators.expressions import index_along
from metaop.reduce.triangle import combined_in_steps, reduce_triangle
from metaop.reindex import views
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node


@composite
def cumulative(source: Node, function: str, dim: int, dtype: DType) -> Node:
    """Element `i` combines elements 0 … i along `dim`, in `dtype`."""
    result = cast(source, dtype.compute)
    if source.size and source.ndim:
        if function == "logaddexp":
            result = combined_in_steps(function, result, dim, -math.inf)
        else:
            result = reduce_triangle(function, result, dim)
    return cast(result, dtype)


@composite
def cumulative_extreme(source: Node, largest: bool, dim: int) -> tuple[Node, Node]:
    """The extreme of elements 0 … i along `dim` and the index of the last one that has it."""
    indices = index_along(source.shape, dim)
    if not source.size:
        return source, indices
    extreme = reduce_triangle("max" if largest else "min", source, dim)
    is_new = apply("ge" if largest else "le", source, extreme)
    if source.dtype.kind == "float":
        is_new = is_new | apply("isnan", source)
    # The first element is always one; so no index is below 0.
    found = reduce_triangle("max", where(is_new, indices, 0), dim)
    return views.gather(source, dim, found), found


@composite
def difference(source: Node, dim: int) -> Node:
    """The differences of neighbours along `dim`, which gets one element shorter."""
    length = max(source.shape[dim] - 1, 0)
    later = views.slice_dimension(source, dim, 1, length)
    earlier = views.slice_dimension(source, dim, 0, length)
    if source.dtype.kind == "bool":
        return apply("logical_xor", later, earlier)
    return later - earlier


@composite
def pick(source: Node, index: Node, dim: int) -> Node:
    """`source` at `index` along `dim`; the result has the shape of `index`."""
    return views.gather(source, dim, index) if source.ndim else source
