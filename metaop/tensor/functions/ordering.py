"""Sorting, ranking and quantiles."""

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
from metaop.operators import distinct, ordering
from metaop.operators import scan as operators
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.casting import in_float32
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.joining import stack
from metaop.tensor.functions.reductions import ValuesAndIndices
from metaop.tensor.surface import public
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.faults import QUANTILE_OUTSIDE_UNIT
from metaop.unified_graph.recording import Call, record, results, scalar_leaf
from metaop.unified_graph.tensor_type import Device


@public(method=True, out=True)
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> ValuesAndIndices:
    """The elements sorted along `dim`, and their indices; equal elements keep their order.

    Both results have the shape of the input; indices are int64. NaN counts as largest.

    >>> values, indices = metaop.sort(metaop.tensor([3, 1, 2]))
    >>> values, indices
    (tensor([1, 2, 3]), tensor([1, 2, 0]))
    """
    return _ordered(ordering.sort, input, wrap_dim(dim, input.ndim), descending)


@public(method=True)
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that sort along `dim`, int64 of the input's shape; equal elements keep order.

    >>> metaop.argsort(metaop.tensor([3, 1, 2]), descending=True)
    tensor([0, 2, 1])
    """
    return sort(input, dim, descending, stable).indices


@public(method=True, out=True)
def msort(input: Tensor) -> Tensor:
    """The elements sorted along the first dimension; the shape stays.

    >>> metaop.msort(metaop.tensor([[3, 1], [2, 4]]))
    tensor([[2, 1],
            [3, 4]])
    """
    return sort(input, 0).values


def _ordered(step: Composite, input: Tensor, *attributes: Any) -> ValuesAndIndices:
    """The results of a composite that chooses elements of `input` by their order."""
    values, indices = results(record(step, (input.call,), attributes))
    return ValuesAndIndices(wrap(values), wrap(indices))


@public(method=True, out=True)
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesAndIndices:
    """The `k` largest (or smallest) elements along `dim`, in order, and their indices.

    The dimension of the results has size k. Raises ShapeError if it has fewer elements.

    >>> values, indices = metaop.topk(metaop.tensor([3, 1, 2]), 2)
    >>> values, indices
    (tensor([3, 2]), tensor([0, 2]))
    """
    position = wrap_dim(dim, input.ndim)
    extent = input.shape[position] if input.ndim else 1
    if not 0 <= k <= extent:
        raise ShapeError(
            f"selected index k out of range: k is {k}, dimension {dim} has {extent} elements",
            fix="pass a smaller k",
        )
    return _ordered(ordering.topk, input, k, position, largest)


def _chosen(
    name: str, step: Composite, input: Tensor, dim: int, keepdim: bool, *attributes: Any
) -> ValuesAndIndices:
    """The element of each row that a composite chooses."""
    position = wrap_dim(dim, input.ndim)
    if input.ndim == 0:
        values, indices = _ordered(step, input.reshape(1), 0, *attributes)
        return ValuesAndIndices(values.reshape(()), indices.reshape(()))
    _require_elements(name, input, position)
    values, indices = _ordered(step, input, position, *attributes)
    if keepdim:
        return ValuesAndIndices(values, indices)
    return ValuesAndIndices(values.squeeze(position), indices.squeeze(position))


def _require_elements(name: str, input: Tensor, dim: int) -> None:
    if input.shape[dim] == 0:
        raise DimensionError(
            f"{name}(): Expected reduction dim {dim} to have non-zero size.",
            fix="check the shape first",
        )


@public(method=True, out=True)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The `k`-th smallest element along `dim` (counted from 1) and its index.

    The dimension is removed, or has size 1 with `keepdim`. Raises ShapeError for a k out of range.

    >>> metaop.kthvalue(metaop.tensor([3, 1, 2]), 2).values
    tensor(2)
    """
    extent = input.shape[wrap_dim(dim, input.ndim)] if input.ndim else 1
    if not 1 <= k <= extent:
        raise ShapeError(
            f"kthvalue(): selected number k out of range for dimension {dim}: {k} of {extent}",
            fix="1 <= k <= size",
        )
    return _chosen("kthvalue", ordering.ranked, input, dim, keepdim, k - 1)


