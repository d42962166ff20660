"""Sorting, ranking and quantiles: the order is found on the host, gradients flow by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaop.errors import (
    ArgumentError,
    ArgumentTypeError,
    DimensionError,
    DTypeError,
    ShapeError,
)
from metaop.operators import ordering
from metaop.operators import scan as operators
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.casting import casts_on_cpu, in_float32
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.indexing import host_tensor
from metaop.tensor.joining import stack
from metaop.tensor.reductions import ValuesAndIndices
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import record, results


def host_values(input: Tensor) -> np.ndarray:
    """The values as an array that NumPy can order (16-bit floats as float32)."""
    array = input._array()
    narrow = input.dtype.kind == "float" and input.dtype.itemsize == 2
    return array.astype(np.float32) if narrow else array


def host_result(array: np.ndarray, like: Tensor) -> Tensor:
    """An integer or boolean result of the host as a tensor on the device of `like`."""
    dtype = dtypes.bool_ if array.dtype == np.bool_ else dtypes.int64
    return from_array(np.asarray(array, dtype.numpy, order="C"), dtype).to(device=like.device)


def pick(input: Tensor, index: np.ndarray, dim: int) -> ValuesAndIndices:
    """The elements of `input` at host indices along `dim`, with the indices."""
    indices = host_result(index, input)
    values = wrap(record(operators.pick, (input.call, indices.call), (dim,)))
    return ValuesAndIndices(values, indices)


def _order(values: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """Stable order along `dim`; NaN counts as the largest value."""
    if not descending:
        return np.argsort(values, axis=dim, kind="stable")
    backwards = np.flip(values, dim)
    order = np.flip(np.argsort(backwards, axis=dim, kind="stable"), dim)
    return values.shape[dim] - 1 - order


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> ValuesAndIndices:
    """The elements in order along `dim`, and where each one came from. Equal ones keep order."""
    attributes = (wrap_dim(dim, input.ndim), descending)
    values, indices = results(record(ordering.sort, (input.call,), attributes))
    return ValuesAndIndices(wrap(values), wrap(indices))


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that sort along `dim`."""
    return sort(input, dim, descending, stable).indices


def msort(input: Tensor) -> Tensor:
    """The elements in order along the first dimension."""
    return sort(input, 0).values


def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesAndIndices:
    """The `k` largest (or smallest) elements along `dim`, in order, and their indices."""
    position = wrap_dim(dim, input.ndim)
    extent = input.shape[position] if input.ndim else 1
    if not 0 <= k <= extent:
        raise ShapeError(
            f"selected index k out of range: k is {k}, dimension {dim} has {extent} elements",
            fix="pass a smaller k",
        )
    if input.ndim == 0:
        return pick(input, np.zeros((), np.int64), 0)
    order = _order(host_values(input), position, largest)
    return pick(input, np.take(order, range(k), position), position)


def _ranked(
    name: str, input: Tensor, rank: np.ndarray | int, dim: int, keepdim: bool
) -> ValuesAndIndices:
    """The element of each row that stands at position `rank` of its order."""
    position = wrap_dim(dim, input.ndim)
    if input.ndim == 0:
        return pick(input, np.zeros((), np.int64), 0)
    _require_elements(name, input, position)
    order = _order(host_values(input), position, False)
    shape = [1 if k == position else n for k, n in enumerate(order.shape)]
    ranks = np.broadcast_to(np.asarray(rank), shape)
    values, indices = pick(input, np.take_along_axis(order, ranks, position), position)
    if keepdim:
        return ValuesAndIndices(values, indices)
    return ValuesAndIndices(values.squeeze(position), indices.squeeze(position))


