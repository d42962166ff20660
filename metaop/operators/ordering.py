"""Sorting: keys in the order that is asked for, whose order is a reindex of the values."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply, cast, where
from metaop.operators.expressions import index_along
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex import views
from metaop.reindex.order import order
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node, constant

_HALF = 32
# Of rows so short it is less work to compare all elements with each other than to count digits.
_SHORT = 64


def sort_keys(source: Node, descending: bool = False) -> Node:
    """Integers in the order of the elements; NaN is the greatest, and 0 is -0."""
    keys = source
    if source.dtype.kind == "bool":
        keys = cast(source, dtypes.uint8)
    elif source.dtype.kind == "float":
        keys = apply("sort_key", source)
        if source.dtype is dtypes.bfloat16:
            keys = cast(apply("right_shift", keys, 16), dtypes.int16)
    return apply("bitwise_not", keys) if descending else keys


def order_along(source: Node, dim: int, descending: bool = False) -> Node:
    """The places of the elements in order along `dim`, int64; equal ones stay in order."""
    if not source.ndim or not source.size:
        return constant(0, dtypes.int64, source.shape)
    axes = [k for k in range(source.ndim) if k != dim]
    rows = views.permute(source, [*axes, dim])
    found = _order_of(sort_keys(rows, descending))
    back = list(range(source.ndim - 1))
    back.insert(dim, source.ndim - 1)
    return views.permute(found, back)


def _order_of(keys: Node) -> Node:
    """The order of rows of integers; those of 64 bits are ordered by their halves."""
    if keys.shape[-1] <= _SHORT:
        return _order_by_ranks(keys)
    if keys.dtype is not dtypes.int64:
        return order(keys)
    # What counts from the least integer on keeps its order as the lower half of a word.
    low = apply("bitwise_xor", keys, constant(1 << (_HALF - 1), dtypes.int64))
    first = order(cast(low, dtypes.int32))
    high = cast(apply("right_shift", keys, _HALF), dtypes.int32)
    last = keys.ndim - 1
    second = order(views.gather(high, last, first))
    return views.gather(first, last, second)


def _order_by_ranks(keys: Node) -> Node:
    """The order of short rows: an element stands behind as many as are before it."""
    last, length = keys.ndim, keys.shape[-1]
    square = (*keys.shape, length)
    # Short numbers, of which a vector holds many.
    one, other = (cast(index_along(square, k), dtypes.int32) for k in (last - 1, last))
    here = views.broadcast_to(views.unsqueeze(keys, last), square)
    there = views.broadcast_to(views.unsqueeze(keys, last - 1), square)
    is_before = (there < here) | (there.equals(here) & (other < one))
    ranks = reduce_axes("add", cast(is_before, dtypes.int32), (last,))
    stands = views.broadcast_to(views.unsqueeze(ranks, last - 1), square).equals(one)
    return cast(reduce_axes("add", where(stands, other, 0), (last,)), dtypes.int64)


@composite
def sort(source: Node, dim: int, descending: bool) -> tuple[Node, Node]:
    """The elements in order along `dim`, and where each one came from."""
    places = order_along(source, dim, descending)
    return (views.gather(source, dim, places) if source.ndim else source), places
