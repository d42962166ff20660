"""Elementwise operators."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

import metaop
from metaop.nn import functional as F
from metaop.onnx.table import binary, on_host, operator, rows, unary
from metaop.onnx.values import Host, has_tensor_type, numpy_type, to_host, to_tensor
from metaop.tensor.core import Tensor
from metaop.unified_graph import dtype as dtypes

rows(
    operator,
    {
        name: unary(function)
        for name, function in {
            "Abs": metaop.abs,
            "Acos": metaop.acos,
            "Acosh": metaop.acosh,
            "Asin": metaop.asin,
            "Asinh": metaop.asinh,
            "Atan": metaop.atan,
            "Atanh": metaop.atanh,
            "BitwiseNot": metaop.bitwise_not,
            "Ceil": metaop.ceil,
            "Cos": metaop.cos,
            "Cosh": metaop.cosh,
            "Erf": metaop.erf,
            "Exp": metaop.exp,
            "Floor": metaop.floor,
            "IsNaN": metaop.isnan,
            "Log": metaop.log,
            "Mish": F.mish,
            "Neg": metaop.neg,
            "Not": metaop.logical_not,
            "Reciprocal": metaop.reciprocal,
            "Relu": metaop.relu,
            "Round": metaop.round,
            "Sigmoid": metaop.sigmoid,
            "Sign": metaop.sign,
            "Sin": metaop.sin,
            "Sinh": metaop.sinh,
            "Softplus": F.softplus,
            "Softsign": F.softsign,
            "Sqrt": metaop.sqrt,
            "Tan": metaop.tan,
            "Tanh": metaop.tanh,
        }.items()
    },
)
rows(
    operator,
    {
        name: binary(function)
        for name, function in {
            "Add": metaop.add,
            "And": metaop.logical_and,
            "BitwiseAnd": metaop.bitwise_and,
            "BitwiseOr": metaop.bitwise_or,
            "BitwiseXor": metaop.bitwise_xor,
            "Equal": metaop.eq,
            "Greater": metaop.gt,
            "GreaterOrEqual": metaop.ge,
            "Less": metaop.lt,
            "LessOrEqual": metaop.le,
            "Mul": metaop.mul,
            "Or": metaop.logical_or,
            "Sub": metaop.sub,
            "Xor": metaop.logical_xor,
        }.items()
    },
)


@operator("Div")
def div(a: Tensor, b: Tensor) -> Tensor:
    """Division; integers round towards 0."""
    whole = a.dtype.kind == "int"
    return metaop.div(a, b, rounding_mode="trunc" if whole else None)


@operator("Mod")
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """The remainder with the sign of the divisor, or with `fmod` that of the dividend."""
    return metaop.fmod(a, b) if fmod else metaop.remainder(a, b)


@operator("Pow")
def power(base: Tensor, exponent: Tensor) -> Tensor:
    """The result has the type of the base."""
    if base.dtype.kind == "int" and exponent.dtype.kind == "float":
        return metaop.pow(base.to(exponent.dtype), exponent).to(base.dtype)
    return metaop.pow(base, exponent).to(base.dtype)


@operator("BitShift")
def bit_shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    """Left or right by so many bits."""
    shift = metaop.bitwise_left_shift if direction == "LEFT" else metaop.bitwise_right_shift
    return shift(a, b)


@operator("Sum")
def add_all(*terms: Tensor) -> Tensor:
    """The sum of tensors."""
    return reduce(metaop.add, terms)


@operator("Mean")
def mean_of_all(*terms: Tensor) -> Tensor:
    """The mean of tensors."""
    return reduce(metaop.add, terms) / len(terms)


@operator("Max")
def largest(*terms: Tensor) -> Tensor:
    """The largest of tensors, element by element."""
    return reduce(metaop.maximum, terms)


@operator("Min")
def smallest(*terms: Tensor) -> Tensor:
    """The smallest of tensors, element by element."""
    return reduce(metaop.minimum, terms)


@operator("Where")
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """One of two values."""
    return metaop.where(condition, x, y)


@operator("IsInf")
def is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Where a number is infinite, for the requested signs."""
    if detect_negative and detect_positive:
        return metaop.isinf(x)
    if detect_positive:
        return metaop.isposinf(x)
    return metaop.isneginf(x) if detect_negative else metaop.zeros_like(x, dtype=metaop.bool)


