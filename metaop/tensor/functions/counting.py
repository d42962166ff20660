"""Counting, distinct values, bins and membership, without gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from metaop.errors import ArgumentError, DimensionError, DTypeError, ShapeError
from metaop.operators import counting as operators
from metaop.operators import distinct, searching
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.complex_numbers import complex
from metaop.tensor.functions.creation import full, tensor
from metaop.tensor.functions.selection import where
from metaop.tensor.promotion import defaults, result_type
from metaop.tensor.surface import public
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.faults import NO_RANGE
from metaop.unified_graph.recording import record, results, scalar_leaf


@public(method=True)
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, … occurs in a 1-d integer tensor, or the sums of `weights`.

    The result has at least `minlength` elements. Raises ShapeError for negative numbers and for
    other shapes.

    >>> metaop.bincount(metaop.tensor([1, 3, 1]))
    tensor([0, 2, 0, 1])
    """
    if input.ndim != 1 or input.dtype.kind != "int":
        raise _only_counts()
    extent = minlength
    if input.numel():
        limits = [wrap(one) for one in results(record(operators.extremes, (input.call,)))]
        least, greatest = (int(one.item()) for one in limits)
        if least < 0:
            raise _only_counts()
        extent = max(greatest + 1, minlength)
    amounts = None if weights is None else weights.call
    return wrap(record(operators.bincount, (input.call, amounts), (extent,)))


def _only_counts() -> ShapeError:
    return ShapeError(
        "bincount only supports 1-d non-negative integral inputs.", fix="flatten and check it"
    )


@public(method=True, out=True)
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """The number of elements in each of `bins` equal intervals between `min` and `max`.

    The default limits are the extremes. Raises DTypeError for integers, whose type may be too
    small for the counts.

    >>> metaop.histc(metaop.tensor([0.0, 1.0, 1.5, 4.0]), bins=2)
    tensor([3., 1.])
    """
    if input.dtype.kind != "float":
        raise DTypeError(f"histc: not for {input.dtype}", fix="convert it with .float()")
    if bins <= 0:
        raise ArgumentError(f"torch.histogram(): bins must be > 0, but got {bins}")
    low, high = float(min), float(max)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise NO_RANGE.error(NO_RANGE.message, fix=NO_RANGE.fix)
    flat = input.reshape(-1).to(input.dtype.compute)
    if not input.numel():
        return flat.new_zeros(bins).to(input.dtype)
    limits: list[Any] = [None, None]
    if low < high:
        limits = [scalar_leaf(one, flat.dtype, flat.device) for one in (low, high)]
    found = wrap(record(operators.histc, (flat.call, *limits), (bins,)))
    return found.to(input.dtype)


class Histogram(NamedTuple):
    """The number of elements in each bin, and the edges of the bins."""

    hist: Tensor
    bin_edges: Tensor


