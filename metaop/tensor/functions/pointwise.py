"""Elementwise functions of tensors and numbers: arithmetic, transcendental functions, bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from metaop.errors import ArgumentError, DTypeError
from metaop.operators import pointwise as operators
from metaop.operators.pointwise import POINTWISE
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.promotion import (
    Number,
    Operand,
    binary,
    binary_function,
    defaults,
    mixed,
    result_type,
    unary_function,
)
from metaop.tensor.surface import in_every_form, public, synonym
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import record

abs = in_every_form(in_place_function=True)(unary_function("abs"))
acos = in_every_form(in_place_function=True, float32_on_cuda="acos")(unary_function("acos"))
acosh = in_every_form(in_place_function=True)(unary_function("acosh"))
asin = in_every_form(in_place_function=True, float32_on_cuda="asin")(unary_function("asin"))
asinh = in_every_form(in_place_function=True)(unary_function("asinh"))
atan = in_every_form(in_place_function=True)(unary_function("atan"))
atanh = in_every_form(in_place_function=True)(unary_function("atanh"))
bitwise_not = in_every_form()(unary_function("bitwise_not"))
ceil = in_every_form(in_place_function=True)(unary_function("ceil"))
cos = in_every_form(in_place_function=True)(unary_function("cos"))
cosh = in_every_form(in_place_function=True, float32_on_cuda="cosh")(unary_function("cosh"))
digamma = in_every_form()(unary_function("digamma"))
erf = in_every_form(in_place_function=True)(unary_function("erf"))
erfc = in_every_form(in_place_function=True)(unary_function("erfc"))
erfinv = in_every_form(float32_on_cuda="erfinv")(unary_function("erfinv"))
exp = in_every_form(in_place_function=True, float32_on_cuda="exp")(unary_function("exp"))
exp2 = in_every_form(in_place_function=True, float32_on_cuda="exp2")(unary_function("exp2"))
expm1 = in_every_form(in_place_function=True, float32_on_cuda="expm1")(unary_function("expm1"))
floor = in_every_form(in_place_function=True)(unary_function("floor"))
frac = in_every_form(in_place_function=True)(unary_function("frac"))
lgamma = in_every_form()(unary_function("lgamma"))
log = in_every_form(in_place_function=True, float32_on_cuda="log")(unary_function("log"))
log10 = in_every_form(in_place_function=True, float32_on_cuda="log10")(unary_function("log10"))
log1p = in_every_form(in_place_function=True, float32_on_cuda="log1p")(unary_function("log1p"))
log2 = in_every_form(in_place_function=True, float32_on_cuda="log2")(unary_function("log2"))
neg = in_every_form(in_place_function=True)(unary_function("neg"))
reciprocal = in_every_form(in_place_function=True, float32_on_cuda="reciprocal")(
    unary_function("reciprocal")
)
relu = public(method=True, in_place=True, in_place_function=True)(unary_function("relu"))
rsqrt = in_every_form(in_place_function=True, float32_on_cuda="rsqrt")(unary_function("rsqrt"))
sgn = in_every_form()(unary_function("sgn"))
sigmoid = in_every_form(in_place_function=True)(unary_function("sigmoid"))
sign = in_every_form()(unary_function("sign"))
sin = in_every_form(in_place_function=True)(unary_function("sin"))
sinh = in_every_form(in_place_function=True, float32_on_cuda="sinh")(unary_function("sinh"))
sqrt = in_every_form(in_place_function=True)(unary_function("sqrt"))
tan = in_every_form(in_place_function=True, float32_on_cuda="tan")(unary_function("tan"))
tanh = in_every_form(in_place_function=True)(unary_function("tanh"))
trunc = in_every_form(in_place_function=True)(unary_function("trunc"))

bitwise_and = in_every_form()(binary_function("bitwise_and"))
bitwise_or = in_every_form()(binary_function("bitwise_or"))
bitwise_xor = in_every_form()(binary_function("bitwise_xor"))
bitwise_left_shift = in_every_form()(binary_function("bitwise_left_shift", "left_shift"))
bitwise_right_shift = in_every_form()(binary_function("bitwise_right_shift", "right_shift"))
fmod = in_every_form()(binary_function("fmod"))
hypot = in_every_form()(binary_function("hypot"))
logaddexp = public(method=True, out=True)(binary_function("logaddexp"))
maximum = public(method=True, out=True)(binary_function("maximum"))
minimum = public(method=True, out=True)(binary_function("minimum"))
fmax = public(method=True, out=True)(binary_function("fmax"))
fmin = public(method=True, out=True)(binary_function("fmin"))
mul = in_every_form()(binary_function("mul"))
nextafter = in_every_form()(binary_function("nextafter"))
remainder = in_every_form()(binary_function("remainder"))
floor_divide = in_every_form()(binary_function("floor_divide"))


@in_every_form()
def add(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """`input + alpha * other`; the operands broadcast to one shape.

    An integer and a float give a float. Raises DTypeError for a float `alpha` of integers.

    >>> metaop.add(metaop.tensor([1.0, 2.0]), metaop.tensor([[10.0], [20.0]]), alpha=2)
    tensor([[21., 22.],
            [41., 42.]])
    """
    return binary(POINTWISE["add"], input, other if alpha == 1 else _scaled(input, other, alpha))


@in_every_form()
def sub(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """`input - alpha * other`; the operands broadcast to one shape.

    Raises DTypeError for a float `alpha` of integers, and for booleans.

    >>> metaop.sub(metaop.tensor([1, 2]), 3)
    tensor([-2, -1])
    """
    return binary(POINTWISE["sub"], input, other if alpha == 1 else _scaled(input, other, alpha))


@public()
def rsub(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """`other - alpha * input`; the operands broadcast to one shape.

    >>> metaop.rsub(metaop.tensor([1, 2]), 3)
    tensor([2, 1])
    """
    return binary(POINTWISE["sub"], other, input if alpha == 1 else _scaled(other, input, alpha))


def _scaled(input: Operand, other: Operand, alpha: Number) -> Operand:
    kind = result_type(input, other)
    if isinstance(alpha, complex) and not kind.is_complex:
        raise DTypeError(
            "For non-complex input tensors, argument alpha must not be a complex number.",
            fix="pass a real number, or convert the tensors with .cfloat()",
        )
    if isinstance(alpha, float) and not kind.is_differentiable:
        raise DTypeError(
            "For integral input tensors, argument alpha must not be a floating point number.",
            fix="pass an int, or convert the tensors with .float()",
        )
    return other * alpha


@in_every_form()
def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """The quotient: true division, or rounded ("floor" or "trunc" as `rounding_mode`).

    The operands broadcast to one shape. True division of integers gives floats. Raises
    ArgumentError for other modes, and DivisionError for the rounded quotient of an integer by 0.

    >>> metaop.div(metaop.tensor([7, -7]), 2)
    tensor([ 3.5000, -3.5000])
    >>> metaop.div(metaop.tensor([7, -7]), 2, rounding_mode="trunc")
    tensor([ 3, -3])
    """
    if rounding_mode is None:
        return _in_floats("div", input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        return binary(POINTWISE["trunc_divide"], input, other)
    raise ArgumentError(
        f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
        f"{rounding_mode!r}",
        fix="use one of these",
    )


def _in_floats(name: str, input: Operand, other: Operand) -> Tensor:
    """A binary function that converts integers to the default float type."""
    dtype = input.dtype if isinstance(input, Tensor) else None
    if dtype is not None and dtype.is_differentiable:
        return binary(POINTWISE[name], input, other)
    dtype = result_type(input, other)
    floating = dtype if dtype.is_differentiable else defaults.dtype
    return mixed(POINTWISE[name], (input, other), floating)


@in_every_form()
def copysign(input: Operand, other: Operand) -> Tensor:
    """The magnitude of `input` with the sign of `other`; the operands broadcast to one shape.

    >>> metaop.copysign(metaop.tensor([1.0, -2.0]), metaop.tensor([-0.0, 3.0]))
    tensor([-1.,  2.])
    """
    return _in_floats("copysign", input, other)


@in_every_form(in_place_function=True)
def xlogy(input: Operand, other: Operand) -> Tensor:
    """`input * log(other)`, 0 where `input` is 0; the operands broadcast to one shape.

    >>> metaop.xlogy(metaop.tensor([0.0, 2.0]), metaop.tensor([0.0, 10.0]))
    tensor([0.0000, 4.6052])
    """
    return _in_floats("xlogy", input, other)


@in_every_form(in_place_function=True)
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """`input * 2 ** other`; integers are converted to the default float type.

    The operands broadcast to one shape.

    >>> metaop.ldexp(metaop.tensor([1.0, 1.5]), metaop.tensor([3, -1]))
    tensor([8.0000, 0.7500])
    """
    operands = input, other
    dtype = result_type(*operands)
    floating = dtype if dtype.is_differentiable else defaults.dtype
    return wrap(record(operators.ldexp, (input.call, other.call), (floating,)))


@in_every_form()
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 where `input` is negative, 1 where it is positive, else `values`.

    The operands broadcast to one shape. The name is that of O. Heaviside.

    >>> metaop.heaviside(metaop.tensor([-1.0, 0.0, 2.0]), metaop.tensor(0.5))
    tensor([0.0000, 0.5000, 1.0000])
    """
    return binary(POINTWISE["heaviside"], input, values)


