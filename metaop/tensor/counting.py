"""Counting, distinct values, bins and membership, without gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from metaop.errors import ArgumentError, DTypeError, ShapeError
from metaop.operators import counting as operators
from metaop.operators import searching
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.creation import tensor
from metaop.tensor.ordering import host_result, host_values
from metaop.tensor.promotion import defaults
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import record


def _host_tensor(array: np.ndarray, like: Tensor) -> Tensor:
    """Values of the host as a tensor of the dtype and device of `like`."""
    return from_array(np.asarray(array, like.dtype.numpy, order="C"), like.dtype).to(
        device=like.device
    )


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, … occurs in a 1-d integer tensor, or the sums of `weights`."""
    values = input._array()
    if input.ndim != 1 or input.dtype.kind != "int" or (values.size and values.min() < 0):
        raise ShapeError(
            "bincount only supports 1-d non-negative integral inputs.", fix="flatten and check it"
        )
    extent = max(int(values.max()) + 1 if values.size else 0, minlength)
    amounts = None if weights is None else weights.call
    return wrap(record(operators.bincount, (input.call, amounts), (extent,)))


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """The number of elements in each of `bins` equal intervals between `min` and `max`.

    Raises DTypeError for integers, whose type may be too small for the counts.
    """
    if input.dtype.kind != "float":
        raise DTypeError(f"histc: not for {input.dtype}", fix="convert it with .float()")
    values = host_values(input)
    low, high = float(min), float(max)
    if low == high and values.size:
        low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (np.isfinite(low) and np.isfinite(high)) or low > high:
        raise ArgumentError(
            f"histc: range of [{low}, {high}] is not finite or not ordered", fix="min < max"
        )
    kind = values.dtype.type if input.dtype.kind == "float" else np.float64
    low, high = kind(low), kind(high)
    inside = values[(values >= low) & (values <= high)].astype(kind)
    # The bins are found by arithmetic, as PyTorch does, and not by comparing with edges.
    places = ((inside - low) * bins / (high - low)).astype(np.int64)
    return _host_tensor(np.bincount(places.clip(max=bins - 1), minlength=bins), input)


class Histogram(NamedTuple):
    """How many elements lie in each bin, and where the bins begin and end."""

    hist: Tensor
    bin_edges: Tensor


