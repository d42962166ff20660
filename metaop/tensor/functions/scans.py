"""Cumulative sums, products and extremes, and differences of neighbours."""

from __future__ import annotations

from metaop.errors import ArgumentError, DimensionError, ShapeError
from metaop.operators import scan as operators
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.joining import cat
from metaop.tensor.functions.reductions import ValuesAndIndices
from metaop.tensor.promotion import defaults
from metaop.tensor.surface import in_every_form, public, synonym
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import record, results


@in_every_form(float32_on_cuda="cumulative")
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The sums of all elements up to each one along `dim`; integers are summed in int64.

    The shape stays.

    >>> metaop.cumsum(metaop.tensor([1, 2, 3]), 0)
    tensor([1, 3, 6])
    """
    return _cumulative("add", input, dim, dtype)


@in_every_form(float32_on_cuda="cumulative")
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The products of all elements up to each one along `dim`; the shape stays.

    >>> metaop.cumprod(metaop.tensor([1, 2, 3]), 0)
    tensor([1, 2, 6])
    """
    return _cumulative("mul", input, dim, dtype)


@public(method=True, out=True)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """The logarithm of the cumulative sum of exponentials along `dim`, without overflow.

    The shape stays.

    >>> metaop.logcumsumexp(metaop.tensor([0.0, 0.0, 0.0]), 0)
    tensor([0.0000, 0.6931, 1.0986])
    """
    dtype = input.dtype if input.dtype.is_differentiable else defaults.dtype
    return _cumulative("logaddexp", input, dim, dtype)


def _cumulative(function: str, input: Tensor, dim: int, dtype: DType | None) -> Tensor:
    kind = input.call.type
    if dtype is None:
        dtype = kind.dtype if kind.dtype.is_differentiable else dtypes.int64
    position = wrap_dim(dim, input.ndim)
    return wrap(record(operators.cumulative, (input.call,), (function, position, dtype)))


@public(method=True, out=True)
def cummax(input: Tensor, dim: int) -> ValuesAndIndices:
    """The largest element so far along `dim` and its index (the last of equal ones).

    Both results have the shape of the input.

    >>> metaop.cummax(metaop.tensor([1, 3, 2]), 0).values
    tensor([1, 3, 3])
    """
    return _cumulative_extreme(input, True, dim)


@public(method=True, out=True)
def cummin(input: Tensor, dim: int) -> ValuesAndIndices:
    """The smallest element so far along `dim` and its index (the last of equal ones).

    Both results have the shape of the input.

    >>> metaop.cummin(metaop.tensor([2, 3, 1]), 0).values
    tensor([2, 2, 1])
    """
    return _cumulative_extreme(input, False, dim)


def _cumulative_extreme(input: Tensor, largest: bool, dim: int) -> ValuesAndIndices:
    position = wrap_dim(dim, input.ndim)
    if input.ndim == 0:
        return ValuesAndIndices(input.clone(), input.new_zeros((), dtype=dtypes.int64))
    found = results(record(operators.cumulative_extreme, (input.call,), (largest, position)))
    return ValuesAndIndices(*map(wrap, found))


@public(method=True, out=True)
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The `n`-th differences of neighbours along `dim`, whose size decreases by n.

    `prepend` and `append` are first concatenated to the tensor.

    >>> metaop.diff(metaop.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    if input.ndim == 0:
        raise ShapeError("diff expects input to be at least one-dimensional", fix="unsqueeze it")
    position = wrap_dim(dim, input.ndim)
    if n < 0:
        raise ArgumentError(f"diff(): order must be non-negative but got {n}", fix="pass n >= 0")
    if n == 0:
        return input.clone()
    pieces = [piece for piece in (prepend, input, append) if piece is not None]
    if len(pieces) > 1:
        input = cat(pieces, position)
    for _ in range(min(n, input.shape[position])):
        input = wrap(record(operators.difference, (input.call,), (position,)))
    return input


@public()
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """The integral of samples `y` at points `x` (or `dx` apart) along `dim`, by the trapezoid rule.

    The dimension is removed.

    >>> metaop.trapezoid(metaop.tensor([1.0, 2.0, 3.0]), dx=2.0)
    tensor(8.)
    """
    if y.ndim and not y.shape[dim]:
        return y.new_zeros(y.sum(dim).shape)
    area = _trapezoids(y, x, dim).sum(dim)
    return area if x is not None else area * dx


def _trapezoids(y: Tensor, x: Tensor | None, dim: int) -> Tensor:
    """The areas between neighbours, which are 1 apart if `x` is None."""
    if not y.ndim:
        raise DimensionError("trapezoid(): the samples have no dimensions", fix="pass a vector")
    if not y.shape[dim]:
        return y / 2
    length = y.shape[dim] - 1
    heights = (y.narrow(dim, 1, length) + y.narrow(dim, 0, length)) / 2
    if x is None:
        return heights
    widths = diff(x, dim=dim if x.ndim == y.ndim else -1)
    if widths.ndim == 1 and y.ndim > 1:
        shape = [1] * y.ndim
        shape[dim] = length
        widths = widths.reshape(shape)
    return heights * widths


@public()
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1
) -> Tensor:
    """The integrals of samples from the first one up to each of the others.

    The size of `dim` decreases by 1.

    >>> metaop.cumulative_trapezoid(metaop.tensor([1.0, 2.0, 3.0]))
    tensor([1.5000, 4.0000])
    """
    areas = _trapezoids(y, x, dim)
    return (areas if x is not None else areas * dx).cumsum(dim)


trapz = synonym("trapz", trapezoid)
