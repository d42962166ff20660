"""Cumulative operators, and picking elements by index along a dimension.

Sums are reductions over a triangle, which every machine scans in its own way, in blocks where rows
are long. The others are log-step scans: n elements are log2(n) combinations of the tensor with
itself shifted (D. Hillis and G. Steele, "Data parallel algorithms", 1986).
"""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, cast, where
from metaop.operators.expressions import index_along
from metaop.reduce.triangle import reduce_triangle
from metaop.reindex import views
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, Scalar

_START: dict[str, Scalar] = {"mul": 1, "logaddexp": -math.inf}


def shifted(source: Node, dim: int, offset: int, fill: Scalar) -> Node:
    """`source` shifted by `offset` towards the end of `dim`, with `fill` at the start."""
    before = [0] * source.ndim
    before[dim] = offset
    return views.pad(source, before, [-width for width in before], fill)


@composite
def cumulative(source: Node, function: str, dim: int, dtype: DType) -> Node:
    """Element `i` combines elements 0 … i along `dim`, in `dtype`."""
    result = cast(source, dtype.compute)
    if not source.size:
        return cast(result, dtype)
    if function == "add" and source.ndim:
        return cast(reduce_triangle("add", result, dim), dtype)
    offset = 1
    while source.ndim and offset < source.shape[dim]:
        earlier = shifted(result, dim, offset, _START[function])
        result = apply(function, earlier, result)
        offset *= 2
    return cast(result, dtype)


@composite
def cumulative_extreme(source: Node, largest: bool, dim: int) -> tuple[Node, Node]:
    """The extreme of elements 0 … i along `dim` and the index of the last one that has it."""
    values, indices = source, index_along(source.shape, dim)
    fill = source.dtype.lowest if largest else source.dtype.highest
    offset = 1
    while offset < source.shape[dim]:
        earlier = shifted(values, dim, offset, fill)
        earlier_indices = shifted(indices, dim, offset, 0)
        wins = earlier > values if largest else earlier < values
        if source.dtype.kind == "float":
            wins = wins | (apply("isnan", earlier) & ~apply("isnan", values))
        values, indices = where(wins, earlier, values), where(wins, earlier_indices, indices)
        offset *= 2
    return values, indices


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