@operator("Clip")
def clip(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Clamps to two bounds; if they cross, the upper one applies."""
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        found = x if min is None else metaop.maximum(x, metaop.as_tensor(min, dtype=x.dtype))
        return found if max is None else metaop.minimum(found, metaop.as_tensor(max, dtype=x.dtype))
    low, high = (None if one is None else np.asarray(one).item() for one in (min, max))
    return x if low is None and high is None else metaop.clamp(x, low, high)


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """x, or alpha x where it is negative."""
    return F.leaky_relu(x, alpha)


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x, or alpha (exp(x) - 1) where it is negative."""
    return F.elu(x, alpha)


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x, or alpha (exp(x / alpha) - 1) where it is negative."""
    return F.celu(x, alpha)


@operator("Selu")
def selu(
    x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    """SELU, by default with the constants of the paper."""
    return gamma * (metaop.relu(x) + alpha * metaop.expm1(metaop.clamp(x, max=0)))


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x."""
    return F.gelu(x, approximate=approximate)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """alpha x + beta, between 0 and 1."""
    return metaop.clamp(alpha * x + beta, 0, 1)


@operator("HardSwish")
def hard_swish(x: Tensor) -> Tensor:
    """x times a piecewise linear sigmoid."""
    return F.hardswish(x)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x sigmoid(alpha x)."""
    return F.silu(x) if alpha == 1 else x * metaop.sigmoid(alpha * x)


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x where it is greater than alpha, else 0."""
    return F.threshold(x, alpha, 0.0)


@operator("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """0 between the bounds, and moved by the bias outside of them."""
    moved = metaop.where(x < -lambd, x + bias, metaop.where(x > lambd, x - bias, 0 * x))
    return moved.to(x.dtype)


@operator("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """PReLU; the slope broadcasts like any operand."""
    return metaop.where(x >= 0, x, x * slope)


@operator("Identity")
def identity(x: Any) -> Any:
    """Returns its argument."""
    return x


@operator("Cast")
def cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """Converts numbers, strings and bools to another type."""
    return converted(x, numpy_type(to), bool(saturate), round_mode)


@operator("CastLike")
def cast_like(x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    """Converts to the type of another value."""
    kind = like.dtype.numpy if isinstance(like, Tensor) else like.dtype
    return converted(x, kind, bool(saturate), round_mode)


@operator("BitCast")
def bit_cast(x: Any, *, to: int) -> Any:
    """The same bits as numbers of another type of the same size."""
    array = np.array(to_host(x), order="C").view(numpy_type(to))
    return to_tensor(array) if has_tensor_type(array) else array


def converted(x: Any, kind: np.dtype, saturate: bool = True, round_mode: str = "up") -> Any:
    """Converts a value to a NumPy dtype; NumPy computes dtypes that tensors do not have."""
    known = None if kind.kind == "c" else dtypes.from_numpy_dtype(kind)
    if isinstance(x, Tensor) and known is not None:
        return x.to(known)
    return converted_array(to_host(x), kind, saturate, round_mode)


_NARROW_WHOLE = ("int4", "uint4", "int2", "uint2")


def converted_array(
    array: np.ndarray, kind: np.dtype, saturate: bool = True, round_mode: str = "up"
) -> np.ndarray:
    """`converted` for an array."""
    import ml_dtypes

    with np.errstate(all="ignore"):
        if kind.kind == "O":
            return _texts(array)
        if array.dtype == object:
            numbers = np.array([float(one) for one in array.ravel()], np.float64)
            if kind.kind in "iu":
                numbers = np.array([int(one) for one in array.ravel()], object)
            return numbers.reshape(array.shape).astype(kind)
        if kind.name == "float8_e8m0fnu":
            return _powers_of_two(array, saturate, round_mode)
        if kind.name in _NARROW_WHOLE:
            bits, signed = int(kind.name[-1]), not kind.name.startswith("u")
            whole = array.astype(np.float64).astype(np.int64) & ((1 << bits) - 1)
            if signed:
                whole = np.where(whole >= 1 << (bits - 1), whole - (1 << bits), whole)
            return whole.astype(np.int8).astype(kind)
        if kind.name.startswith(("float8", "float4", "float6")):
            return _narrow_floats(array, kind, saturate)
        if array.dtype.name.startswith(("float8", "float4", "float6", *_NARROW_WHOLE)):
            array = array.astype(np.float32)
        if kind == ml_dtypes.bfloat16 and array.dtype.kind in "iub":
            array = array.astype(np.float32)
        return array.astype(kind)


def _texts(array: np.ndarray) -> np.ndarray:
    if array.dtype == object:
        return array
    if array.dtype.kind != "f":
        return array.astype(str).astype(object)
    texts = []
    for one in array.ravel():
        number = float(one)
        is_whole = math.isfinite(number) and number == int(number)
        texts.append(
            {"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(str(number))
            or (str(int(number)) if is_whole else str(one))
        )
    return np.array(texts, object).reshape(array.shape)


def _narrow_floats(array: np.ndarray, kind: np.dtype, saturate: bool) -> np.ndarray:
    import ml_dtypes

    wide = array.astype(np.float32)
    found = wide.astype(kind)
    info = ml_dtypes.finfo(kind)
    top = float(info.max)
    if not saturate and not kind.name.startswith(("float4", "float6")):
        return found
    is_number = ~np.isnan(wide)
    limited = np.clip(wide, -top, top).astype(kind)
    return np.where(is_number, limited, found).astype(kind)


def _powers_of_two(array: np.ndarray, saturate: bool, round_mode: str) -> np.ndarray:
    from onnx import numpy_helper

    return numpy_helper.to_float8e8m0(array.astype(np.float32), saturate, round_mode)


def _numpy_divide(a: Any, b: Any) -> Any:
    if a.dtype.kind == "u":
        return a // b
    if a.dtype.kind == "i":
        return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)
    return a / b


rows(
    on_host,
    {
        "Abs": lambda x: np.abs(x),
        "Neg": lambda x: -x,
        "Not": lambda x: np.logical_not(x),
        "Ceil": lambda x: np.ceil(x),
        "Floor": lambda x: np.floor(x),
        "Round": lambda x: np.round(x),
        "Sqrt": lambda x: np.sqrt(x),
        "Sign": lambda x: np.sign(x),
        "Identity": lambda x: x,
        "Reciprocal": lambda x: np.reciprocal(x),
        "BitwiseNot": lambda x: np.bitwise_not(x),
        "Add": lambda a, b: a + b,
        "Sub": lambda a, b: a - b,
        "Mul": lambda a, b: a * b,
        "Div": _numpy_divide,
        "And": lambda a, b: np.logical_and(a, b),
        "Or": lambda a, b: np.logical_or(a, b),
        "Xor": lambda a, b: np.logical_xor(a, b),
        "BitwiseAnd": lambda a, b: a & b,
        "BitwiseOr": lambda a, b: a | b,
        "BitwiseXor": lambda a, b: a ^ b,
        "Equal": lambda a, b: np.equal(a, b).astype(bool),
        "Greater": lambda a, b: np.greater(a, b),
        "GreaterOrEqual": lambda a, b: np.greater_equal(a, b),
        "Less": lambda a, b: np.less(a, b),
        "LessOrEqual": lambda a, b: np.less_equal(a, b),
        "Pow": lambda a, b: np.power(a, b).astype(a.dtype),
        "Sum": lambda *terms: reduce(np.add, terms),
        "Max": lambda *terms: reduce(np.maximum, terms),
        "Min": lambda *terms: reduce(np.minimum, terms),
        "Where": lambda condition, x, y: np.where(condition, x, y),
    },
)


@on_host("Mod")
def mod_of_arrays(a: Host, b: Host, *, fmod: int = 0) -> np.ndarray:
    """The remainder with the sign of the divisor, or with `fmod` that of the dividend."""
    return np.fmod(a, b) if fmod else np.mod(a, b)


@on_host("BitShift")
def bit_shift_of_arrays(a: Host, b: Host, *, direction: str) -> np.ndarray:
    """Left or right by so many bits."""
    return np.left_shift(a, b) if direction == "LEFT" else np.right_shift(a, b)


@on_host("Clip")
def clip_array(x: Host, min: Host | None = None, max: Host | None = None) -> np.ndarray:
    """Clamps to two bounds."""
    bounded = x if min is None else np.maximum(x, np.asarray(min, x.dtype))
    return bounded if max is None else np.minimum(bounded, np.asarray(max, x.dtype))
