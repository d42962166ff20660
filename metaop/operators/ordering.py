"""Sorting: orders integer keys, and reindexes the values by this order."""

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
# In rows up to this length, comparing all pairs of elements is less work than a radix sort.
_SHORT = 64
# Up to _FEW elements are selected one after the other, within blocks of one of these sizes.
_FEW, _LARGE_BLOCK, _SMALL_BLOCK = 16, 64, 8
# Indices into shorter rows fit into 32 bits.
_MOST_PLACES = 1 << 31


def sort_keys(source: Node, descending: bool = False) -> Node:
    """Integers in the order of the elements; NaN is the largest, and 0 equals -0."""
    keys = source
    if source.dtype.kind == "bool":
        keys = cast(source, dtypes.uint8)
    elif source.dtype.kind == "float":
        keys = apply("sort_key", source)
        if source.dtype is dtypes.bfloat16:
            keys = cast(apply("right_shift", keys, 16), dtypes.int16)
    return apply("bitwise_not", keys) if descending else keys


def order_along(source: Node, dim: int, descending: bool = False) -> Node:
    """The indices that sort the elements along `dim`, int64; the order is stable."""
    if not source.ndim or not source.size:
        return constant(0, dtypes.int64, source.shape)
    rows = _with_last(source, dim)
    return _with_place(_order_of(sort_keys(rows, descending)), dim)


def _with_last(source: Node, dim: int) -> Node:
    """The tensor with `dim` moved to the end."""
    return views.permute(source, [*(k for k in range(source.ndim) if k != dim), dim])


def _with_place(rows: Node, dim: int) -> Node:
    """The tensor with its last dimension moved to `dim`."""
    back = list(range(rows.ndim - 1))
    back.insert(dim, rows.ndim - 1)
    return views.permute(rows, back)


def _order_of(keys: Node) -> Node:
    """The order of rows of integers; 64-bit ones are sorted by their halves."""
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
    """The order of short rows: the rank of an element is the number of elements before it."""
    last, length = keys.ndim, keys.shape[-1]
    square = (*keys.shape, length)
    # 32-bit numbers, because a SIMD register holds more of them.
    one, other = (cast(index_along(square, k), dtypes.int32) for k in (last - 1, last))
    here = views.broadcast_to(views.unsqueeze(keys, last), square)
    there = views.broadcast_to(views.unsqueeze(keys, last - 1), square)
    is_before = (there < here) | (there.equals(here) & (other < one))
    ranks = reduce_axes("add", cast(is_before, dtypes.int32), (last,))
    stands = views.broadcast_to(views.unsqueeze(ranks, last - 1), square).equals(one)
    return cast(reduce_axes("add", where(stands, other, 0), (last,)), dtypes.int64)


@composite
def sort(source: Node, dim: int, descending: bool) -> tuple[Node, Node]:
    """The sorted elements along `dim`, and their indices."""
    places = order_along(source, dim, descending)
    return (views.gather(source, dim, places) if source.ndim else source), places


@composite
def topk(source: Node, count: int, dim: int, largest: bool) -> tuple[Node, Node]:
    """The first `count` elements in order along `dim`, and their indices."""
    if not source.ndim:
        return source, constant(0, dtypes.int64)
    places = first_along(source, count, dim, largest)
    return views.gather(source, dim, places), places


def first_along(source: Node, count: int, dim: int, largest: bool) -> Node:
    """The indices of the first elements in order along `dim`."""
    if not count or not source.size:
        shape = (*source.shape[:dim], count, *source.shape[dim + 1 :])
        return constant(0, dtypes.int64, shape)
    rows = _with_last(source, dim)
    return _with_place(_first_of(sort_keys(rows, largest), count), dim)


