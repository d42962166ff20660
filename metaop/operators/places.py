"""Indices of nonzero elements: running counts, and a scatter of the elements' indices."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply, cast, where
from metaop.operators.expressions import index_along
from metaop.operators.scan import cumulative
from metaop.reduce.meta_op import reduce_with_map
from metaop.reduce.triangle import shifted
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.index_expr import lookup
from metaop.unified_graph.node import Node, Shape

# Up to this extent, elements are counted in 32 bits, because a SIMD register holds more of them.
_MOST_NARROW = 1 << 31


def number_type(extent: int) -> DType:
    """The type in which up to `extent` elements are counted."""
    return dtypes.int32 if extent < _MOST_NARROW else dtypes.int64


def count_up_to(flags: Node, dim: int = 0) -> Node:
    """The number of true elements up to and including each one along `dim`."""
    dtype = number_type(flags.shape[dim])
    return cumulative(cast(flags, dtype), "add", dim, dtype)


def first_places(counts: Node, count: int, absent: int) -> Node:
    """The indices of the first `count` true elements of each row, int64, or `absent`.

    `counts` comes from `count_up_to` along the last dimension: the first element with a given count
    is the true one.
    """
    *rows, length = counts.shape
    # One more slot at each end: for elements before the first true one, and after the last wanted.
    place = apply("minimum", counts, count + 1)
    axes = IndexMap.axes(counts.shape)
    to_count = IndexMap(counts.shape, (*axes[:-1], lookup(1, axes, count + 2)))
    numbers = cast(index_along(counts.shape, len(rows)), counts.dtype)
    found = reduce_with_map("min", numbers, to_count, (*rows, count + 2), (place,))
    found = views.slice_dimension(found, len(rows), 1, count)
    return cast(where(found < length, cast(found, dtypes.int64), absent), dtypes.int64)


@composite(differentiable=False)
def counted(source: Node) -> tuple[Node, Node]:
    """The number of nonzero elements up to each one in row-major order, and the total number."""
    flags = ~views.reshape(source, (source.size,)).equals(0)
    counts = count_up_to(flags)
    return counts, cast(views.select(counts, 0, source.size - 1), dtypes.int64)


@composite(differentiable=False)
def places(counts: Node, count: int, absent: int) -> Node:
    """`first_places` as an operator."""
    return first_places(counts, count, absent)


@composite(differentiable=False)
def coordinates(place: Node, shape: Shape, absent: int) -> tuple[Node, ...]:
    """The coordinates in `shape` of row-major positions, `absent` for negative ones."""
    size = 1
    for extent in shape:
        size *= extent
    # Narrow integers are divided faster.
    rest = cast(place, number_type(size))
    found = []
    for extent in reversed(shape[1:]):
        found.append(apply("remainder", rest, extent))
        rest = apply("floor_divide", rest, extent)
    found.append(rest)
    is_place = place >= 0
    return tuple(where(is_place, cast(one, dtypes.int64), absent) for one in reversed(found))


@composite
def masked_scatter(mask: Node, values: Node, source: Node) -> Node:
    """`source` with the elements of the vector `values`, in order, where the mask is true."""
    flags = views.reshape(mask, (mask.size,))
    numbers = shifted(cast(count_up_to(flags), dtypes.int64), 0, 1, 0)
    is_chosen = flags & apply("has_enough_values", ~flags | (numbers < values.size))
    if not values.size:
        return where(views.reshape(is_chosen, source.shape), 0, source)
    chosen = views.take(values, 0, where(is_chosen, numbers, 0))
    return where(mask, cast(views.reshape(chosen, source.shape), source.dtype), source)
