"""Counts by value: scatters into bins."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply, cast, where
from metaop.operators.expressions import index_along
from metaop.reduce.meta_op import reduce_axes, reduce_with_map
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_expr import lookup
from metaop.unified_graph.node import Node, constant


@composite(differentiable=False)
def bincount(source: Node, weights: Node | None, extent: int) -> Node:
    """The number of elements with each value 0 … extent - 1, or the sum of their weights."""
    if weights is None:
        amounts = constant(1, dtypes.int64, source.shape)
    else:
        amounts = weights if weights.dtype is dtypes.float32 else cast(weights, dtypes.float64)
    index = lookup(1, IndexMap.axes(source.shape), extent)
    return reduce_with_map("add", amounts, IndexMap(source.shape, [index]), (extent,), (source,))


@composite(differentiable=False)
def extremes(source: Node) -> tuple[Node, Node]:
    """The smallest and the largest element of a vector."""
    return reduce_axes("min", source, (0,)), reduce_axes("max", source, (0,))


def _limits(source: Node, low: Node | None, high: Node | None, around: float) -> tuple[Node, Node]:
    """Finite limits: those given, or the extremes; if they are equal, both moved by `around`."""
    if low is None or high is None:
        low, high = reduce_axes("min", source, (0,)), reduce_axes("max", source, (0,))
    low, high = cast(low, source.dtype), cast(high, source.dtype)
    is_point = low.equals(high)
    low, high = where(is_point, low - around, low), where(is_point, high + around, high)
    is_range = apply("isfinite", low) & apply("isfinite", high) & (low < high)
    return where(apply("has_range", is_range), low, high), high


@composite(differentiable=False)
def bin_edges(source: Node, low: Node | None, high: Node | None, bins: int) -> Node:
    """The edges (bins + 1,) of equal intervals; the default limits are the extremes of `source`."""
    low, high = _limits(source, low, high, 0.5)
    number = index_along((bins + 1,), 0)
    low, high = (views.broadcast_to(one, number.shape) for one in (low, high))
    step = (high - low) / bins
    # From both ends, as PyTorch's linspace.
    lower, upper = (cast(one, source.dtype) * step for one in (number, bins - number))
    return where(number < (bins + 1) // 2, low + lower, high - upper)


@composite(differentiable=False)
def histc(source: Node, low: Node | None, high: Node | None, bins: int) -> Node:
    """The number of elements of a vector in each of `bins` equal intervals from `low` to `high`.

    The default limits are the extremes.
    """
    low, high = _limits(source, low, high, 1.0)
    low, high = (views.broadcast_to(one, source.shape) for one in (low, high))
    inside = (source >= low) & (source <= high)
    # Like PyTorch, compute the bins arithmetically rather than by comparison with the edges.
    place = (where(inside, source, low) - low) * bins / (high - low)
    place = where(inside, apply("minimum", cast(place, dtypes.int64), bins - 1), bins)
    counts = bincount(place, None, bins + 1)
    return cast(views.slice_dimension(counts, 0, 0, bins), source.dtype)