def _first_of(keys: Node, count: int) -> Node:
    """The indices of the smallest keys of each row, in order."""
    last, length = keys.ndim - 1, keys.shape[-1]
    few, short = count <= _FEW, length <= _SHORT or length >= _MOST_PLACES
    block = _LARGE_BLOCK if few else _SMALL_BLOCK
    if short or (not few and length < 3 * block * count):
        return views.slice_dimension(_order_of(keys), last, 0, count)
    if length < 2 * block * count:
        return _least(keys, index_along(keys.shape, last), count)
    # The `count` smallest keys are within the `count` blocks with the smallest minima (the first of
    # equal ones).
    outer, blocks = keys.shape[:-1], -(-length // block)
    padding = [0] * last + [blocks * block - length]
    padded = views.pad(keys, [0] * keys.ndim, padding, keys.dtype.highest)
    parts = views.reshape(padded, (*outer, blocks, block))
    chosen = _first_of(reduce_axes("min", parts, (last + 1,)), count)
    if not few:
        # Equal elements stay in order if their blocks do.
        chosen = views.gather(chosen, last, _order_of(cast(chosen, dtypes.int32)))
    shape = (*outer, count, block)
    first = views.broadcast_to(views.unsqueeze(chosen * block, last + 1), shape)
    candidates = views.reshape(first + index_along(shape, last + 1), (*outer, count * block))
    found = views.gather(padded, last, candidates)
    if few:
        return _least(found, candidates, count)
    return views.gather(candidates, last, _first_of(found, count))


def _least(keys: Node, places: Node, count: int) -> Node:
    """The indices of the smallest keys, found one by one; of equal keys, the first ones."""
    dims, places = (keys.ndim - 1,), cast(places, dtypes.int32)
    greatest, behind = keys.dtype.highest, places.dtype.highest
    is_left: Node | None = None
    found = []
    for _ in range(count):
        left = keys if is_left is None else where(is_left, keys, greatest)
        key = views.broadcast_to(reduce_axes("min", left, dims, True), keys.shape)
        is_equal = keys.equals(key)
        is_least = is_equal if is_left is None else is_equal & is_left
        place = reduce_axes("min", where(is_least, places, behind), dims, True)
        found.append(place)
        taken = views.broadcast_to(place, keys.shape)
        is_left = (keys > key) | (is_equal & (places > taken))
    return cast(views.concatenate(found, dims[0]), dtypes.int64)


@composite
def ranked(source: Node, dim: int, rank: int) -> tuple[Node, Node]:
    """The element of the given rank along `dim` (kept), and its index."""
    shape = (*source.shape[:dim], 1, *source.shape[dim + 1 :])
    return _standing_at(source, constant(rank, dtypes.int64, shape), dim)


def _standing_at(source: Node, rank: Node, dim: int) -> tuple[Node, Node]:
    """The elements of given ranks along `dim` (kept), and their indices.

    In long rows, the index is that of the first of equal elements.
    """
    if source.shape[dim] <= _SHORT:
        places = views.gather(order_along(source, dim), dim, rank)
        return views.gather(source, dim, places), places
    keys = _with_last(sort_keys(source), dim)
    found = _key_at(keys, _with_last(rank, dim))
    last, numbers = keys.ndim - 1, index_along(keys.shape, keys.ndim - 1)
    is_found = keys.equals(views.broadcast_to(found, keys.shape))
    candidates = where(is_found, numbers, dtypes.int64.highest)
    places = _with_place(reduce_axes("min", candidates, (last,), True), dim)
    return views.gather(source, dim, places), places


def _key_at(keys: Node, rank: Node) -> Node:
    """The key of a given rank in each row, determined bit by bit from the highest.

    It is the largest number such that at most `rank` keys are smaller.
    """
    dtype, dims = keys.dtype, (keys.ndim - 1,)
    bits = 8 * dtype.itemsize
    counts = dtypes.int32 if keys.shape[-1] < _MOST_PLACES else dtypes.int64
    rank = cast(rank, counts)
    found = constant(dtype.lowest, dtype, rank.shape)
    for bit in reversed(range(bits)):
        # For signed keys, the first step leads from the lowest number to 0.
        is_sign = dtype.signed and bit == bits - 1
        tried = constant(0, dtype, rank.shape) if is_sign else found + (1 << bit)
        is_before = keys < views.broadcast_to(tried, keys.shape)
        before = reduce_axes("add", cast(is_before, counts), dims, True)
        found = where(before <= rank, tried, found)
    return found


@composite
def median(source: Node, dim: int, skip: bool) -> tuple[Node, Node]:
    """The lower median along `dim` (kept), and its index; NaN is propagated, or skipped."""
    shape = (*source.shape[:dim], 1, *source.shape[dim + 1 :])
    rank = constant((source.shape[dim] - 1) // 2, dtypes.int64, shape)
    if source.dtype.kind == "float":
        missing, present = _counts(source, dim)
        if skip:
            rank = apply("floor_divide", apply("maximum", present, 1) - 1, 2)
        else:
            # The first NaN follows all numbers.
            rank = where(missing > 0, present, rank)
    return _standing_at(source, rank, dim)


def _counts(source: Node, dim: int) -> tuple[Node, Node]:
    """The number of NaN along `dim` (kept), and the number of other elements."""
    missing = reduce_axes("add", cast(apply("isnan", source), dtypes.int64), (dim,), True)
    return missing, source.shape[dim] - missing


@composite
def median_of_all(source: Node, skip: bool) -> Node:
    """The lower median of a vector; all elements equal to it share its gradient."""
    chosen, _ = median(source, 0, skip)
    if source.dtype.kind != "float":
        return views.reshape(chosen, ())
    whole = views.broadcast_to(chosen, source.shape)
    is_equal = source.equals(whole) | (apply("isnan", source) & apply("isnan", whole))
    return reduce_axes("amax", where(is_equal, source, source.dtype.lowest), (0,))


@composite
def quantile(
    source: Node, part: Node, dim: int, interpolation: str, skip: bool
) -> tuple[Node, Node, Node]:
    """The two elements around a quantile along `dim` (kept), and the weight of the second."""
    missing, present = _counts(source, dim)
    count = present if skip else constant(source.shape[dim], dtypes.int64, present.shape)
    # In the type of the elements: "nearest" asks for the same halves as in PyTorch.
    steps = cast(apply("maximum", count - 1, 0), source.dtype)
    place = steps * cast(apply("quantile_in_unit", part), source.dtype)
    if not skip:
        last = constant(source.shape[dim] - 1, dtypes.int64, place.shape)
        place = where(missing > 0, cast(last, place.dtype), place)
    if interpolation == "nearest":
        place = apply("round", place)
    low = apply("ceil" if interpolation == "higher" else "floor", place)
    high = apply("floor" if interpolation == "lower" else "ceil", place)
    below, above = (_standing_at(source, cast(rank, dtypes.int64), dim)[0] for rank in (low, high))
    weight = place * 0 + 0.5 if interpolation == "midpoint" else place - low
    return below, above, weight