@public(method=True, out=True)
def histogram(
    input: Tensor,
    bins: Any,
    *,
    range: Any = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """The number of elements in each bin, and the bin edges.

    `bins` is their number, between the limits `range` or the extremes, or their edges. Bins include
    their lower edge, and the last one its upper edge too. The edges have one element more than the
    counts, a vector of length `bins`.

    >>> counts, edges = metaop.histogram(metaop.tensor([0.0, 1.0, 1.5, 4.0]), 2)
    >>> counts, edges
    (tensor([3., 1.]), tensor([0., 2., 4.]))
    """
    counts, edges = histogramdd(
        input.reshape(-1, 1), (bins,), range=range, weight=weight, density=density
    )
    return Histogram(counts, edges[0])


class HistogramOfPoints(NamedTuple):
    """The number of points in each cell, and the edges of the cells along each axis."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


@public(out=True)
def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramOfPoints:
    """The number of points (rows, coordinates last) in each cell of a grid.

    The points are (N, D), the counts have one dimension for each axis. `bins` is the number of
    cells along every axis, one number for each axis, or their edges; `range` holds the lowest and
    the highest edge of each axis.

    >>> points = metaop.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    >>> metaop.histogramdd(points, [2, 2]).hist
    tensor([[1., 0.],
            [0., 2.]])
    """
    if input.dtype.kind != "float" or not input.ndim:
        raise DTypeError(
            f"histogramdd: not for {input.dtype.name} {list(input.shape)}",
            fix="convert it with .float(), and put the coordinates in the last dimension",
        )
    size = input.shape[-1]
    points = input.detach().reshape(-1, size)
    given = list(bins) if isinstance(bins, (list, tuple)) else [bins] * size
    limits = [None] * size if range is None else list(zip(range[::2], range[1::2]))
    if len(given) != size or len(limits) != size:
        raise ShapeError(
            f"histogramdd: bins or limits of {len(given)} and {len(limits)} axes for {size}",
            fix="pass one for each coordinate",
        )
    edges = [
        one.to(input.dtype) if isinstance(one, Tensor) else _edges(points[:, axis], one, limit)
        for axis, (one, limit) in enumerate(zip(given, limits))
    ]
    counts = _cells(points, edges, weight).to(input.dtype)
    if density:
        counts = counts / counts.sum()
        for axis, one in enumerate(edges):
            counts = counts / one.diff().reshape(-1, *(1,) * (size - 1 - axis))
    return HistogramOfPoints(counts, tuple(edges))


def _edges(values: Tensor, bins: int, limits: Sequence[float] | None) -> Any:
    """The edges of `bins` equal bins."""
    if bins <= 0:
        raise ArgumentError(f"torch.histogram(): bins must be > 0, but got {bins}")
    if limits is None and not values.numel():
        limits = (0.0, 1.0)
    if limits is not None:
        low, high = map(float, limits)
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise NO_RANGE.error(NO_RANGE.message, fix=NO_RANGE.fix)
        limits = (low, high)
    calls = [None, None] if limits is None else [
        scalar_leaf(one, values.dtype, values.device) for one in limits
    ]  # fmt: skip
    return wrap(record(operators.bin_edges, (values.call, *calls), (bins,)))


def _cells(points: Any, edges: Sequence[Any], weight: Any) -> Any:
    """The number (or weight) of the points in each cell; the last edges are inclusive."""
    counts = [len(one) - 1 for one in edges]
    total = math.prod(counts)
    cell: Any = 0
    inside = points[:, :0].eq(0).all(1)
    for axis, (one, count) in enumerate(zip(edges, counts)):
        values = points[:, axis].contiguous()
        inside = inside & (values >= one[0]) & (values <= one[-1])
        cell = cell * count + (searchsorted(one, values, right=True) - 1).clamp(max=count - 1)
    place = where(inside, cell, total)
    amounts = None if weight is None else weight.detach().reshape(-1).call
    found = wrap(record(operators.bincount, (place.call, amounts), (total + 1,)))
    return found[:total].reshape(counts)


@public(method=True)
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements (or slices along `dim`), optionally with inverse indices and counts.

    They are always sorted. Their number is read. Without `dim`, the result has one dimension.

    >>> values, counts = metaop.unique(metaop.tensor([3, 1, 3]), return_counts=True)
    >>> values, counts
    (tensor([1, 3]), tensor([1, 2]))
    """
    return _distinct("unique", input, dim, True, return_inverse, return_counts)


@public(method=True)
def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The elements (or slices along `dim`) that differ from their predecessor.

    Without `dim` the tensor is flattened to one dimension first.

    >>> metaop.unique_consecutive(metaop.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    return _distinct("unique_consecutive", input, dim, False, return_inverse, return_counts)


def _require_slices(name: str, input: Tensor, dim: int | None) -> None:
    """Raises an error for slices along `dim` without elements, which cannot be compared."""
    if dim is not None and not input.ndim:
        raise DimensionError(
            f"{name}(): Dimension specified as {dim} but tensor has no dimensions", fix="leave dim"
        )
    extents = [n for k, n in enumerate(input.shape) if k != dim]
    if dim is not None and 0 in extents:
        raise ShapeError(
            f"{name}(): there are dimensions of size 0 besides dimension {dim} in "
            f"{list(input.shape)}, so no slices can be compared",
            fix="check the shape first",
        )


def _distinct(
    name: str,
    input: Tensor,
    dim: int | None,
    in_order: bool,
    return_inverse: bool,
    return_counts: bool,
) -> Any:
    axis = None if dim is None else wrap_dim(dim, input.ndim)
    _require_slices(name, input, axis)
    if axis is None:
        slices = rows = input.reshape(-1)
    else:
        slices = input.movedim(axis, 0)
        rows = slices.flatten(1) if input.ndim > 1 else slices
    shape = input._shape if axis is None else (slices._shape[0],)
    if not slices.numel():
        none = full((0,), 0, dtype=dtypes.int64, device=input.device)
        found: list[Any] = [slices, none.reshape(shape), none]
    else:
        made = record(distinct.runs, (rows.call,), (in_order,))
        # Tensors, so that reading the total computes all of them: rows are sorted once.
        counts, total, *order = map(wrap, results(made))
        which = order[0].call if order else None
        count = int(total.item())
        starts, sizes = results(record(distinct.run_starts, (counts.call, which), (count,)))
        found = [slices[wrap(starts)], None, wrap(sizes)]
        if return_inverse:
            found[1] = wrap(record(distinct.run_numbers, (counts.call, which))).reshape(shape)
    if axis:
        found[0] = found[0].movedim(0, axis)
    asked = [one for one, is_asked in zip(found, (True, return_inverse, return_counts)) if is_asked]
    return asked[0] if len(asked) == 1 else tuple(asked)


@public(out=True)
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """The index at which each value would be inserted into the last dimension of a sorted tensor.

    The sequence has one dimension, or the leading dimensions of `input`, whose rows it matches. NaN
    follows all numbers. A value is inserted before equal ones, with `right` after them.

    >>> metaop.searchsorted(metaop.tensor([1, 3, 5]), metaop.tensor([3, 6]))
    tensor([1, 3])
    """
    edges = sorted_sequence
    if sorter is not None:
        edges = edges.gather(-1, sorter)
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


@public(method=True, out=True)
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The index of the interval between `boundaries` that contains each value; the shape stays.

    Intervals include their upper boundary, with `right` their lower one.

    >>> metaop.bucketize(metaop.tensor([0.5, 1.0, 2.5]), metaop.tensor([1.0, 2.0]))
    tensor([0, 0, 2])
    """
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@public(out=True)
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each element is among `test_elements`; the shape stays.

    `invert` negates the result.

    >>> metaop.isin(metaop.tensor([1, 2, 3]), metaop.tensor([3, 1]))
    tensor([ True, False,  True])
    """
    like = elements if isinstance(elements, Tensor) else test_elements
    left, right = (
        x if isinstance(x, Tensor) else tensor(x, device=like.device)
        for x in (elements, test_elements)
    )
    if not right.numel():
        return full(left._shape, invert, dtype=dtypes.bool_, device=like.device)
    dtype = result_type(left, right)
    others = right.to(dtype).reshape(-1)
    return wrap(record(distinct.is_among, (left.to(dtype).call, others.call), (invert,)))


@public(method=True)
def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariance matrix of variables (rows) from observations (columns): (N, M) -> (N, N).

    Sums are divided by M - correction. `fweights` are frequencies of observations, `aweights` are
    their weights.

    >>> metaop.cov(metaop.tensor([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]]))
    tensor([[ 1., -2.],
            [-2.,  4.]])
    """
    rows = input.reshape(1, -1) if input.ndim < 2 else input
    if not rows.dtype.is_differentiable:
        rows = rows.to(defaults.dtype)
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            weights = given.to(rows.dtype) if weights is None else weights * given
    if weights is None:
        freedom: Any = max(rows.shape[1] - correction, 0)
        centred = rows - rows.mean(1, True)
        product = centred @ centred.mH / float(freedom)
    else:
        total = weights.sum()
        centred = rows - ((rows * weights).sum(1, True) / total)
        freedom = total - correction
        if aweights is not None:
            freedom = total - correction * (weights * aweights).sum() / total
        product = (centred * weights) @ centred.mH / freedom
    return product.squeeze()


@public(method=True)
def corrcoef(input: Tensor) -> Tensor:
    """The correlation matrix of variables (rows) from observations (columns): (N, M) -> (N, N).

    It is the covariance divided by both standard deviations, from -1 to 1.

    >>> metaop.corrcoef(metaop.tensor([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]])).round()
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    covariance = cov(input)
    if covariance.ndim == 0:
        return covariance / covariance
    deviation = covariance.diagonal().sqrt()
    found = covariance / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if not found.dtype.is_complex:
        return found.clamp(-1, 1)
    return complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1))
