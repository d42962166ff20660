"""Reductions over dimensions: sums, means, extremes, moments, norms, booleans."""

from __future__ import annotations

from typing import Any, NamedTuple

from metaop.errors import ArgumentTypeError, DimensionError, DTypeError, ShapeError
from metaop.operators import reduction as operators
from metaop.tensor.arguments import is_empty, wrap_dim
from metaop.tensor.casting import in_float32
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions import pointwise
from metaop.tensor.options import Dimensions, reduced_dimensions
from metaop.tensor.promotion import Real
from metaop.tensor.surface import public
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import record, results


class ValuesAndIndices(NamedTuple):
    """Extremes or sorted values, and their indices along the dimension."""

    values: Tensor
    indices: Tensor


@public(method=True, out=True, float32_on_cuda="sum")
def sum(
    input: Tensor, dim: Dimensions = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The sum over all dimensions or over `dim`; integers and booleans are summed in int64.

    The dimensions are removed, or have size 1 with `keepdim`.

    >>> metaop.sum(metaop.tensor([[1, 2], [3, 4]]), dim=0)
    tensor([4, 6])
    """
    return _total(operators.sum, input, dim, keepdim, dtype)


@public(method=True, out=True, float32_on_cuda="nansum")
def nansum(
    input: Tensor, dim: Dimensions = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The sum over all dimensions or over `dim` with NaN counted as zero.

    >>> metaop.nansum(metaop.tensor([1.0, float("nan"), 2.0]))
    tensor(3.)
    """
    return _total(operators.nansum, input, dim, keepdim, dtype)


@public(method=True, out=True, precision=in_float32, float32_on_cuda="prod")
def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The product over all dimensions or over `dim`; 1 over none.

    >>> metaop.prod(metaop.tensor([[1, 2], [3, 4]]), dim=1)
    tensor([ 2, 12])
    """
    return _total(operators.prod, input, dim, keepdim, dtype)


def _total(
    step: Composite, input: Tensor, dim: Dimensions, keepdim: bool, dtype: DType | None
) -> Tensor:
    call = input.call
    kind = call.type
    if dtype is None:
        dtype = kind.dtype if kind.dtype.is_differentiable else dtypes.int64
    dims = reduced_dimensions(dim, len(kind.shape))
    return wrap(record(step, (call,), (dims, keepdim, dtype)))


@public(method=True, out=True)
def mean(
    input: Tensor, dim: Dimensions = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The average over all dimensions or over `dim`; only for floats unless `dtype` is given.

    The dimensions are removed, or have size 1 with `keepdim`. Raises DTypeError for other types.

    >>> metaop.mean(metaop.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=1)
    tensor([1.5000, 3.5000])
    """
    return _average(operators.mean, input, dim, keepdim, dtype)


@public(method=True, out=True)
def nanmean(
    input: Tensor, dim: Dimensions = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The average over the elements that are not NaN, of all dimensions or of `dim`.

    >>> metaop.nanmean(metaop.tensor([1.0, float("nan"), 2.0]))
    tensor(1.5000)
    """
    return _average(operators.nanmean, input, dim, keepdim, dtype)


def _average(
    step: Composite, input: Tensor, dim: Dimensions, keepdim: bool, dtype: DType | None
) -> Tensor:
    call = input.call
    dtype = dtype or call.type.dtype
    if not dtype.is_differentiable:
        raise DTypeError(
            f"{step.name}(): could not infer output dtype. Input dtype must be either a floating "
            f"point or complex dtype. Got: {dtype.name}",
            fix="convert with .float(), or pass dtype=",
        )
    dims = reduced_dimensions(dim, len(call.type.shape))
    return wrap(record(step, (call,), (dims, keepdim, dtype)))


def _moments(
    name: str,
    input: Tensor,
    dim: Any,
    unbiased: bool | None,
    correction: Real | None,
    keepdim: bool,
) -> tuple[Tensor, Tensor]:
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    call = input.call
    if not call.type.dtype.is_differentiable:
        raise DTypeError(
            f"{name}: only support floating point and complex dtypes, not {call.type.dtype.name}",
            fix="convert with .float()",
        )
    dims = reduced_dimensions(dim, input.ndim)
    attributes = (dims, float(correction), keepdim, name.startswith("std"))
    first, second = results(record(operators.moments, (call,), attributes))
    return wrap(first), wrap(second)


@public(method=True, out=True, float32_on_cuda="moments")
def var(
    input: Tensor,
    dim: Dimensions = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Real | None = None,
) -> Tensor:
    """The variance, the sum of squares divided by `count - correction` (1 by default).

    It is taken over all dimensions or over `dim`. `unbiased=False` is `correction=0`.

    >>> x = metaop.tensor([1.0, 2.0, 6.0])
    >>> metaop.var(x), metaop.var(x, correction=0)
    (tensor(7.), tensor(4.6667))
    """
    return _moments("var", input, dim, unbiased, correction, keepdim)[0]


@public(method=True, out=True, float32_on_cuda="moments")
def std(
    input: Tensor,
    dim: Dimensions = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Real | None = None,
) -> Tensor:
    """The standard deviation, with `count - correction` degrees of freedom (1 by default).

    It is taken over all dimensions or over `dim`.

    >>> metaop.std(metaop.tensor([1.0, 2.0, 3.0]))
    tensor(1.)
    """
    return _moments("std", input, dim, unbiased, correction, keepdim)[0]


@public(float32_on_cuda="moments")
def var_mean(
    input: Tensor,
    dim: Dimensions = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Real | None = None,
) -> tuple[Tensor, Tensor]:
    """Variance and mean over all dimensions or over `dim`, as `var` and `mean` give them.

    >>> metaop.var_mean(metaop.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    return _moments("var_mean", input, dim, unbiased, correction, keepdim)


@public(float32_on_cuda="moments")
def std_mean(
    input: Tensor,
    dim: Dimensions = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Real | None = None,
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean over all dimensions or over `dim`, as `std` and `mean` give them.

    >>> metaop.std_mean(metaop.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    return _moments("std_mean", input, dim, unbiased, correction, keepdim)


@public(method=True, out=True)
def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The largest element; with `dim`, values and indices; with a second tensor, the maximum.

    Of equal elements the index is the first one's; NaN wins. The dimension is removed, or has
    size 1 with `keepdim`.

    >>> values, indices = metaop.max(metaop.tensor([[1, 5], [7, 2]]), dim=1)
    >>> values, indices
    (tensor([5, 7]), tensor([1, 0]))
    """
    return _extreme("max", input, dim if other is None else other, keepdim)


@public(method=True, out=True)
def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The smallest element; with `dim`, values and indices; with a second tensor, the minimum.

    Of equal elements the index is the first one's; NaN wins. The dimension is removed, or has
    size 1 with `keepdim`.

    >>> metaop.min(metaop.tensor([[1, 5], [7, 2]]))
    tensor(1)
    """
    return _extreme("min", input, dim if other is None else other, keepdim)


def _extreme(name: str, input: Tensor, dim: Any, keepdim: bool) -> Any:
    if isinstance(dim, Tensor):
        return (pointwise.maximum if name == "max" else pointwise.minimum)(input, dim)
    if dim is None:
        if keepdim:
            raise ArgumentTypeError(f"{name}(): keepdim=True needs dim=", fix="use a" + name)
        if input.call.type.size == 0:
            raise ShapeError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                "Specify the reduction dim with the 'dim' argument.",
                fix="check .numel() first",
            )
        # Over the whole tensor, equal extremes share the gradient.
        dims = tuple(range(input.ndim))
        return wrap(record(operators.extreme, (input.call,), ("a" + name, dims, False)))
    position = wrap_dim(dim, input.ndim)
    _check_not_empty(name, input, (position,))
    found = results(record(operators.extreme_with_index, (input.call,), (name, position, keepdim)))
    return ValuesAndIndices(*map(wrap, found))


def _check_not_empty(name: str, input: Tensor, dims: tuple[int, ...]) -> None:
    for dim in dims:
        if input.ndim and input.shape[dim] == 0:
            raise DimensionError(
                f"{name}(): Expected reduction dim {dim} to have non-zero size.",
                fix="check the shape first",
            )


@public(method=True, out=True)
def amax(input: Tensor, dim: Dimensions = (), keepdim: bool = False) -> Tensor:
    """The largest elements over `dim`; equal ones share the gradient.

    The dimensions are removed, or have size 1 with `keepdim`; without `dim` they are all.

    >>> metaop.amax(metaop.tensor([[1, 5], [7, 2]]), dim=0)
    tensor([7, 5])
    """
    return _shared_extreme("amax", input, dim, keepdim)


@public(method=True, out=True)
def amin(input: Tensor, dim: Dimensions = (), keepdim: bool = False) -> Tensor:
    """The smallest elements over `dim`; equal ones share the gradient.

    The dimensions are removed, or have size 1 with `keepdim`; without `dim` they are all.

    >>> metaop.amin(metaop.tensor([[1, 5], [7, 2]]), dim=0)
    tensor([1, 2])
    """
    return _shared_extreme("amin", input, dim, keepdim)


def _shared_extreme(name: str, input: Tensor, dim: Dimensions, keepdim: bool) -> Tensor:
    dims = reduced_dimensions(dim, input.ndim)
    _check_not_empty(name, input, dims)
    return wrap(record(operators.extreme, (input.call,), (name, dims, keepdim)))


class Extremes(NamedTuple):
    """The smallest and the largest elements."""

    min: Tensor
    max: Tensor


@public(method=True, out=True)
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Extremes:
    """The smallest and the largest elements over `dim` or over all dimensions.

    >>> low, high = metaop.aminmax(metaop.tensor([3.0, 1.0, 2.0]))
    >>> low, high
    (tensor(1.), tensor(3.))
    """
    return Extremes(amin(input, dim, keepdim), amax(input, dim, keepdim))


@public(method=True, out=True)
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the first largest element along `dim`, or in the flattened tensor.

    The type is int64; the dimension is removed, or has size 1 with `keepdim`.

    >>> metaop.argmax(metaop.tensor([[1, 5], [7, 2]])), metaop.tensor([[1, 5], [7, 2]]).argmax(1)
    (tensor(2), tensor([1, 0]))
    """
    return _extreme_index("max", input, dim, keepdim)


@public(method=True, out=True)
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the first smallest element along `dim`, or in the flattened tensor.

    The type is int64; the dimension is removed, or has size 1 with `keepdim`.

    >>> metaop.argmin(metaop.tensor([3.0, 1.0, 2.0]))
    tensor(1)
    """
    return _extreme_index("min", input, dim, keepdim)


def _extreme_index(reducer: str, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if dim is not None:
        dim = wrap_dim(dim, input.ndim)
        _check_not_empty("arg" + reducer, input, (dim,))
    elif input.call.type.size == 0:
        raise DimensionError(
            f"arg{reducer}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument.",
            fix="check .numel() first",
        )
    return wrap(record(operators.extreme_index, (input.call,), (reducer, dim, keepdim)))


@public(method=True, out=True)
def all(input: Tensor, dim: Dimensions = None, keepdim: bool = False) -> Tensor:
    """Whether all elements over `dim` are nonzero; True over none.

    Without `dim` over all dimensions.

    >>> metaop.all(metaop.tensor([[True, False], [True, True]]), dim=1)
    tensor([False,  True])
    """
    return _truth("and", input, dim, keepdim)


@public(method=True, out=True)
def any(input: Tensor, dim: Dimensions = None, keepdim: bool = False) -> Tensor:
    """Whether any element over `dim` is nonzero; False over none.

    Without `dim` over all dimensions.

    >>> metaop.any(metaop.tensor([[True, False], [False, False]]), dim=1)
    tensor([ True, False])
    """
    return _truth("or", input, dim, keepdim)


def _truth(reducer: str, input: Tensor, dim: Dimensions, keepdim: bool) -> Tensor:
    # Unlike sums, truth over an empty list of dimensions is that of each element.
    dims = () if is_empty(dim) else reduced_dimensions(dim, input.ndim)
    return wrap(record(operators.truth, (input.call,), (reducer, dims, keepdim)))


@public(method=True)
def count_nonzero(input: Tensor, dim: Dimensions = None) -> Tensor:
    """The number of nonzero elements over `dim`; without `dim` over all dimensions.

    >>> metaop.count_nonzero(metaop.tensor([[0, 5], [7, 2]]), dim=0)
    tensor([1, 2])
    """
    dims = reduced_dimensions(dim, input.ndim)
    return wrap(record(operators.count_nonzero, (input.call,), (dims,)))


@public(method=True, out=True, float32_on_cuda="logsumexp")
def logsumexp(input: Tensor, dim: Dimensions, keepdim: bool = False) -> Tensor:
    """`log(sum(exp(x)))` over `dim` without overflow.

    The dimensions are removed, or have size 1 with `keepdim`.

    >>> metaop.logsumexp(metaop.tensor([0.0, 0.0]), 0)
    tensor(0.6931)
    """
    if not input.dtype.is_differentiable:
        input = input.to(pointwise.defaults.dtype)
    dims = reduced_dimensions(dim, input.ndim)
    return wrap(record(operators.logsumexp, (input.call,), (dims, keepdim)))
