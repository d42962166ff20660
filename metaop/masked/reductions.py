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
    """The sum over `dim` of the elements that `mask` lets through."""
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
    """The product over `dim` of the elements that `mask` lets through."""
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
    """The largest of the elements over `dim` that `mask` lets through."""
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
    """The smallest of the elements over `dim` that `mask` lets through."""
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
    """The index of the largest element that `mask` lets through, in the type of `input`."""
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
    """The index of the smallest element that `mask` lets through, in the type of `input`."""
    input = _typed(input, dtype)
    found = reductions.argmin(_kept(input, mask, input.dtype.highest), dim, keepdim)
    return found.to(input.dtype)


def cumsum(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The running sum of the elements that `mask` lets through."""
    return scans.cumsum(_kept(_typed(input, dtype), mask, 0), dim)


def cumprod(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The running product of the elements that `mask` lets through."""
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
    """The average over `dim` of the elements that `mask` lets through."""
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
    """The lower median along `dim` of the elements that `mask` lets through."""
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
    """`log(sum(exp(x)))` over `dim` of the elements that `mask` lets through."""
    input = _typed(input, dtype)
    kind = input.dtype
    if kind.kind != "float":
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
    """`log(exp(x) + exp(y))`, where masked operands count as -inf."""
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
    """The norm of order `ord` over `dim` of the elements that `mask` lets through."""
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
    """The variance over `dim` of the elements that `mask` lets through."""
    if correction is None:
        correction = 1.0 if unbiased is None else float(unbiased)
    input = _typed(input, dtype)
    if input.dtype.kind != "float":
        input = input.to(defaults.dtype)
    count = _count(input, mask, dim, True)
    centre = sum(input, dim, keepdim=True, mask=mask) / count
    squares = sum((input - centre).square(), dim, keepdim=keepdim, mask=mask)
    freedom = count.reshape(squares.shape) - correction
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
    """The standard deviation over `dim` of the elements that `mask` lets through."""
    return var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    ).sqrt()


def softmax(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The softmax along `dim` of the elements that `mask` lets through."""
    return F.softmax(_kept(_typed(input, dtype), mask, -math.inf), dim)


def log_softmax(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The logarithm of `softmax`."""
    return F.log_softmax(_kept(_typed(input, dtype), mask, -math.inf), dim)


def softmin(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """`softmax` of the negated elements."""
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
    """Divided by the norm of order `ord` of the elements that `mask` lets through."""
    input = _typed(input, dtype)
    size = norm(input, ord, dim, keepdim=True, mask=mask)
    return _kept(input, mask, 0) / size.clamp(min=eps)
