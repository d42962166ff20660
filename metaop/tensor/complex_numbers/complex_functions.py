"""The functions and methods of complex tensors, each written with those of real ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from metaop.errors import ArgumentError, UnsupportedError
from metaop.tensor.arguments import infer_size, sizes, wrap_dim, wrap_dims
from metaop.tensor.complex_numbers.complex_products import (
    bilinear,
    both,
    dot,
    prod,
    vdot,
    with_bias,
)
from metaop.tensor.complex_numbers.complex_tensor import (
    PARTS,
    ComplexTensor,
    as_complex,
    complex,
    polar,
    view_as_complex,
)
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import ones_like, zeros_like
from metaop.tensor.functions.joining import cat as cat_real
from metaop.tensor.functions.joining import stack as stack_real
from metaop.tensor.functions.selection import where as where_real
from metaop.tensor.linear_algebra.contractions import einsum as einsum_real
from metaop.tensor.linear_algebra.contractions import equation_of
from metaop.tensor.options import reduced_dimensions
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType, complex64, complex128

# --- arithmetic -----------------------------------------------------------------------------


def _add(input: Any, other: Any, *, alpha: Any = 1) -> ComplexTensor:
    left, right = both(input, other if alpha == 1 else _mul(other, alpha))
    return complex(left.real + right.real, left.imag + right.imag)


def _sub(input: Any, other: Any, *, alpha: Any = 1) -> ComplexTensor:
    return _add(input, other, alpha=-alpha)


_product = bilinear(lambda x, y: x * y)
_matmul = bilinear(lambda x, y: x @ y)


def _mul(input: Any, other: Any) -> ComplexTensor:
    return _product(input, other)


def _einsum(*args: Any) -> ComplexTensor:
    equation, tensors = equation_of(args)
    if len(tensors) == 1:
        whole = as_complex(tensors[0])
        return complex(*(einsum_real(equation, x) for x in (whole.real, whole.imag)))
    if len(tensors) != 2:
        raise UnsupportedError("einsum of complex tensors takes one or two of them")
    return bilinear(lambda x, y: einsum_real(equation, x, y))(*tensors)


def _reciprocal(input: ComplexTensor) -> ComplexTensor:
    size = input.real.square() + input.imag.square()
    return complex(input.real / size, -input.imag / size)


def _div(input: Any, other: Any, *, rounding_mode: str | None = None) -> ComplexTensor:
    if rounding_mode is not None:
        raise ArgumentError(
            f"div: complex numbers cannot be rounded by rounding_mode={rounding_mode!r}",
            fix="leave rounding_mode out, or round the real and the imaginary part",
        )
    left, right = both(input, other)
    return _mul(left, _reciprocal(right))


def _neg(input: ComplexTensor) -> ComplexTensor:
    return view_as_complex(-input._pair)


def _conj(input: ComplexTensor) -> ComplexTensor:
    return complex(input.real, -input.imag)


def _abs(input: ComplexTensor) -> Tensor:
    return input._pair.norm(2, -1)


def _angle(input: ComplexTensor) -> Tensor:
    return input.imag.atan2(input.real)


def _exp(input: ComplexTensor) -> ComplexTensor:
    return polar(input.real.exp(), input.imag)


def _log(input: ComplexTensor) -> ComplexTensor:
    return complex(_abs(input).log(), _angle(input))


def _pow(input: Any, exponent: Any) -> ComplexTensor:
    base, power = both(input, exponent)
    if isinstance(exponent, int) and 1 <= exponent <= 4:
        result = base
        for _ in range(exponent - 1):
            result = _mul(result, base)
        return result
    return _exp(_mul(_log(base), power))


def _sqrt(input: ComplexTensor) -> ComplexTensor:
    return polar(_abs(input).sqrt(), _angle(input) / 2)


def _tanh(input: ComplexTensor) -> ComplexTensor:
    """(1 - exp(-2 z)) / (1 + exp(-2 z)) of the half plane where it does not overflow."""
    sign = input.real.sign() + (input.real == 0)
    falling = _exp(_mul(input, -2 * sign))
    return _mul(_div(_sub(1, falling), _add(1, falling)), sign)


def _sum(input: ComplexTensor, dim: Any = None, keepdim: bool = False) -> ComplexTensor:
    dims = _all_dims(input, dim)
    return view_as_complex(input._pair.sum(dims, keepdim) if dims else input._pair.clone())


def _mean(input: ComplexTensor, dim: Any = None, keepdim: bool = False) -> ComplexTensor:
    dims = _all_dims(input, dim)
    return view_as_complex(input._pair.mean(dims, keepdim) if dims else input._pair.clone())


def _all_dims(input: Tensor, dim: Any) -> tuple[int, ...]:
    """The dimensions to reduce; a number without dimensions has none of the pair's."""
    return reduced_dimensions(dim, input.ndim)


