"""Operators on host arrays, for shape computations; tensors have the same operators elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaop.onnx.table import on_host
from metaop.onnx.values import Host, integers

_REDUCERS = {
    "ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min,
}  # fmt: skip


def _enter(name: str, reducer: object) -> None:
    def reduce(
        x: Host,
        axes: Host | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> np.ndarray:
        dims = None if axes is None or np.size(axes) == 0 else integers(axes)
        if dims is None and noop_with_empty_axes:
            return x
        found = reducer(x, axis=dims, keepdims=bool(keepdims))  # type: ignore[operator]
        return np.asarray(found).astype(x.dtype)

    on_host(name)(reduce)


for _name, _reducer in _REDUCERS.items():
    _enter(_name, _reducer)


@on_host("CumSum")
def cumulative_sum(x: Host, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> np.ndarray:
    """Sums of all elements up to each."""
    dim = integers(axis)[0]
    turned = np.flip(x, dim) if reverse else x
    found = np.cumsum(turned, dim, dtype=x.dtype)
    found = found - turned if exclusive else found
    return np.flip(found, dim) if reverse else found


@on_host("Gather")
def gather(x: Host, indices: Host, *, axis: int = 0) -> np.ndarray:
    """Slices of one dimension, in the shape of the indices."""
    return np.take(x, np.asarray(indices).astype(np.int64), axis)


@on_host("Compress")
def compress(x: Host, condition: Host, *, axis: int | None = None) -> np.ndarray:
    """The slices for which a condition holds."""
    return np.compress(condition, x, axis)


@on_host("NonZero")
def non_zero(x: Host) -> np.ndarray:
    """The positions of what is not 0, one column for each."""
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@on_host("ScatterND")
def scatter_places(
    data: Host, indices: Host, updates: Host, *, reduction: str = "none"
) -> np.ndarray:
    """Values put at, or combined with, those at some places."""
    found = np.array(data)
    places = tuple(np.moveaxis(indices, -1, 0))
    functions = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    if reduction == "none":
        found[places] = updates
    else:
        functions[reduction].at(found, places, updates)
    return found


@on_host("Pad")
def pad(
    x: Host,
    pads: Host,
    value: Host | None = None,
    axes: Host | None = None,
    *,
    mode: str = "constant",
) -> np.ndarray:
    """Widths before and after each dimension."""
    widths = integers(pads)
    dims: Sequence[int] = range(x.ndim) if axes is None else [a % x.ndim for a in integers(axes)]
    around = [(0, 0)] * x.ndim
    for k, dim in enumerate(dims):
        around[dim] = (widths[k], widths[k + len(dims)])
    if mode != "constant":
        return np.pad(x, around, mode=mode)  # type: ignore[call-overload]
    fill = 0 if value is None else np.asarray(value).reshape(-1)[0]
    return np.pad(x, around, constant_values=fill)


@on_host("TopK")
def top_k(
    x: Host, k: Host, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """The largest or smallest elements, and where they are; of equal ones the first."""
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    order = np.argsort(-ranks if largest else ranks, axis, kind="stable")
    places = np.take(order, range(integers(k)[0]), axis)
    return np.take_along_axis(x, places, axis), places.astype(np.int64)