@public(method=True, out=True)
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements, or along `dim` with its index; NaN is propagated.

    The dimension is removed, or has size 1 with `keepdim`.

    >>> metaop.median(metaop.tensor([4, 1, 3, 2]))
    tensor(2)
    """
    return _median("median", input, dim, keepdim, False)


@public(method=True, out=True)
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of the elements that are not NaN, of all or along `dim` with its index.

    The dimension is removed, or has size 1 with `keepdim`.

    >>> metaop.nanmedian(metaop.tensor([4.0, float("nan"), 3.0, 2.0]))
    tensor(3.)
    """
    return _median("nanmedian", input, dim, keepdim, True)


def _median(name: str, input: Tensor, dim: int | None, keepdim: bool, skip: bool) -> Any:
    if dim is None:
        if keepdim:
            raise ArgumentTypeError(f"{name}(): keepdim=True needs dim=", fix="pass dim=")
        if input.numel() == 0:
            # PyTorch converts NaN to the lowest integer.
            whole = input.dtype.kind not in ("float", "bool")
            return input.new_full((), input.dtype.lowest if whole else float("nan"))
        return wrap(record(ordering.median_of_all, (input.reshape(-1).call,), (skip,)))
    return _chosen(name, ordering.median, input, dim, keepdim, skip)


@public(method=True, out=True)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The most frequent element along `dim` (the smallest of them) and its last index.

    The dimension is removed, or has size 1 with `keepdim`.

    >>> metaop.mode(metaop.tensor([3, 1, 3, 2])).values
    tensor(3)
    """
    position = wrap_dim(dim, input.ndim)
    if input.ndim == 0:
        values, indices = mode(input.reshape(1), 0)
        return ValuesAndIndices(values.reshape(()), indices.reshape(()))
    _require_elements("mode", input, position)
    places = record(distinct.mode, (input.call,), (position,))
    values = wrap(record(operators.pick, (input.call, places), (position,)))
    if keepdim:
        return ValuesAndIndices(values, wrap(places))
    return ValuesAndIndices(values.squeeze(position), wrap(places).squeeze(position))


@public(method=True, out=True, precision=in_float32)
def quantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The value below which a fraction `q` of the elements lies, interpolated between neighbours.

    `interpolation` is linear, lower, higher, nearest or midpoint; a vector of q becomes the first
    dimension of the result. Raises ArgumentError for q outside 0 … 1.

    >>> metaop.quantile(metaop.tensor([1.0, 2.0, 5.0]), metaop.tensor([0.5, 0.75]))
    tensor([2.0000, 3.5000])
    """
    return _quantile(input, q, dim, keepdim, interpolation, False)


@public(method=True, out=True, precision=in_float32)
def nanquantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """`quantile` of the elements that are not NaN, of all or along dimension `dim`.

    >>> metaop.nanquantile(metaop.tensor([1.0, float("nan"), 2.0]), 0.5)
    tensor(1.5000)
    """
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
    parts = _parts(q, input.device)
    rank = input.ndim
    position = 0 if dim is None else wrap_dim(dim, rank)
    flat = input if rank and dim is not None else input.reshape(-1)
    found = [
        _one_quantile(flat, part, position, interpolation, skip)
        for part in parts or [scalar_leaf(0.0, dtypes.float64, input.device)]
    ]
    if not keepdim:
        found = [one.squeeze(position) for one in found]
    elif dim is None or not rank:
        found = [one.reshape((1,) * rank) for one in found]
    if np.ndim(q) == 0:
        return found[0]
    return stack(found, 0).narrow(0, 0, len(parts))


def _parts(q: Any, device: Device) -> list[Call]:
    """The fractions `q`; those of a tensor are checked when they are computed."""
    if np.ndim(q) > 1:
        raise ShapeError(
            f"quantile() q must be a scalar or 1D tensor, got {list(np.shape(q))}", fix="flatten it"
        )
    if isinstance(q, Tensor):
        flat: Any = q.reshape(-1)
        return [flat[k].call for k in range(q.numel())]
    parts = np.asarray(q, np.float64).reshape(-1)
    if not ((parts >= 0) & (parts <= 1)).all():
        kind = QUANTILE_OUTSIDE_UNIT
        raise kind.error(kind.message, fix=kind.fix)
    return [scalar_leaf(float(part), dtypes.float64, device) for part in parts]


def _one_quantile(input: Tensor, part: Call, dim: int, interpolation: str, skip: bool) -> Tensor:
    call = record(ordering.quantile, (input.call, part), (dim, interpolation, skip))
    below, above, weight = map(wrap, results(call))
    return below.lerp(above, weight)