def _require_elements(name: str, input: Tensor, dim: int) -> None:
    if input.shape[dim] == 0:
        raise DimensionError(
            f"{name}(): Expected reduction dim {dim} to have non-zero size.",
            fix="check the shape first",
        )


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The `k`-th smallest element along `dim` (counted from 1) and its index."""
    extent = input.shape[wrap_dim(dim, input.ndim)] if input.ndim else 1
    if not 1 <= k <= extent:
        raise ShapeError(
            f"kthvalue(): selected number k out of range for dimension {dim}: {k} of {extent}",
            fix="1 <= k <= size",
        )
    return _ranked("kthvalue", input, k - 1, dim, keepdim)


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements, or along `dim` with its index; NaN wins."""
    return _median("median", input, dim, keepdim, False)


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of the elements that are not NaN."""
    return _median("nanmedian", input, dim, keepdim, True)


def _median(name: str, input: Tensor, dim: int | None, keepdim: bool, skip: bool) -> Any:
    if dim is None:
        if keepdim:
            raise ArgumentTypeError(f"{name}(): keepdim=True needs dim=", fix="pass dim=")
        if input.numel() == 0:
            # PyTorch's NaN, which is the lowest of its integers.
            whole = input.dtype.kind not in ("float", "bool")
            return input.new_full((), input.dtype.lowest if whole else float("nan"))
        return _shared(input.reshape(-1), _median(name, input.reshape(-1), 0, False, skip).values)
    position = wrap_dim(dim, input.ndim)
    values = host_values(input)
    if input.ndim == 0 or values.shape[position] == 0:
        return _ranked(name, input, 0, dim, keepdim)
    count = np.asarray(values.shape[position])
    rank = (count - 1) // 2
    if input.dtype.kind == "float":
        missing = np.isnan(values).sum(position, keepdims=True)
        present = np.maximum(count - missing, 1)
        # Without skipping, the first NaN, which stands behind all numbers, is the median.
        rank = (present - 1) // 2 if skip else np.where(missing > 0, count - missing, rank)
    return _ranked(name, input, rank, dim, keepdim)


def _shared(input: Tensor, chosen: Tensor) -> Tensor:
    """The chosen element, with a gradient that all elements equal to it share."""
    if not input.requires_grad:
        return chosen
    values, one = host_values(input), host_values(chosen)
    is_missing = bool(np.isnan(one))
    places = np.flatnonzero(np.isnan(values) if is_missing else values == one)
    equal = input.index_select(0, host_tensor(places, input.device))  # type: ignore[attr-defined]
    return equal.mean() if is_missing else equal.amax()  # type: ignore[attr-defined]


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The most frequent element along `dim` (the smallest of them) and its last index."""
    position = wrap_dim(dim, input.ndim)
    if input.ndim == 0:
        return pick(input, np.zeros((), np.int64), 0)
    _require_elements("mode", input, position)
    rows = np.moveaxis(host_values(input), position, -1)
    found = [_index_of_mode(row) for row in rows.reshape(-1, rows.shape[-1])]
    index = np.array(found, np.int64).reshape(rows.shape[:-1])
    values, indices = pick(input, np.expand_dims(index, position), position)
    if keepdim:
        return ValuesAndIndices(values, indices)
    return ValuesAndIndices(values.squeeze(position), indices.squeeze(position))


def _index_of_mode(row: np.ndarray) -> int:
    _, places, counts = np.unique(row, return_inverse=True, return_counts=True, equal_nan=False)
    return int(np.flatnonzero(places == counts.argmax())[-1])


@casts_on_cpu(in_float32)
def quantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The value below which a part `q` of the elements lies, interpolated between neighbours.

    `interpolation` is linear, lower, higher, nearest or midpoint; several q become the first
    dimension of the result.
    """
    return _quantile(input, q, dim, keepdim, interpolation, False)


@casts_on_cpu(in_float32)
def nanquantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """`quantile` of the elements that are not NaN."""
    return _quantile(input, q, dim, keepdim, interpolation, True)


def _quantile(
    input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, skip: bool
) -> Tensor:
    if interpolation not in ("linear", "lower", "higher", "nearest", "midpoint"):
        raise ArgumentError(
            f"quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}",
            fix="use one of these",
        )
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(
            f"quantile() input tensor must be either float or double dtype, got {input.dtype.name}",
            fix="convert it with .float()",
        )
    if not input.numel():
        raise ShapeError(
            f"quantile() input tensor must be non-empty, got {list(input.shape)}",
            fix="check .numel() first",
        )
    parts = np.asarray(q.detach().numpy() if isinstance(q, Tensor) else q, np.float64)
    if ((parts < 0) | (parts > 1)).any():
        raise ArgumentError("quantile() q values must be in the range [0, 1]", fix="scale q")
    if parts.ndim > 1:
        raise ShapeError(
            f"quantile() q must be a scalar or 1D tensor, got {list(parts.shape)}", fix="flatten it"
        )
    rank = input.ndim
    position = 0 if dim is None else wrap_dim(dim, rank)
    flat = input if rank and dim is not None else input.reshape(-1)
    found = [
        _one_quantile(flat, float(part), position, interpolation, skip)
        for part in (parts.reshape(-1) if parts.size else (0.0,))
    ]
    if not keepdim:
        found = [one.squeeze(position) for one in found]
    elif dim is None or not rank:
        found = [one.reshape((1,) * rank) for one in found]
    if parts.ndim == 0:
        return found[0]
    return stack(found, 0).narrow(0, 0, parts.size)


def _one_quantile(input: Tensor, part: float, dim: int, interpolation: str, skip: bool) -> Tensor:
    values = host_values(input)
    missing = np.isnan(values).sum(dim, keepdims=True)
    count = values.shape[dim] - (missing if skip else np.zeros_like(missing))
    # In the input's type: "nearest" asks for the same halves as in PyTorch.
    place = values.dtype.type(part) * np.maximum(count - 1, 0).astype(values.dtype)
    if not skip:
        place = np.where(missing > 0, values.shape[dim] - 1, place)
    if interpolation == "nearest":
        place = np.rint(place)
    low = np.floor(place) if interpolation != "higher" else np.ceil(place)
    high = np.ceil(place) if interpolation != "lower" else np.floor(place)
    order = _order(values, dim, False)
    below, above = (
        pick(input, np.take_along_axis(order, rank.astype(np.int64), dim), dim).values
        for rank in (low, high)
    )
    share = np.full(place.shape, 0.5) if interpolation == "midpoint" else place - low
    weight = from_array(share.astype(input.dtype.numpy), input.dtype).to(device=input.device)
    return below.lerp(above, weight)


METHODS = (
    *("sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode"),
    *("quantile", "nanquantile"),
)
