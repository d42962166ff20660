"""Masked reductions: what the mask hides becomes the neutral element."""

from __future__ import annotations

import math
from typing import Any

from metaop.nn import functional as F
from metaop.tensor.core import Tensor
from metaop.tensor.functions import pointwise, reductions, scans
from metaop.tensor.functions.ordering import nanmedian
from metaop.tensor.functions.selection import where
from metaop.tensor.linear_algebra.norms import vector_norm
from metaop.tensor.options import Dimensions, reduced_dimensions
from metaop.tensor.promotion import defaults
from metaop.unified_graph.dtype import DType


def _kept(input: Tensor, mask: Tensor | None, neutral: Any) -> Tensor:
    """`input` with the neutral element where the mask is False."""
    if mask is None:
        return input
    if mask.ndim < input.ndim:
        mask = mask.expand(*input.shape)
    return where(mask, input, input.new_full((), neutral))


def _typed(input: Tensor, dtype: DType | None) -> Tensor:
    return input if dtype is None else input.to(dtype)


def sum(
    input: Tensor,
    dim: Dimensions = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum over `dim` of the elements that `mask` lets through.

    The mask broadcasts to the shape of `input`. The dimensions are removed, or have size 1 with
    `keepdim`; without `dim` they are all. What the mask hides counts as 0.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.sum(x, mask=mask)
    tensor(4.)
    """
    return reductions.sum(_kept(_typed(input, dtype), mask, 0), _all(dim), keepdim)


def _all(dim: Dimensions) -> Any:
    return None if dim == () else dim


def prod(
    input: Tensor,
    dim: Dimensions = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The product over `dim` of the elements that `mask` lets through.

    Shapes are those of `sum`. What the mask hides counts as 1.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.prod(x, mask=mask)
    tensor(3.)
    """
    result = _kept(_typed(input, dtype), mask, 1)
    for position in sorted(reduced_dimensions(dim, input.ndim), reverse=True):
        result = reductions.prod(result, position, True)
    if not input.ndim:
        return reductions.prod(result)
    dims = reduced_dimensions(dim, input.ndim)
    return result if keepdim else result.squeeze(dims)


def amax(
    input: Tensor,
    dim: Dimensions = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The largest of the elements over `dim` that `mask` lets through.

    Shapes are those of `sum`. Where all is hidden it is the lowest number of the type.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.amax(x, mask=mask)
    tensor(3.)
    """
    input = _typed(input, dtype)
    return reductions.amax(_kept(input, mask, input.dtype.lowest), dim, keepdim)


def amin(
    input: Tensor,
    dim: Dimensions = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The smallest of the elements over `dim` that `mask` lets through.

    Shapes are those of `sum`. Where all is hidden it is the highest number of the type.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.amin(x, mask=mask)
    tensor(1.)
    """
    input = _typed(input, dtype)
    return reductions.amin(_kept(input, mask, input.dtype.highest), dim, keepdim)


def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The index of the largest element that `mask` lets through, in the type of `input`.

    Shapes are those of `sum`; without `dim` it is the index in the flattened tensor.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.argmax(x, mask=mask)
    tensor(2.)
    """
    input = _typed(input, dtype)
    found = reductions.argmax(_kept(input, mask, input.dtype.lowest), dim, keepdim)
    return found.to(input.dtype)


def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The index of the smallest element that `mask` lets through, in the type of `input`.

    Shapes are those of `sum`; without `dim` it is the index in the flattened tensor.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.argmin(x, mask=mask)
    tensor(0.)
    """
    input = _typed(input, dtype)
    found = reductions.argmin(_kept(input, mask, input.dtype.highest), dim, keepdim)
    return found.to(input.dtype)


def cumsum(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The running sum of the elements that `mask` lets through; the shape stays.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.cumsum(x, 0, mask=mask)
    tensor([1., 1., 4.])
    """
    return scans.cumsum(_kept(_typed(input, dtype), mask, 0), dim)


def cumprod(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The running product of the elements that `mask` lets through; the shape stays.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.cumprod(x, 0, mask=mask)
    tensor([1., 1., 3.])
    """
    return scans.cumprod(_kept(_typed(input, dtype), mask, 1), dim)


def _count(input: Tensor, mask: Tensor | None, dim: Dimensions, keepdim: bool) -> Tensor:
    ones = input.new_ones(input.shape)
    return reductions.sum(_kept(ones, mask, 0), _all(dim), keepdim)


def mean(
    input: Tensor,
    dim: Dimensions = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The average over `dim` of the elements that `mask` lets through.

    Shapes are those of `sum`; where all is hidden it is NaN.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.mean(x, mask=mask)
    tensor(2.)
    """
    input = _typed(input, dtype)
    total = sum(input, dim, keepdim=keepdim, mask=mask)
    return total / _count(input, mask, dim, keepdim)


def median(
    input: Tensor,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The lower median along `dim` of the elements that `mask` lets through.

    The dimension is removed, or has size 1 with `keepdim`.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.median(x, mask=mask)
    tensor(1.)
    """
    found = nanmedian(_kept(_typed(input, dtype), mask, math.nan), dim, keepdim)
    return found.values


def logsumexp(
    input: Tensor,
    dim: Dimensions = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """`log(sum(exp(x)))` over `dim` of the elements that `mask` lets through.

    Shapes are those of `sum`; where all is hidden it is -inf.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.logsumexp(x, mask=mask)
    tensor(3.1269)
    """
    input = _typed(input, dtype)
    kind = input.dtype
    if not kind.is_differentiable:
        input = input.to(defaults.dtype)
    return reductions.logsumexp(_kept(input, mask, -math.inf), dim, keepdim).to(kind)


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: DType | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """`log(exp(x) + exp(y))`, where masked operands count as -inf.

    The operands broadcast to one shape.

    >>> x, mask = metaop.zeros(2), metaop.tensor([True, False])
    >>> metaop.masked.logaddexp(x, x, input_mask=mask)
    tensor([0.6931, 0.0000])
    """
    first = _kept(_typed(input, dtype), input_mask, -math.inf)
    return pointwise.logaddexp(first, _kept(_typed(other, dtype), other_mask, -math.inf))


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dimensions = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The norm of order `ord` over `dim` of the elements that `mask` lets through.

    Shapes are those of `sum`.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.norm(x, mask=mask)
    tensor(3.1623)
    """
    order = 2.0 if ord is None else ord
    return vector_norm(
        _kept(_typed(input, dtype), mask, 0.0 if order > 0 else math.inf), order, _all(dim), keepdim
    )


def var(
    input: Tensor,
    dim: Dimensions = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance over `dim` of the elements that `mask` lets through.

    Shapes are those of `sum`; the sum of squares is divided by their number less 1, or less
    `correction`.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.var(x, mask=mask)
    tensor(2.)
    """
    if correction is None:
        correction = 1.0 if unbiased is None else float(unbiased)
    input = _typed(input, dtype)
    if not input.dtype.is_differentiable:
        input = input.to(defaults.dtype)
    count = _count(input, mask, dim, True)
    centre = sum(input, dim, keepdim=True, mask=mask) / count
    difference = input - centre
    squares = sum(difference * difference.conj(), dim, keepdim=keepdim, mask=mask)
    freedom = count.real.reshape(squares.shape) - correction
    return squares / freedom.maximum(freedom.new_zeros(()))


def std(
    input: Tensor,
    dim: Dimensions = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The standard deviation over `dim` of the elements that `mask` lets through.

    It is the root of `var`, of the same shape.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.std(x, mask=mask)
    tensor(1.4142)
    """
    return var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    ).sqrt()


def softmax(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The softmax along `dim` of the elements that `mask` lets through.

    The shape stays; what is hidden gets 0.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.softmax(x, 0, mask=mask)
    tensor([0.1192, 0.0000, 0.8808])
    """
    return F.softmax(_kept(_typed(input, dtype), mask, -math.inf), dim)


def log_softmax(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The logarithm of `softmax`; the shape stays, and what is hidden gets -inf.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.log_softmax(x, 0, mask=mask)
    tensor([-2.1269,    -inf, -0.1269])
    """
    return F.log_softmax(_kept(_typed(input, dtype), mask, -math.inf), dim)


def softmin(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """`softmax` of the negated elements; the shape stays.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.softmin(x, 0, mask=mask)
    tensor([0.8808, 0.0000, 0.1192])
    """
    return F.softmin(_kept(_typed(input, dtype), mask, math.inf), dim)


def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Divided by the norm of order `ord` of the elements that `mask` lets through.

    The shape stays; norms count as `eps` at least, and what is hidden gets 0.

    >>> x, mask = metaop.tensor([1.0, 5.0, 3.0]), metaop.tensor([True, False, True])
    >>> metaop.masked.normalize(x, 1, 0, mask=mask)
    tensor([0.2500, 0.0000, 0.7500])
    """
    input = _typed(input, dtype)
    size = norm(input, ord, dim, keepdim=True, mask=mask)
    return _kept(input, mask, 0) / size.clamp(min=eps)
