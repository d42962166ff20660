"""Elementwise functions of tensors and numbers: arithmetic, transcendental functions, bits."""

from __future__ import annotations

import math
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
    number_call,
    pointwise,
    result_type,
    tensor_argument,
    unary_function,
)
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import record

__all__ = ["Number", "Operand", "defaults", "number_call", "pointwise", "result_type"]


abs = unary_function("abs")
acos = unary_function("acos")
acosh = unary_function("acosh")
asin = unary_function("asin")
asinh = unary_function("asinh")
atan = unary_function("atan")
atanh = unary_function("atanh")
bitwise_not = unary_function("bitwise_not")
ceil = unary_function("ceil")
cos = unary_function("cos")
cosh = unary_function("cosh")
digamma = unary_function("digamma")
erf = unary_function("erf")
erfc = unary_function("erfc")
erfinv = unary_function("erfinv")
exp = unary_function("exp")
exp2 = unary_function("exp2")
expm1 = unary_function("expm1")
floor = unary_function("floor")
frac = unary_function("frac")
lgamma = unary_function("lgamma")
log = unary_function("log")
log10 = unary_function("log10")
log1p = unary_function("log1p")
log2 = unary_function("log2")
neg = unary_function("neg")
reciprocal = unary_function("reciprocal")
relu = unary_function("relu")
rsqrt = unary_function("rsqrt")
sgn = unary_function("sgn")
sigmoid = unary_function("sigmoid")
sign = unary_function("sign")
sin = unary_function("sin")
sinh = unary_function("sinh")
sqrt = unary_function("sqrt")
tan = unary_function("tan")
tanh = unary_function("tanh")
trunc = unary_function("trunc")

bitwise_and = binary_function("bitwise_and")
bitwise_or = binary_function("bitwise_or")
bitwise_xor = binary_function("bitwise_xor")
bitwise_left_shift = binary_function("bitwise_left_shift", "left_shift")
bitwise_right_shift = binary_function("bitwise_right_shift", "right_shift")
fmod = binary_function("fmod")
hypot = binary_function("hypot")
logaddexp = binary_function("logaddexp")
maximum = binary_function("maximum")
minimum = binary_function("minimum")
fmax = binary_function("fmax")
fmin = binary_function("fmin")
mul = binary_function("mul")
nextafter = binary_function("nextafter")
remainder = binary_function("remainder")
floor_divide = binary_function("floor_divide")