def _eq(input: Any, other: Any) -> Tensor:
    left, right = both(input, other)
    return left._pair.eq(right._pair).all(-1)


def _allclose(input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    left, right = both(input, other)
    return bool((_abs(_sub(left, right)) <= atol + rtol * _abs(right)).all())


# --- shapes ---------------------------------------------------------------------------------


def _on_pairs(name: str, prepare: Callable[..., tuple[Any, ...]]) -> Callable[..., ComplexTensor]:
    """A rearrangement of the numbers as one of the pairs; `prepare` gives its arguments."""

    def function(input: ComplexTensor, *args: Any, **kwargs: Any) -> ComplexTensor:
        return view_as_complex(getattr(input._pair, name)(*prepare(input, *args, **kwargs)))

    return function


def _dim(input: Tensor, dim: int = 0, *rest: Any) -> tuple[Any, ...]:
    return (wrap_dim(dim, input.ndim), *rest)


def _new_shape(input: Tensor, *shape: Any) -> tuple[Any, ...]:
    return (*infer_size(sizes(shape), input.numel()), 2)


def _pieces(name: str) -> Callable[..., tuple[ComplexTensor, ...]]:
    def function(input: ComplexTensor, size: Any, dim: int = 0) -> tuple[ComplexTensor, ...]:
        found = getattr(input._pair, name)(size, wrap_dim(dim, input.ndim))
        return tuple(map(view_as_complex, found))

    return function


def _roll(input: ComplexTensor, shifts: Any, dims: Any = None) -> ComplexTensor:
    if dims is None:
        rolled = input._pair.reshape(-1, 2).roll(shifts, 0)
        return view_as_complex(rolled.reshape(input._pair.shape))
    return view_as_complex(input._pair.roll(shifts, wrap_dims(dims, input.ndim)))


def _diagonal(input: ComplexTensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ComplexTensor:
    places = (wrap_dim(dim, input.ndim) for dim in (dim1, dim2))
    return view_as_complex(input._pair.diagonal(offset, *places).transpose(-1, -2))


def _unbind(input: ComplexTensor, dim: int = 0) -> tuple[ComplexTensor, ...]:
    return tuple(map(view_as_complex, input._pair.unbind(wrap_dim(dim, input.ndim))))


def _joined(join: Callable[..., Tensor], more: int) -> Callable[..., ComplexTensor]:
    def function(tensors: Sequence[Any], dim: int = 0) -> ComplexTensor:
        wide = any(x.dtype in (complex128, dtypes.float64) for x in tensors)
        listed = [as_complex(x, complex128 if wide else complex64) for x in tensors]
        place = wrap_dim(dim, listed[0].ndim + more)
        return view_as_complex(join([x._pair for x in listed], place))

    return function


def _transposed(input: ComplexTensor) -> ComplexTensor:
    return view_as_complex(input._pair.transpose(-3, -2))


def _reversed(input: ComplexTensor) -> ComplexTensor:
    return view_as_complex(input._pair.permute(*reversed(range(input.ndim)), input.ndim))


def _flattened(input: ComplexTensor, start_dim: int = 0, end_dim: int = -1) -> ComplexTensor:
    first, last = (wrap_dim(dim, input.ndim) for dim in (start_dim, end_dim))
    pair = input._pair.flatten(first, last) if input.ndim else input._pair.unsqueeze(0)
    return view_as_complex(pair)


def _squeezed(input: Tensor, dim: Any = None) -> tuple[Any, ...]:
    return (_all_dims(input, dim),)


def _to(input: ComplexTensor, *args: Any, **kwargs: Any) -> Tensor:
    given = [*args, *kwargs.values()]
    dtype = next((x for x in given if isinstance(x, DType)), None)
    others = [x for x in args if not isinstance(x, DType)]
    kwargs.pop("dtype", None)
    pair = input._pair.to(*others, **kwargs) if others or kwargs else input._pair
    moved = input if pair is input._pair else view_as_complex(pair)
    if dtype is None or dtype in PARTS:
        return as_complex(moved, dtype)
    return moved.real.to(dtype)


def _copy(input: ComplexTensor, src: Any, non_blocking: bool = False) -> ComplexTensor:
    input._pair.copy_(as_complex(src, input.dtype)._pair)
    return input


def _written(function: Callable[..., Any]) -> Callable[..., ComplexTensor]:
    """The in-place form of a function."""
    return lambda input, *args, **kwargs: _copy(input, function(input, *args, **kwargs))


def _where(condition: Tensor, input: Any, other: Any) -> ComplexTensor:
    left, right = both(input, other)
    return view_as_complex(where_real(condition.unsqueeze(-1), left._pair, right._pair))


def _equal(input: Any, other: Any) -> bool:
    return input.shape == other.shape and bool(_eq(input, other).all())


# What the functions of real tensors do with complex ones, by name.
FORMS: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "matmul": _matmul,
    "mm": _matmul,
    "bmm": _matmul,
    "einsum": _einsum,
    "neg": _neg,
    "reciprocal": _reciprocal,
    "conj": _conj,
    "resolve_conj": lambda input: input,
    "resolve_neg": lambda input: input,
    "abs": _abs,
    "angle": _angle,
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "sigmoid": lambda input: _reciprocal(_add(_exp(_neg(input)), 1)),
    "silu": lambda input: _div(input, _add(_exp(_neg(input)), 1)),
    "square": lambda input: _mul(input, input),
    "sin": lambda input: _mul(_sub(_exp(_mul(input, 1j)), _exp(_mul(input, -1j))), -0.5j),
    "cos": lambda input: _mul(_add(_exp(_mul(input, 1j)), _exp(_mul(input, -1j))), 0.5),
    "tanh": _tanh,
    "dot": dot,
    "vdot": vdot,
    "where": _where,
    "equal": _equal,
    "nonzero": lambda input: input.ne(0).nonzero(),
    "norm": lambda input, *args, **kwargs: _abs(input).norm(*args, **kwargs),
    "sum": _sum,
    "prod": prod,
    "mean": _mean,
    "eq": _eq,
    "ne": lambda input, other: _eq(input, other).logical_not(),
    "allclose": _allclose,
    "is_complex": lambda input: True,
    "isreal": lambda input: input.imag.eq(0),
    "is_floating_point": lambda input: False,
    "reshape": _on_pairs("reshape", _new_shape),
    "view": _on_pairs("view", _new_shape),
    "flatten": _flattened,
    "transpose": _on_pairs(
        "transpose", lambda x, dim0, dim1: (wrap_dim(dim0, x.ndim), wrap_dim(dim1, x.ndim))
    ),
    "permute": _on_pairs("permute", lambda x, *dims: (*wrap_dims(sizes(dims), x.ndim), x.ndim)),
    "movedim": _on_pairs(
        "movedim", lambda x, source, target: (wrap_dims(source, x.ndim), wrap_dims(target, x.ndim))
    ),
    "squeeze": _on_pairs("squeeze", _squeezed),
    "unsqueeze": _on_pairs("unsqueeze", lambda x, dim: (wrap_dim(dim, x.ndim + 1),)),
    "expand": _on_pairs("expand", lambda x, *size: (*sizes(size), 2)),
    "narrow": _on_pairs("narrow", _dim),
    "select": _on_pairs("select", _dim),
    "roll": _roll,
    "cumsum": _on_pairs("cumsum", _dim),
    "index_select": _on_pairs("index_select", _dim),
    "repeat": _on_pairs("repeat", lambda x, *counts: (*sizes(counts), 1)),
    "diagonal": _diagonal,
    "trace": lambda input: _sum(_diagonal(input)),
    "flip": _on_pairs("flip", lambda x, *dims: (wrap_dims(sizes(dims), x.ndim),)),
    "clone": _on_pairs("clone", lambda x, **options: ()),
    "contiguous": _on_pairs("contiguous", lambda x, **options: ()),
    "adjoint": lambda input: _conj(_transposed(input)),
    "split": _pieces("split"),
    "chunk": _pieces("chunk"),
    "tensor_split": _pieces("tensor_split"),
    "unbind": _unbind,
    "cat": _joined(cat_real, 0),
    "stack": _joined(stack_real, 1),
    "to": _to,
    "cpu": lambda input: _to(input, "cpu"),
    "cuda": lambda input, device="cuda": _to(input, device),
    "numel": lambda input: math.prod(input.shape),
    "size": lambda input, dim=None: input.shape if dim is None else input.shape[dim],
    "dim": lambda input: input.ndim,
    "copy_": _copy,
    "fill_": _copy,
    "zero_": lambda input: _copy(input, 0),
    "zeros_like": lambda input: view_as_complex(zeros_like(input._pair)),
    "ones_like": lambda input: as_complex(ones_like(input.real), input.dtype),
    "retain_grad": lambda input: input._pair.retain_grad(),
}
for _name in ("add", "sub", "mul", "div", "pow"):
    FORMS[_name + "_"] = _written(FORMS[_name])
_OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow"}
for _name, _function in FORMS.items():
    setattr(ComplexTensor, _name, _function)
# The method has its condition second.
ComplexTensor.where = lambda x, condition, other: _where(condition, x, other)
for _name, _called in {**_OPERATORS, "matmul": "matmul"}.items():
    _function = FORMS[_called]
    setattr(ComplexTensor, f"__{_name}__", _function)
    setattr(ComplexTensor, f"__r{_name}__", lambda x, y, f=_function: f(y, x))
for _name, _called in _OPERATORS.items():
    setattr(ComplexTensor, f"__i{_name}__", FORMS[_called + "_"])
_adjoint = FORMS["adjoint"]
for _name, _function in {"T": _reversed, "mT": _transposed, "H": _adjoint, "mH": _adjoint}.items():
    setattr(ComplexTensor, _name, property(_function))
for _name in ("neg", "abs", "eq", "ne"):
    setattr(ComplexTensor, f"__{_name}__", FORMS[_name])
ComplexTensor.__hash__ = Tensor.__hash__  # type: ignore[method-assign]
ComplexTensor.nelement = ComplexTensor.numel  # type: ignore[method-assign]


def accept_complex(namespace: dict[str, Any]) -> None:
    """Makes the functions of a module take complex tensors where tensors have such a method."""
    for name, function in FORMS.items():
        if callable(namespace.get(name)):
            namespace[name] = taking_complex(namespace[name], function)


def accept_complex_factors(namespace: dict[str, Any], names: Iterable[str]) -> None:
    """Makes functions of (input, weight, bias, …) that are linear in both take complex tensors."""
    for name in names:
        namespace[name] = taking_complex(namespace[name], with_bias(namespace[name]))


def taking_complex(real: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """The function `real`, and `other` where an argument is complex or a list with complex ones."""

    @wraps(real)
    def function(*args: Any, **kwargs: Any) -> Any:
        for value in args:
            kind = type(value)
            if kind is ComplexTensor or ((kind is list or kind is tuple) and _any_complex(value)):
                return other(*args, **kwargs)
        return real(*args, **kwargs)

    return function


def _any_complex(values: Iterable[Any]) -> bool:
    return any(type(value) is ComplexTensor for value in values)
