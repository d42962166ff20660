"""Translates metaop's scalar functions to ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable

from metaop.errors import UnsupportedError
from metaop.onnx.exporting.writer import Writer
from metaop.unified_graph.dtype import DType

# From operands of the given type to the result.
Scalar = Callable[..., str]

_NAMES = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "asin": "Asin",
    "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos",
    "cosh": "Cosh", "div": "Div", "eq": "Equal", "erf": "Erf", "exp": "Exp", "floor": "Floor",
    "ge": "GreaterOrEqual", "gt": "Greater", "isinf": "IsInf", "isnan": "IsNaN",
    "le": "LessOrEqual", "log": "Log", "lt": "Less", "mul": "Mul", "neg": "Neg", "pow": "Pow",
    "reciprocal": "Reciprocal", "relu": "Relu", "round": "Round", "sgn": "Sign",
    "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "softplus": "Softplus",
    "sqrt": "Sqrt", "stop_gradient": "Identity", "sub": "Sub", "tan": "Tan", "tanh": "Tanh",
    "where": "Where", "maximum": "Max", "minimum": "Min", "clamp_min": "Max", "clamp_max": "Min",
}  # fmt: skip
# For bools, other operators apply.
_OF_TRUTH = {
    "add": "Or", "mul": "And", "bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor",
    "bitwise_not": "Not", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor",
    "logical_not": "Not", "maximum": "Or", "minimum": "And",
}  # fmt: skip
_OF_WHOLE = {
    "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor",
    "bitwise_not": "BitwiseNot", "remainder": "Mod", "trunc_divide": "Div",
}  # fmt: skip


def _truncated(w: Writer, x: str) -> str:
    return w.node("Mul", w.node("Sign", x), w.node("Floor", w.node("Abs", x)))


def _floor_divide(w: Writer, dtype: DType, a: str, b: str) -> str:
    if dtype.kind == "float":
        return w.node("Floor", w.node("Div", a, b))
    return w.node("Div", w.node("Sub", a, w.node("Mod", a, b)), b)


def _remainder(w: Writer, dtype: DType, a: str, b: str) -> str:
    return w.node("Sub", a, w.node("Mul", w.node("Floor", w.node("Div", a, b)), b))


def _log_add_exp(w: Writer, dtype: DType, a: str, b: str) -> str:
    gap = w.node("Neg", w.node("Abs", w.node("Sub", a, b)))
    return w.node("Add", w.node("Max", a, b), w.node("Softplus", gap))


def _square(w: Writer, dtype: DType, x: str) -> str:
    return w.node("Mul", x, x)


def _number(w: Writer, dtype: DType, value: float) -> str:
    return w.number(value, dtype)


_FORMULAS: dict[str, Callable[..., str]] = {
    "square": _square,
    "squared_deviation": lambda w, t, a, b: _square(w, t, w.node("Sub", a, b)),
    "rsqrt": lambda w, t, x: w.node("Reciprocal", w.node("Sqrt", x)),
    "hypot": lambda w, t, a, b: w.node("Sqrt", w.node("Add", _square(w, t, a), _square(w, t, b))),
    "exp2": lambda w, t, x: w.node("Exp", w.node("Mul", x, _number(w, t, math.log(2)))),
    "expm1": lambda w, t, x: w.node("Sub", w.node("Exp", x), _number(w, t, 1)),
    "log1p": lambda w, t, x: w.node("Log", w.node("Add", x, _number(w, t, 1))),
    "log2": lambda w, t, x: w.node("Mul", w.node("Log", x), _number(w, t, 1 / math.log(2))),
    "log10": lambda w, t, x: w.node("Mul", w.node("Log", x), _number(w, t, 1 / math.log(10))),
    "logaddexp": _log_add_exp,
    "logsigmoid": lambda w, t, x: w.node("Neg", w.node("Softplus", w.node("Neg", x))),
    "erfc": lambda w, t, x: w.node("Sub", _number(w, t, 1), w.node("Erf", x)),
    "trunc": lambda w, t, x: _truncated(w, x),
    "frac": lambda w, t, x: w.node("Sub", x, _truncated(w, x)),
    "floor_divide": _floor_divide,
    "trunc_divide": lambda w, t, a, b: _truncated(w, w.node("Div", a, b)),
    "remainder": _remainder,
    "fmod": lambda w, t, a, b: w.node("Mod", a, b, fmod=1),
    "ne": lambda w, t, a, b: w.node("Not", w.node("Equal", a, b)),
    "isfinite": lambda w, t, x: w.node("Not", w.node("Or", w.node("IsInf", x), w.node("IsNaN", x))),
}


def written(w: Writer, function: str, dtype: DType, operands: list[str]) -> str:
    """The name of a scalar function's result, for operands of a type.

    Raises UnsupportedError for functions without ONNX operators.
    """
    if dtype.kind == "bool" and function == "where":
        # Runtimes select only between numbers.
        chosen, left, right = operands
        first = w.node("And", chosen, left)
        return w.node("Or", first, w.node("And", w.node("Not", chosen), right))
    if dtype.kind == "bool" and function in _OF_TRUTH:
        return w.node(_OF_TRUTH[function], *operands)
    if dtype.kind == "int" and function in _OF_WHOLE:
        return w.node(_OF_WHOLE[function], *operands)
    if dtype.kind == "int" and function in ("floor", "ceil", "round", "trunc"):
        return operands[0]
    if function in _NAMES:
        return w.node(_NAMES[function], *operands)
    if function in _FORMULAS:
        return _FORMULAS[function](w, dtype, *operands)
    raise UnsupportedError(f"ONNX has no operator for the function {function} of {dtype.name}")
