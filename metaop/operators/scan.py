"""Cumulative operators, and picking elements by index along a dimension.

Sums are scanned in short blocks, whose totals are scanned in turn: the partial sums of a block are
reductions over a triangle. The others are log-step scans: n elements are log2(n) combinations of
the tensor with itself shifted (D. Hillis and G. Steele, "Data parallel algorithms", 1986). Both
combine partial results of few elements, so a cumulative sum is accurate.
"""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, cast, where
from metaop.operators.expressions import index_along
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex import views
from metaop.reindex.meta_op import reindex
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, Scalar

# Longer blocks need fewer levels, but more work where the triangle is computed literally.
_BLOCK = 64
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
        return cast(_blocked_sum(result, dim), dtype)
    offset = 1
    while source.ndim and offset < source.shape[dim]:
        earlier = shifted(result, dim, offset, _START[function])
        result = apply(function, earlier, result)
        offset *= 2
    return cast(result, dtype)


def _blocked_sum(source: Node, dim: int) -> Node:
    """The cumulative sum along `dim`, block by block."""
    length = source.shape[dim]
    if length <= _BLOCK:
        return _triangle(source, dim)
    count = -(-length // _BLOCK)
    after = [0] * source.ndim
    after[dim] = count * _BLOCK - length
    outer, inner = source.shape[:dim], source.shape[dim + 1 :]
    padded = views.pad(source, [0] * source.ndim, after, 0)
    blocks = _triangle(views.reshape(padded, (*outer, count, _BLOCK, *inner)), dim + 1)
    totals = views.slice_dimension(blocks, dim + 1, _BLOCK - 1, 1)
    scanned = _blocked_sum(views.reshape(totals, (*outer, count, *inner)), dim)
    before = views.reshape(shifted(scanned, dim, 1, 0), (*outer, count, 1, *inner))
    whole = views.reshape(before + blocks, (*outer, count * _BLOCK, *inner))
    return views.slice_dimension(whole, dim, 0, length)


def _triangle(source: Node, dim: int) -> Node:
    """Cumulative sums by definition: element `i` adds the elements `j <= i` of a short `dim`."""
    length = source.shape[dim]
    shape = (*source.shape[: dim + 1], length, *source.shape[dim + 1 :])
    axes = IndexMap.axes(shape)
    earlier = Within(axes[dim] - axes[dim + 1], length)
    index_map = IndexMap(shape, (*axes[:dim], *axes[dim + 1 :]), [earlier])
    return reduce_axes("add", reindex(source, index_map, 0), [dim + 1])


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
