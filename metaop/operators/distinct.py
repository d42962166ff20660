"""Runs of equal elements, and the order that brings equal elements side by side."""

from __future__ import annotations

from metaop.elementwise.meta_op import cast, where
from metaop.operators.expressions import index_along
from metaop.operators.ordering import order_along
from metaop.operators.places import count_up_to, first_places
from metaop.operators.searching import searchsorted
from metaop.reduce.meta_op import reduce_axes, reduce_with_map
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_expr import lookup
from metaop.unified_graph.node import Node


def _starts(source: Node, dim: int) -> Node:
    """Whether an element differs from its predecessor along `dim`; the first and NaN always do."""
    length = source.shape[dim] - 1
    later = views.slice_dimension(source, dim, 1, length)
    earlier = views.slice_dimension(source, dim, 0, length)
    before, after = [0] * source.ndim, [0] * source.ndim
    before[dim] = 1
    return views.pad(~later.equals(earlier), before, after, True)


def _scattered(values: Node, places: Node) -> Node:
    """Rows of values, each element moved to its position in the row."""
    axes = IndexMap.axes(values.shape)
    index_map = IndexMap(values.shape, (*axes[:-1], lookup(1, axes, values.shape[-1])))
    return reduce_with_map("add", values, index_map, values.shape, (places,))


def _row_ranks(rows: Node) -> Node:
    """The ranks (rows,) of rows in lexicographic order; equal rows have equal ranks.

    Columns become ranks, and pairs of neighbouring columns are merged until one is left.
    """
    count, width = rows.shape
    columns = views.permute(rows, (1, 0))
    while True:
        order = order_along(columns, 1)
        sorted_columns = views.gather(columns, 1, order)
        ranks = cast(count_up_to(_starts(sorted_columns, 1), 1), dtypes.int64) - 1
        columns = _scattered(ranks, order)
        if width == 1:
            return views.reshape(columns, (count,))
        pairs = -(-width // 2)
        columns = views.pad(columns, (0, 0), (2 * pairs - width, 0))
        halves = views.reshape(columns, (pairs, 2, count))
        columns = views.select(halves, 1, 0) * count + views.select(halves, 1, 1)
        width = pairs


@composite(differentiable=False)
def runs(rows: Node, in_order: bool) -> tuple[Node, ...]:
    """The runs of equal rows of a matrix, or of equal elements of a vector.

    Returns the number of runs up to each row, the number of all runs and, with `in_order`, the
    sorting order of the rows; without it, only adjacent rows are compared.
    """
    order = None
    if in_order:
        keys = rows if rows.ndim == 1 else _row_ranks(rows)
        order = order_along(keys, 0)
        starts = _starts(views.take(keys, 0, order), 0)
    else:
        starts = _starts(rows, 0)
        if rows.ndim > 1:
            starts = reduce_axes("or", starts, (1,))
    counts = count_up_to(starts)
    total = cast(views.select(counts, 0, counts.size - 1), dtypes.int64)
    return (counts, total) if order is None else (counts, total, order)


@composite(differentiable=False)
def run_starts(counts: Node, order: Node | None, count: int) -> tuple[Node, Node]:
    """The first row of each run, and the number of its rows."""
    starts = first_places(counts, count, 0)
    last = views.pad(starts, (-1,), (1,), counts.size)
    return (starts if order is None else views.take(order, 0, starts)), last - starts


@composite(differentiable=False)
def run_numbers(counts: Node, order: Node | None) -> Node:
    """The number of the run that each row belongs to."""
    numbers = cast(counts, dtypes.int64) - 1
    return numbers if order is None else _scattered(numbers, order)


@composite(differentiable=False)
def mode(source: Node, dim: int) -> Node:
    """The last index along `dim` (kept) of the smallest of the most frequent elements."""
    order = order_along(source, dim)
    counts = count_up_to(_starts(views.gather(source, dim, order), dim), dim)
    axes = list(IndexMap.axes(source.shape))
    axes[dim] = lookup(1, IndexMap.axes(source.shape), source.shape[dim])
    one = cast(views.broadcast_to(index_along((1,), 0) + 1, source.shape), counts.dtype)
    sizes = reduce_with_map("add", one, IndexMap(source.shape, axes), source.shape, (counts - 1,))
    largest = views.broadcast_to(reduce_axes("max", sizes, (dim,), True), source.shape)
    numbers = cast(index_along(source.shape, dim), counts.dtype)
    highest = counts.dtype.highest
    found = reduce_axes("min", where(sizes.equals(largest), numbers, highest), (dim,), True)
    is_before = counts <= views.broadcast_to(found + 1, source.shape)
    last = reduce_axes("add", cast(is_before, dtypes.int64), (dim,), True) - 1
    return views.gather(order, dim, last)


@composite(differentiable=False)
def is_among(source: Node, others: Node, invert: bool) -> Node:
    """Whether each element is one of the vector `others`."""
    ordered = views.take(others, 0, order_along(others, 0))
    place = searchsorted(ordered, source, False)
    inside = place < others.size
    nearest = views.take(ordered, 0, where(inside, place, 0))
    found = inside & source.equals(nearest)
    return ~found if invert else found