def histogram(
    input: Tensor,
    bins: Any,
    *,
    range: Any = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """The number of elements in each bin, and the bin edges."""
    edges = bins._array() if isinstance(bins, Tensor) else bins
    weights = None if weight is None else host_values(weight)
    counts, edges = np.histogram(host_values(input), edges, range, density, weights)
    return Histogram(_host_tensor(counts, input), _host_tensor(edges, input))


class HistogramOfPoints(NamedTuple):
    """How many points lie in each cell, and where the cells begin and end along each axis."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramOfPoints:
    """The number of points (rows, coordinates last) in each cell of a grid.

    `bins` is the number of cells along every axis, one number for each axis, or their edges;
    `range` holds the lowest and the highest edge of each axis.
    """
    points = host_values(input).reshape(-1, input.shape[-1])
    if isinstance(bins, (list, tuple)):
        bins = [edges._array() if isinstance(edges, Tensor) else edges for edges in bins]
    limits = None if range is None else list(zip(range[::2], range[1::2]))
    weights = None if weight is None else host_values(weight).reshape(-1)
    counts, edges = np.histogramdd(points, bins, limits, density, weights)
    return HistogramOfPoints(
        _host_tensor(counts, input), tuple(_host_tensor(one, input) for one in edges)
    )


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements (or slices along `dim`), with the place of each one and its count."""
    axis = None if dim is None else wrap_dim(dim, input.ndim)
    _require_slices("unique", input, axis)
    values, inverse, counts = np.unique(
        host_values(input), return_inverse=True, return_counts=True, axis=axis, equal_nan=False
    )
    shape = input.shape if axis is None else (input.shape[axis],)
    return _unique_results(
        input, values, inverse.reshape(shape), counts, return_inverse, return_counts
    )


def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The elements (or slices along `dim`) that differ from the one before."""
    values = host_values(input)
    axis = 0 if dim is None else wrap_dim(dim, input.ndim)
    _require_slices("unique_consecutive", input, None if dim is None else axis)
    rows = values.reshape(-1) if dim is None else np.moveaxis(values, axis, 0)
    flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    starts = np.ones(len(flat), bool)
    starts[1:] = (flat[1:] != flat[:-1]).any(1)
    inverse = np.cumsum(starts) - 1
    counts = np.diff(np.append(np.flatnonzero(starts), len(flat)))
    kept = np.moveaxis(rows[starts], 0, axis)
    if dim is None:
        inverse = inverse.reshape(input.shape)
    return _unique_results(input, kept, inverse, counts, return_inverse, return_counts)


def _require_slices(name: str, input: Tensor, dim: int | None) -> None:
    """Slices along `dim` are compared only if they have elements, or if there are none."""
    extents = [n for k, n in enumerate(input.shape) if k != dim]
    if dim is not None and 0 in extents:
        raise ShapeError(
            f"{name}(): there are dimensions of size 0 besides dimension {dim} in "
            f"{list(input.shape)}, so no slices can be compared",
            fix="check the shape first",
        )


def _unique_results(
    input: Tensor,
    values: np.ndarray,
    inverse: np.ndarray,
    counts: np.ndarray,
    return_inverse: bool,
    return_counts: bool,
) -> Any:
    found = [_host_tensor(values, input)]
    if return_inverse:
        found.append(host_result(inverse, input))
    if return_counts:
        found.append(host_result(counts, input))
    return found[0] if len(found) == 1 else tuple(found)


def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where each value would be inserted into the last dimension of a sorted tensor.

    The sequence has one dimension, or as many as `input` with rows that belong to its rows. NaN
    lies behind all numbers.
    """
    edges = sorted_sequence
    if sorter is not None:
        edges = edges.gather(-1, sorter)  # type: ignore[attr-defined]
    values = input if isinstance(input, Tensor) else tensor(np.asarray(input), device=edges.device)
    if edges.ndim != 1 and (edges.ndim == 0 or edges.shape[:-1] != values.shape[:-1]):
        raise ShapeError(
            "searchsorted: boundaries tensor should be 1 dimension or the first N-1 dimensions of "
            f"boundaries tensor and input value tensor must match, got {list(edges.shape)} and "
            f"{list(values.shape)}",
            fix="expand one of them",
        )
    to_right = right or side == "right"
    found = wrap(record(searching.searchsorted, (edges.call, values.call), (to_right,)))
    return found.to(dtypes.int32) if out_int32 else found


def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The number of the interval between `boundaries` that each value lies in."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each element is among `test_elements`."""
    like = elements if isinstance(elements, Tensor) else test_elements
    left, right = (
        host_values(x) if isinstance(x, Tensor) else np.asarray(x)
        for x in (elements, test_elements)
    )
    return host_result(np.isin(left, right, invert=invert), like)


def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariance matrix of variables (rows) from observations (columns)."""
    rows = input.reshape(1, -1) if input.ndim < 2 else input
    if rows.dtype.kind != "float":
        rows = rows.to(defaults.dtype)
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            weights = given.to(rows.dtype) if weights is None else weights * given
    if weights is None:
        freedom: Any = max(rows.shape[1] - correction, 0)
        centred = rows - rows.mean(1, True)
        product = centred @ centred.t() / float(freedom)
    else:
        total = weights.sum()
        centred = rows - ((rows * weights).sum(1, True) / total)
        freedom = total - correction
        if aweights is not None:
            freedom = total - correction * (weights * aweights).sum() / total
        product = (centred * weights) @ centred.t() / freedom
    return product.squeeze()


def corrcoef(input: Tensor) -> Tensor:
    """The correlation matrix of variables (rows) from observations (columns)."""
    covariance = cov(input)
    if covariance.ndim == 0:
        return covariance / covariance
    deviation = covariance.diagonal().sqrt()
    return (covariance / deviation.unsqueeze(1) / deviation.unsqueeze(0)).clamp(-1, 1)


METHODS = (
    *("bincount", "histc", "histogram", "unique", "unique_consecutive", "bucketize"),
    *("cov", "corrcoef"),
)
