"""Functions of dense tensors that sparse ones have too, each family by one rule.

An elementwise function that keeps zero is applied to the stored values, whatever it is. The
functions of `metaop` find these forms when an argument is sparse (`operands.py`), and sparse
tensors have them as methods.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from numbers import Number
from typing import Any

import numpy as np

from metaop.errors import ArgumentError, ShapeError, UnsupportedError
from metaop.tensor.arguments import wrap_dims
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.functions import pointwise
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.operands import SPARSE_FORMS, no_sparse_form
from metaop.tensor.sparse.layouts import layout, strided
from metaop.tensor.sparse.tensors import SparseTensor, without_elements
from metaop.tensor.surface import DECLARED
from metaop.unified_graph.dtype import DType


def of_sparse(*names: str, method: bool = True) -> Callable[[Callable], Callable]:
    """Declares a function of sparse tensors for the functions of `metaop` called `names`.

    Without `names` it is its own. With `method`, sparse tensors have it too.
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names or (function.__name__,):
            SPARSE_FORMS[name] = function
            if method:
                setattr(SparseTensor, name, function)
        return function

    return declare


# --- elementwise ----------------------------------------------------------------------------------

# Tests of one element, beside the functions of `pointwise.py`.
_TESTS = ("isfinite", "isinf", "isnan", "isneginf", "isposinf", "signbit")


@cache
def _keeps_zero(
    function: Callable[..., Tensor], dtype: DType, args: tuple, options: tuple[tuple[str, Any], ...]
) -> bool:
    with no_grad():
        found: Any = function(from_array(np.zeros(1), dtype), *args, **dict(options))
        return not (found != 0).any().item()


def _elementwise(function: Callable[..., Tensor]) -> Callable[..., SparseTensor]:
    name = function.__name__

    def form(input: Any, *args: Any, **options: Any) -> SparseTensor:
        numbers = *args, *options.values()
        if not (isinstance(input, SparseTensor) and all(_is_number(one) for one in numbers)):
            raise no_sparse_form(f"{name} of several tensors")
        if not _keeps_zero(function, input.dtype, args, tuple(options.items())):
            raise UnsupportedError(
                f"{name} of a sparse tensor would make the result tensor dense, because 0 does not "
                "stay 0",
                fix="call .to_dense() first, or apply it to .coalesce().values()",
            )
        whole = input._of_unique()
        return whole._with(function(whole._held, *args, **options))

    form.__name__ = form.__qualname__ = name
    form.__doc__ = function.__doc__
    return form


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, (Number, str))


