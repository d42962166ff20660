"""Reductions of neighbouring slices, where the lengths of the segments are values of a tensor."""

from __future__ import annotations

import math

from metaop.errors import ArgumentError, DimensionError, DTypeError, UnsupportedError
from metaop.operators import segments as operators
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.counting import searchsorted
from metaop.tensor.functions.joining import cat
from metaop.tensor.functions.ranges import arange
from metaop.tensor.functions.scans import cumsum
from metaop.tensor.functions.selection import where
from metaop.tensor.surface import public
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import record

# The combination of each reduction, and what an empty segment gives.
_REDUCTIONS = {
    "sum": ("add", 0.0),
    "mean": ("mean", math.nan),
    "prod": ("mul", 1.0),
    "max": ("amax", -math.inf),
    "min": ("amin", math.inf),
}
_SYNONYMS = {"amax": "max", "amin": "min"}


@public()
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Reduces segments of `axis`: the first `lengths[0]` elements, the next `lengths[1]`, ….

    `reduce` is "sum", "mean", "prod", "max" or "min". `axis` is the last dimension of `lengths`,
    whose other sizes are those of `data`; its size becomes the extent of the result. `offsets`
    has where segments begin instead, and in the end where the last one ends. `initial` takes part
    in each segment; without it, empty segments give 0, 1, NaN or an infinity.

    Lengths are read, and raise ArgumentError unless they add up to the extent of `axis`; not if
    `unsafe`.

    >>> lengths = metaop.tensor([2, 1])
    >>> metaop.segment_reduce(metaop.tensor([1.0, 2.0, 5.0]), "sum", lengths=lengths)
    tensor([3., 5.])
    """
    reduce = _SYNONYMS.get(reduce, reduce)
    if reduce not in _REDUCTIONS:
        raise ArgumentError(
            f"segment_reduce(): reduce must be sum, prod, mean, max or min, got {reduce!r}"
        )
    if not data.dtype.is_floating_point:
        raise DTypeError(
            f"segment_reduce() is not implemented for {data.dtype.name}",
            fix="convert data with .float()",
        )
    axis = wrap_dim(axis, data.ndim)
    borders = _borders(data, lengths, indices, offsets, axis, unsafe)
    found, sizes = _reduced(data, _REDUCTIONS[reduce][0], borders, axis)
    empty = sizes == 0
    if initial is None:
        return where(empty, _REDUCTIONS[reduce][1], found)
    # An empty segment has the initial value; as its own maximum or minimum it would be 0.
    if reduce == "prod":
        return where(empty, initial, found * initial)
    if reduce == "sum":
        return found + initial
    if reduce == "mean":  # joins the sum, but is not counted
        return found + initial / sizes.clamp(min=1).to(found.dtype)
    # Elements that equal the initial value keep their gradient, and NaN stays.
    loses = found < initial if reduce == "max" else found > initial
    return where(empty | loses, initial, found)


def _borders(
    data: Tensor,
    lengths: Tensor | None,
    indices: Tensor | None,
    offsets: Tensor | None,
    axis: int,
    unsafe: bool,
) -> Tensor:
    """Where segments begin, and where the last one ends, in the last dimension."""
    if indices is not None:
        raise UnsupportedError(
            "segment_reduce(): indices based reduction is not supported",
            fix="pass lengths or offsets, or use scatter_reduce",
        )
    given = offsets if lengths is None else lengths
    if given is None:
        raise ArgumentError("segment_reduce(): Either lengths or offsets must be defined")
    if given.ndim != axis + 1 or given.shape[:axis] != data.shape[:axis]:
        raise DimensionError(
            f"segment_reduce(): axis {axis} must be the last dimension of lengths or offsets, and "
            f"their other sizes those of data {list(data.shape)}, got {list(given.shape)}"
        )
    if given.dtype.kind != "int":
        raise DTypeError(
            f"segment_reduce(): lengths and offsets are integers, got {given.dtype.name}",
            fix="convert them with .long()",
        )
    given = given.to(dtypes.int64)
    if lengths is None:
        return given
    if not unsafe and not bool(((given >= 0).all(-1) & (given.sum(-1) == data.shape[axis])).all()):
        raise ArgumentError(
            f"segment_reduce(): Expected lengths that are not negative and add up to the extent "
            f"{data.shape[axis]} of axis {axis}",
            fix="pass the length of every segment, or unsafe=True",
        )
    return cat([given.new_zeros((*given.shape[:-1], 1)), cumsum(given, -1)], -1)


def _reduced(data: Tensor, combine: str, borders: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The reductions of all segments, 0 for empty ones, and their sizes with ones at the end."""
    outer, inner = data.shape[:axis], data.shape[axis + 1 :]
    extent, rows = data.shape[axis], math.prod(outer)
    borders = borders.reshape(rows, -1).contiguous()
    places = arange(extent, device=data.device).expand(rows, extent).contiguous()
    # What lies before the first segment and after the last goes to two segments more.
    count = borders.shape[1] + 1
    numbers = searchsorted(borders, places, right=True)
    numbers = (numbers + arange(rows, device=data.device).unsqueeze(1) * count).reshape(-1)
    edge = borders.new_zeros((rows, 1))
    within = cat([edge, borders.clamp(0, extent), edge + extent], 1)
    sizes = within.diff().reshape(-1)
    starts = cat([sizes.new_zeros((1,)), cumsum(sizes, 0)])
    values = data.reshape(rows * extent, *inner)
    calls = (values.call, numbers.call, sizes.call, starts.call)
    found = wrap(record(operators.segment_reduce, calls, (combine,)))
    found = found.reshape(rows, count, *inner)[:, 1:-1]
    sizes = sizes.reshape(rows, count)[:, 1:-1]
    return (
        found.reshape(*outer, count - 2, *inner),
        sizes.reshape(*outer, count - 2, *(1 for _ in inner)),
    )