@in_every_form()
def atan2(input: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (other, input) from the first axis, in radians from -pi to pi.

    The operands broadcast to one shape.

    >>> metaop.atan2(metaop.tensor([1.0, -1.0]), metaop.tensor([1.0, -1.0]))
    tensor([ 0.7854, -2.3562])
    """
    return _in_floats("atan2", input, other)


@public(method=True, out=True)
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """`log2(2**input + 2**other)` without overflow; the operands broadcast to one shape.

    >>> metaop.logaddexp2(metaop.tensor([1.0, 2000.0]), metaop.tensor([1.0, 2000.0]))
    tensor([2.0000e+00, 2.0010e+03])
    """
    return logaddexp(input * math.log(2), other * math.log(2)) / math.log(2)


@in_every_form(float32_on_cuda="pow")
def pow(input: Operand, exponent: Operand) -> Tensor:
    """`input ** exponent`; some small exponents are products, quotients or roots.

    The operands broadcast to one shape. Raises DTypeError for negative powers of integers.

    >>> metaop.pow(metaop.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """
    if isinstance(exponent, (int, float)) and isinstance(input, Tensor):
        kind = input.dtype.kind
        if exponent < 0 and not isinstance(exponent, float) and kind in ("int", "bool"):
            raise DTypeError(
                "Integers to negative integer powers are not allowed.",
                fix="convert the base with .float()",
            )
        if kind == "float" and exponent in _WITHOUT_LOGARITHM:
            return _WITHOUT_LOGARITHM[exponent](input)
        if input.dtype.is_differentiable and -4 <= exponent <= 4 and exponent == int(exponent):
            return wrap(record(POINTWISE["pow"], (input.call, None), (None, float(exponent))))
    return binary(POINTWISE["pow"], input, exponent)


@in_every_form()
def float_power(input: Operand, exponent: Operand) -> Tensor:
    """`input ** exponent` in float64 or complex128; the operands broadcast to one shape.

    >>> metaop.float_power(metaop.tensor([2, 4]), -1)
    tensor([0.5000, 0.2500], dtype=metaop.float64)
    """
    is_complex = result_type(input, exponent).is_complex
    dtype = dtypes.complex128 if is_complex else dtypes.float64
    return mixed(POINTWISE["pow"], (input, exponent), dtype)


@in_every_form(in_place_function=True)
def square(input: Tensor) -> Tensor:
    """The square of every element; the shape stays.

    >>> metaop.square(metaop.tensor([-1.5, 2.0]))
    tensor([2.2500, 4.0000])
    """
    if input.dtype.kind == "bool":
        return pow(input, 2)
    return wrap(record(POINTWISE["square"], (input.call,)))


# Powers that are products, quotients or roots, as in PyTorch.
_WITHOUT_LOGARITHM: dict[float, Callable[[Tensor], Tensor]] = {
    -2: lambda x: reciprocal(square(x)),
    -1: reciprocal,
    -0.5: rsqrt,
    0.5: sqrt,
    2: square,
    3: lambda x: square(x) * x,
    4: lambda x: square(square(x)),
}


@public(method=True)
def positive(input: Tensor) -> Tensor:
    """The tensor itself; raises DTypeError for booleans, which have no sign.

    >>> metaop.positive(metaop.tensor([-1.5, 2.0]))
    tensor([-1.5000,  2.0000])
    """
    if input.dtype.kind == "bool":
        raise DTypeError(
            "The `+` operator, on a bool tensor is not supported.", fix="convert it with .int()"
        )
    return input


@in_every_form(in_place_function=True)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Rounded to the nearest integer, or to `decimals` places; halves go to the even neighbour.

    The shape and the type stay.

    >>> metaop.round(metaop.tensor([0.5, 1.5, -2.6]))
    tensor([ 0.,  2., -3.])
    >>> metaop.round(metaop.tensor([1.256]), decimals=2)
    tensor([1.2600])
    """
    step = POINTWISE["round"]
    if decimals == 0 or input.dtype.kind != "float":
        return wrap(record(step, (input.call,)))
    scale = 10.0**decimals
    return wrap(record(step, ((input * scale).call,))) / scale


@in_every_form(in_place_function=True)
def deg2rad(input: Tensor) -> Tensor:
    """Degrees converted to radians; the shape stays.

    >>> metaop.deg2rad(metaop.tensor([0.0, 180.0]))
    tensor([0.0000, 3.1416])
    """
    return input * (math.pi / 180)


@in_every_form(in_place_function=True)
def rad2deg(input: Tensor) -> Tensor:
    """Radians converted to degrees; the shape stays.

    >>> metaop.rad2deg(metaop.tensor([0.0, 1.0]))
    tensor([ 0.0000, 57.2958])
    """
    return input * (180 / math.pi)


@in_every_form(in_place_function=True)
def sinc(input: Tensor) -> Tensor:
    """`sin(pi x) / (pi x)`, 1 at 0; the shape stays.

    >>> metaop.sinc(metaop.tensor([0.0, 0.5, 1.5]))
    tensor([ 1.0000,  0.6366, -0.2122])
    """
    return _composed(operators.sinc, input)


@in_every_form(in_place_function=True)
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """`log(x / (1 - x))`; with `eps`, x is first clamped to [eps, 1 - eps]; the shape stays.

    It is the inverse of `sigmoid`: NaN outside 0 … 1.

    >>> metaop.logit(metaop.tensor([0.25, 0.5, 1.0]))
    tensor([-1.0986,  0.0000,     inf])
    """
    return _composed(operators.logit, input, eps)


@in_every_form(in_place_function=True)
def nan_to_num(
    input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN and the infinities replaced: by 0 and the largest finite numbers unless given.

    The shape stays.

    >>> metaop.nan_to_num(metaop.tensor([1.0, float("nan"), float("inf")]), posinf=9.0)
    tensor([1., 0., 9.])
    """
    return wrap(record(operators.nan_to_num, (input.call,), (nan, posinf, neginf)))


def _composed(step: Any, input: Tensor, *attributes: Any) -> Tensor:
    """A composite of one float tensor; integers are converted to the default type."""
    if not input.dtype.is_differentiable:
        input = input.to(defaults.dtype)
    return wrap(record(step, (input.call,), attributes))


absolute = synonym("absolute", abs, in_place_function=False)
arccos = synonym("arccos", acos)
arccosh = synonym("arccosh", acosh)
arcsin = synonym("arcsin", asin)
arcsinh = synonym("arcsinh", asinh)
arctan = synonym("arctan", atan)
arctan2 = synonym("arctan2", atan2)
arctanh = synonym("arctanh", atanh)
divide = synonym("divide", div)
fix = synonym("fix", trunc)
multiply = synonym("multiply", mul)
negative = synonym("negative", neg)
subtract = synonym("subtract", sub)
true_divide = synonym("true_divide", div)