def _in_place(name: str, form: Callable[..., SparseTensor]) -> None:
    def method(self: SparseTensor, *args: Any, **options: Any) -> SparseTensor:
        return self._become(name, form(self, *args, **options))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{form.__name__}` in place, which returns the tensor."
    setattr(SparseTensor, name, method)


for _name, _declared in DECLARED.items():
    if _declared.function in vars(pointwise).values() or _name in _TESTS:
        _form = _elementwise(_declared.function)
        of_sparse(_name, method=bool(_declared.method))(_form)
        if _declared.in_place:
            _in_place(_name + "_", _form)


# --- arithmetic -----------------------------------------------------------------------------------


@of_sparse()
def add(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """The sum of two sparse tensors (sparse), or of a sparse and a dense one (dense)."""
    return input + (other if alpha == 1 else other * alpha)


@of_sparse("sub", "subtract")
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """The difference of two sparse tensors (sparse), or of a sparse and a dense one (dense)."""
    return input - (other if alpha == 1 else other * alpha)


@of_sparse("mul", "multiply")
def mul(input: Any, other: Any) -> SparseTensor:
    """The product, elementwise, which is sparse."""
    return input * other


@of_sparse("div", "divide", "true_divide")
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> SparseTensor:
    """The quotient of a sparse tensor and a number, exact or rounded as `rounding_mode`.

    Raises UnsupportedError for a sparse divisor, and ArgumentError for a tensor of elements.
    """
    if isinstance(other, SparseTensor):
        raise no_sparse_form("division by a sparse tensor")
    if getattr(other, "ndim", 0):
        raise ArgumentError(
            "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
            f"{list(other.shape)} for divisor)",
            fix="multiply with the reciprocal of a dense tensor",
        )
    if rounding_mode is None:
        return input._with(input._held / other)
    whole = input._of_unique()
    return whole._with(whole._held.div(other, rounding_mode=rounding_mode))


for _name, _form in (("add", add), ("sub", sub), ("mul", mul), ("div", div)):
    _in_place(_name + "_", _form)


# --- products -------------------------------------------------------------------------------------


@of_sparse("matmul", "mm", "mv", method=False)
def matmul(input: Any, other: Any) -> Any:
    """The product with a dense matrix or vector (dense), or with a sparse matrix (sparse)."""
    return input @ other


@of_sparse()
def bmm(input: SparseTensor, mat2: Tensor) -> Tensor:
    """The products of a batch of sparse matrices and dense ones: (B, N, K), (B, K, M) -> (B, N, M).

    Raises ShapeError for other shapes.
    """
    other: Any = mat2
    if input.ndim != 3 or other.ndim != 3 or input.shape[::2] != tuple(other.shape[:2]):
        raise ShapeError(f"bmm: shapes {list(input.shape)} and {list(other.shape)} do not match")
    batch, rows, columns = input.shape
    where, row, column = input._coordinates
    # One matrix with the batch's along its diagonal.
    places = np.stack([where * rows + row, where * columns + column])
    diagonal = SparseTensor(places, input._held, (batch * rows, batch * columns))
    return (diagonal @ other.reshape(batch * columns, -1)).reshape(batch, rows, -1)


@of_sparse(method=False)
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """`beta * input + alpha * (mat1 @ mat2)` with sparse matrices among the three."""
    return add(input * beta, mat1 @ mat2, alpha=alpha)


@of_sparse(method=False)
def linear(input: Tensor, weight: SparseTensor, bias: Tensor | None = None) -> Any:
    """`input @ weight.t() + bias` with a sparse weight (M, K): (…, K) -> (…, M)."""
    found: Any = input.reshape(-1, input.shape[-1]) @ weight.t()  # type: ignore[attr-defined]
    found = found.reshape(*input.shape[:-1], weight.shape[0])
    return found if bias is None else found + bias


# --- reductions -----------------------------------------------------------------------------------


@of_sparse()
def norm(
    input: SparseTensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Tensor:
    """The `p`-norm of all elements, which is dense.

    Raises UnsupportedError if `dim` are not all dimensions.
    """
    if dim not in (None, ()) and len(wrap_dims(dim, input.ndim)) != input.ndim:
        raise UnsupportedError(
            "norm of a sparse tensor only supports full reductions, so 'dim' must either be empty "
            "or contain all dimensions",
            fix="omit dim, or call .to_dense() first",
        )
    if p not in ("fro", "nuc", None) and p < 0:
        raise no_sparse_form(f"norm with p={p}")
    found: Any = input._of_unique()._held.norm(p, dtype=dtype)
    return found.reshape((1,) * input.ndim) if keepdim else found


@of_sparse()
def any(input: SparseTensor) -> Tensor:
    """Whether an element is not zero."""
    return input._of_unique()._held.any()


# --- what they are, and others like them ----------------------------------------------------------


def _of_values(name: str) -> None:
    function = getattr(Tensor, name)

    def form(self: SparseTensor, *args: Any, **options: Any) -> Any:
        found = function(self._held, *args, **options)
        return self._with(found) if isinstance(found, Tensor) else found

    form.__name__ = form.__qualname__ = name
    form.__doc__ = function.__doc__
    of_sparse(name)(form)


for _name in (
    *("bfloat16", "bool", "byte", "cdouble", "cfloat", "char", "clone", "conj", "double"),
    *("element_size", "float", "half", "int", "is_complex", "is_floating_point", "long", "short"),
):
    _of_values(_name)


@of_sparse("zeros_like", "empty_like", method=False)
def zeros_like(input: SparseTensor, *, layout: layout | None = None, **options: Any) -> Any:
    """Zeros of the shape, dtype and device of a sparse tensor, and of its layout or another."""
    zeros = input._held.new_zeros(input.shape, **options)
    kind = layout or input.layout
    return zeros if kind is strided else without_elements("zeros_like", zeros, kind)


for _name, _method in vars(SparseTensor).items():
    if _name in DECLARED:
        SPARSE_FORMS.setdefault(_name, _method)
