"""Reductions over dimensions: sums, products, extremes, moments, norms, booleans."""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, cast, where
from metaop.operators.expressions import (
    in_compute_type,
    index_along,
    squared_modulus,
    stop_gradient,
)
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.reinterpret import real_part
from metaop.reindex.views import reshape
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, constant
from metaop.unified_graph.symbolic import as_float

Dims = tuple[int, ...]


@composite
def sum(source: Node, dims: Dims, keepdim: bool, dtype: DType) -> Node:
    """The sum over `dims` in `dtype`, 16-bit floats accumulated in float32."""
    return cast(reduce_axes("add", cast(source, dtype.compute), dims, keepdim), dtype)


@composite
def nansum(source: Node, dims: Dims, keepdim: bool, dtype: DType) -> Node:
    """The sum over `dims` with NaN counted as zero."""
    if source.dtype.kind == "float":
        source = where(apply("isnan", source), 0, source)
    return sum(source, dims, keepdim, dtype)


@composite
def prod(source: Node, dims: Dims, keepdim: bool, dtype: DType) -> Node:
    """The product over `dims` in `dtype`, 16-bit floats accumulated in float32."""
    return cast(reduce_axes("mul", cast(source, dtype.compute), dims, keepdim), dtype)


@composite
def mean(source: Node, dims: Dims, keepdim: bool, dtype: DType) -> Node:
    """The average over `dims` in `dtype`; NaN over no elements."""
    total = reduce_axes("add", cast(source, dtype.compute), dims, keepdim)
    return cast(total / _count(source, dims), dtype)


@composite
def nanmean(source: Node, dims: Dims, keepdim: bool, dtype: DType) -> Node:
    """The average over the elements that are not NaN."""
    work = cast(source, dtype.compute)
    missing = apply("isnan", work)
    total = reduce_axes("add", where(missing, 0, work), dims, keepdim)
    count = reduce_axes("add", where(missing, 0.0, constant(1, work.dtype)), dims, keepdim)
    return cast(total / count, dtype)


def _count(source: Node, dims: Dims) -> float:
    return as_float(math.prod(source.shape[dim] for dim in dims))


@composite
@in_compute_type
def moments(
    source: Node, dims: Dims, correction: float, keepdim: bool, root: bool
) -> tuple[Node, Node]:
    """Variance (or its root) and mean over `dims`, in two passes for accuracy.

    The sum of squares is divided by `max(count - correction, 0)`.
    """
    count = _count(source, dims)
    average = reduce_axes("add", source, dims, True) / count
    difference = source - average
    squares = reduce_axes("add", squared_modulus(difference), dims, keepdim)
    freedom = max(count - correction, 0.0)
    variance = squares / constant(freedom, squares.dtype, squares.shape)
    return safe_sqrt(variance) if root else variance, reshape(average, squares.shape)


def safe_sqrt(source: Node) -> Node:
    """The square root, with gradient 0 at 0."""
    at_zero = source.equals(0)
    return where(at_zero, source, apply("sqrt", where(at_zero, 1.0, source)))


@composite
def extreme(source: Node, reducer: str, dims: Dims, keepdim: bool) -> Node:
    """The maximum or minimum over `dims`, propagating NaN; "amax" and "amin" share the gradient."""
    return reduce_axes(reducer, source, dims, keepdim)


def is_extreme(source: Node, value: Node) -> Node:
    """Whether an element is the extreme `value` of its group; NaN equals NaN here."""
    equal = source.equals(value)
    if source.dtype.kind == "float":
        equal = equal | (apply("isnan", source) & apply("isnan", value))
    return equal


@composite
def extreme_with_index(source: Node, reducer: str, dim: int, keepdim: bool) -> tuple[Node, Node]:
    """The extreme along `dim` and the index of the first element that has it."""
    if source.ndim == 0:
        return source, constant(0, dtypes.int64)
    kept = reduce_axes(reducer, source, (dim,), True)
    extent = source.shape[dim]
    candidates = where(
        is_extreme(source, kept), index_along(source.shape, dim), constant(extent, dtypes.int64)
    )
    values = kept if keepdim else reduce_axes(reducer, source, (dim,), False)
    return values, reduce_axes("min", candidates, (dim,), keepdim)


@composite(differentiable=False)
def extreme_index(source: Node, reducer: str, dim: int | None, keepdim: bool) -> Node:
    """The index of the first extreme along `dim`, or in the flattened tensor."""
    if dim is not None:
        return extreme_with_index(source, reducer, dim, keepdim)[1]
    flat = extreme_with_index(reshape(source, (source.size,)), reducer, 0, False)[1]
    return reshape(flat, (1,) * source.ndim) if keepdim else flat


@composite(differentiable=False)
def truth(source: Node, reducer: str, dims: Dims, keepdim: bool) -> Node:
    """Whether all ("and") or any ("or") elements over `dims` are nonzero; uint8 stays uint8."""
    result = reduce_axes(reducer, cast(source, dtypes.bool_), dims, keepdim)
    return cast(result, source.dtype) if source.dtype is dtypes.uint8 else result


@composite(differentiable=False)
def count_nonzero(source: Node, dims: Dims) -> Node:
    """The number of nonzero elements over `dims`."""
    return reduce_axes("add", cast(source.differs(0), dtypes.int64), dims)


@composite
def logsumexp(source: Node, dims: Dims, keepdim: bool) -> Node:
    """`log(sum(exp(x)))` over `dims` without overflow."""
    work = cast(source, source.dtype.compute)
    size = real_part(work) if work.dtype.is_complex else work
    largest = stop_gradient(reduce_axes("max", size, dims, True))
    largest = where(apply("isfinite", largest), largest, 0.0)
    total = reduce_axes("add", apply("exp", work - largest), dims, keepdim)
    return cast(apply("log", total) + reshape(largest, total.shape), source.dtype)


@composite
def vector_norm(source: Node, order: float, dims: Dims, keepdim: bool, dtype: DType) -> Node:
    """The vector norm of `order` over `dims` in `dtype`; the gradient at 0 is 0."""
    work = cast(source, dtype.compute)
    size = apply("abs", work)
    if order == 2:
        result = safe_sqrt(reduce_axes("add", squared_modulus(work), dims, keepdim))
    elif order == 1:
        result = reduce_axes("add", size, dims, keepdim)
    elif order == 0:
        nonzero = where(work.equals(0), 0.0, constant(1, size.dtype))
        result = reduce_axes("add", nonzero, dims, keepdim)
    elif math.isinf(order):
        result = reduce_axes("amax" if order > 0 else "amin", size, dims, keepdim)
    else:
        result = _general_norm(size, order, dims, keepdim)
    return cast(result, dtype.part)


def _general_norm(size: Node, order: float, dims: Dims, keepdim: bool) -> Node:
    at_zero = size.equals(0)
    powers = apply("pow", where(at_zero, 1.0, size), order)
    powers = where(at_zero, 0.0 if order > 0 else math.inf, powers)
    total = reduce_axes("add", powers, dims, keepdim)
    vanishes = total.equals(0)
    root = apply("pow", where(vanishes, 1.0, total), 1 / order)
    return where(vanishes, 0.0, root)
