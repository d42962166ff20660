"""Reductions, scans, searching, sorting, sets."""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple

import numpy as np

import metaop
from metaop.array_api.types import promoted
from metaop.tensor.core import Tensor
from metaop.unified_graph.dtype import DType

Axes = int | tuple[int, ...] | None


def _axes(x: Tensor, axis: Axes) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def _one_by_one(function: Any, x: Tensor, axis: Axes, keepdims: builtins.bool) -> Any:
    """A reduction that takes one axis at a time, along several."""
    for one in sorted((one % x.ndim for one in _axes(x, axis)), reverse=True):
        x = function(x, one, keepdims)
    return x


def sum(
    x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: builtins.bool = False
) -> Tensor:
    """The sum along axes, all when None."""
    if not (axes := _axes(x, axis)):
        kind = dtype or (metaop.sum(x).dtype)
        return metaop.clone(x).to(kind)  # type: ignore[attr-defined]
    return metaop.sum(x, axes, keepdims, dtype=dtype)


def prod(
    x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: builtins.bool = False
) -> Tensor:
    """The product along axes, all when None."""
    kind = dtype or metaop.prod(x).dtype
    return _one_by_one(metaop.prod, x.to(kind), axis, keepdims)  # type: ignore[attr-defined]


def max(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """The largest element along axes, all when None."""
    return metaop.amax(x, _axes(x, axis), keepdims) if x.ndim else metaop.clone(x)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """The smallest element along axes, all when None."""
    return metaop.amin(x, _axes(x, axis), keepdims) if x.ndim else metaop.clone(x)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """The mean along axes, all when None."""
    axes = _axes(x, axis)
    return metaop.mean(x, axes, keepdims) if axes else metaop.clone(x)


def var(
    x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The mean squared distance from the mean; `correction` is taken off the count."""
    axes = _axes(x, axis)
    if not axes:
        return metaop.zeros_like(x)
    apart = x - metaop.mean(x, axes, True)  # type: ignore[operator]
    count = 1
    for one in axes:
        count *= x.shape[one]
    size = metaop.abs(apart)
    total = metaop.sum(size * size, axes, keepdims)  # type: ignore[operator]
    return total / builtins.max(count - correction, 0)  # type: ignore[operator]


def std(
    x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The root of the variance."""
    return metaop.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def all(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether every element along axes is not zero."""
    return _one_by_one(metaop.all, x != 0, axis, keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether some element along axes is not zero."""
    return _one_by_one(metaop.any, x != 0, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """How many elements along axes are not zero."""
    return sum(x != 0, axis=axis, dtype=metaop.int64, keepdims=keepdims)  # type: ignore


def _scanned(
    function: Any, x: Tensor, axis: int | None, dtype: DType | None, first: int | None
) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ValueError("axis must be specified when the array has not one axis")
        axis = 0
    found = function(x, axis, dtype=dtype)
    if first is None:
        return found
    shape = list(found.shape)
    shape[axis] = 1
    initial = metaop.full(tuple(shape), first, dtype=found.dtype, device=found.device)
    return metaop.cat([initial, found], axis)


def cumulative_sum(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """The sums of the elements up to each one."""
    return _scanned(metaop.cumsum, x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """The products of the elements up to each one."""
    return _scanned(metaop.cumprod, x, axis, dtype, 1 if include_initial else None)


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Neighbours subtracted `n` times along an axis."""
    return metaop.diff(x, n, axis, prepend, append)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The index of the first largest element."""
    return _located(metaop.argmax, x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The index of the first smallest element."""
    return _located(metaop.argmin, x, axis, keepdims)


def _located(function: Any, x: Tensor, axis: int | None, keepdims: builtins.bool) -> Tensor:
    if axis is not None:
        return function(x, axis, keepdims)
    found = function(x)
    return metaop.reshape(found, (1,) * x.ndim) if keepdims else found


def searchsorted(
    x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Where elements would stand in a sorted vector."""
    if sorter is not None:
        x1 = metaop.index_select(x1, 0, sorter)
    wanted = x2 if isinstance(x2, Tensor) else metaop.tensor(x2, dtype=x1.dtype)
    first, second = promoted(x1, wanted)
    return metaop.searchsorted(first, second, right=side == "right")


def sort(
    x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> Tensor:
    """The elements in order along an axis."""
    return metaop.sort(x, axis, descending, stable).values


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> Tensor:
    """The indices that sort along an axis."""
    return metaop.argsort(x, axis, descending, stable)


class UniqueAllResult(NamedTuple):
    """What `unique_all` gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    """What `unique_counts` gives."""

    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    """What `unique_inverse` gives."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAllResult:
    """The different elements in order, where each is first, the way back, and how many there are.

    Every NaN is an element of its own.
    """
    array = x.numpy(force=True)
    values, first, inverse, counts = np.unique(array, True, True, True, equal_nan=False)

    def tensor(part: np.ndarray) -> Tensor:
        return metaop.from_numpy(np.ascontiguousarray(part)).to(x.device)  # type: ignore

    shaped = inverse.reshape(array.shape)
    return UniqueAllResult(tensor(values), tensor(first), tensor(shaped), tensor(counts))


def unique_counts(x: Tensor, /) -> UniqueCountsResult:
    """The different elements in order, and how many there are of each."""
    found = unique_all(x)
    return UniqueCountsResult(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverseResult:
    """The different elements in order, and which of them stands where."""
    found = unique_all(x)
    return UniqueInverseResult(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The different elements in order."""
    return unique_all(x).values