def add(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """`input + alpha * other`."""
    return binary(POINTWISE["add"], input, other if alpha == 1 else _scaled(input, other, alpha))


def sub(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """`input - alpha * other`."""
    return binary(POINTWISE["sub"], input, other if alpha == 1 else _scaled(input, other, alpha))


def rsub(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """`other - alpha * input`."""
    return binary(POINTWISE["sub"], other, input if alpha == 1 else _scaled(other, input, alpha))


def _scaled(input: Operand, other: Operand, alpha: Number) -> Operand:
    if isinstance(alpha, float) and result_type(input, other).kind != "float":
        raise DTypeError(
            "For integral input tensors, argument alpha must not be a floating point number.",
            fix="pass an int, or convert the tensors with .float()",
        )
    return other * alpha


def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """The quotient: true division, or rounded ("floor" or "trunc" as `rounding_mode`)."""
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
    """A binary function for which integers are converted to the default float type."""
    dtype = input.dtype if isinstance(input, Tensor) else None
    if dtype is not None and dtype.kind == "float":
        return binary(POINTWISE[name], input, other)
    dtype = result_type(input, other)
    floating = dtype if dtype.kind == "float" else defaults.dtype
    return mixed(POINTWISE[name], (input, other), floating)


def copysign(input: Operand, other: Operand) -> Tensor:
    """The magnitude of `input` with the sign of `other`."""
    return _in_floats("copysign", input, other)


def xlogy(input: Operand, other: Operand) -> Tensor:
    """`input * log(other)`, 0 where `input` is 0."""
    return _in_floats("xlogy", input, other)


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """`input * 2 ** other`; integers are converted to the default float type."""
    operands = tensor_argument(input, "ldexp"), tensor_argument(other, "ldexp")
    dtype = result_type(*operands)
    floating = dtype if dtype.kind == "float" else defaults.dtype
    return wrap(record(operators.ldexp, (input.call, other.call), (floating,)))


def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 where `input` is negative, 1 where it is positive, else `values`."""
    return binary(POINTWISE["heaviside"], input, values)


def atan2(input: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (other, input) with the first axis."""
    return _in_floats("atan2", input, other)


def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """`log2(2**input + 2**other)` without overflow."""
    return logaddexp(input * math.log(2), other * math.log(2)) / math.log(2)


def pow(input: Operand, exponent: Operand) -> Tensor:
    """`input ** exponent`; small whole exponents are compiled in."""
    if isinstance(exponent, (int, float)) and isinstance(input, Tensor):
        dtype = input.dtype
        if dtype.kind != "float":
            if exponent < 0 and not isinstance(exponent, float):
                raise DTypeError(
                    "Integers to negative integer powers are not allowed.",
                    fix="convert the base with .float()",
                )
        elif -4 <= exponent <= 4 and exponent == int(exponent):
            return wrap(record(POINTWISE["pow"], (input.call, None), (None, float(exponent))))
    return binary(POINTWISE["pow"], input, exponent)


def float_power(input: Operand, exponent: Operand) -> Tensor:
    """`input ** exponent` in float64."""
    return mixed(POINTWISE["pow"], (input, exponent), dtypes.float64)


def square(input: Tensor) -> Tensor:
    """The square of every element."""
    if tensor_argument(input, "square").dtype.kind == "bool":
        return pow(input, 2)
    return wrap(record(POINTWISE["square"], (input.call,)))


def positive(input: Tensor) -> Tensor:
    """The tensor itself; booleans have no sign."""
    if input.dtype.kind == "bool":
        raise DTypeError(
            "The `+` operator, on a bool tensor is not supported.", fix="convert it with .int()"
        )
    return input


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Rounded to the nearest integer, or to `decimals` places; halves go to the even neighbour."""
    step = POINTWISE["round"]
    if decimals == 0 or input.dtype.kind != "float":
        return wrap(record(step, (input.call,)))
    scale = 10.0**decimals
    return wrap(record(step, ((input * scale).call,))) / scale


def deg2rad(input: Tensor) -> Tensor:
    """Degrees to radians."""
    return input * (math.pi / 180)


def rad2deg(input: Tensor) -> Tensor:
    """Radians to degrees."""
    return input * (180 / math.pi)


def sinc(input: Tensor) -> Tensor:
    """`sin(pi x) / (pi x)`, 1 at 0."""
    return _composed(operators.sinc, input)


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """`log(x / (1 - x))`; with `eps`, x is first clamped to [eps, 1 - eps]."""
    return _composed(operators.logit, input, eps)


def nan_to_num(
    input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN and the infinities replaced: by 0 and the largest finite numbers unless given."""
    return wrap(record(operators.nan_to_num, (input.call,), (nan, posinf, neginf)))


def _composed(step: Any, input: Tensor, *attributes: Any) -> Tensor:
    """A composite of one float tensor; integers are converted to the default type."""
    if tensor_argument(input, step.name).dtype.kind != "float":
        input = input.to(defaults.dtype)
    return wrap(record(step, (input.call,), attributes))


absolute = abs
arccos = acos
arccosh = acosh
arcsin = asin
arcsinh = asinh
arctan = atan
arctan2 = atan2
arctanh = atanh
divide = div
fix = trunc
multiply = mul
negative = neg
subtract = sub
true_divide = div

_UNARY = (
    *("abs", "absolute", "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan"),
    *("arctanh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "cos", "cosh"),
    *("deg2rad", "digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "fix", "floor"),
    *("frac", "lgamma", "log", "log10", "log1p", "log2", "logit", "nan_to_num", "neg"),
    *("negative", "rad2deg", "reciprocal", "relu", "round", "rsqrt", "sgn", "sigmoid", "sign"),
    *("sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
)
_BINARY = (
    *("add", "arctan2", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or"),
    *("bitwise_right_shift", "bitwise_xor", "copysign", "div", "divide", "float_power"),
    *("floor_divide", "fmod", "heaviside", "hypot", "ldexp", "mul", "multiply", "nextafter"),
    *("pow", "remainder", "sub", "subtract", "true_divide", "xlogy"),
)
IN_PLACE = (*_UNARY, *_BINARY)
METHODS = (
    *IN_PLACE,
    *("fmax", "fmin", "logaddexp", "logaddexp2", "maximum", "minimum", "positive"),
)
