"""Functions of single elements, with the promotion of the standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import metaop
from metaop.array_api.types import promoted
from metaop.tensor.core import Tensor

# The standard's names and metaop's.
_UNARY = {
    **{
        name: name
        for name in (
            *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "conj", "cos"),
            *("cosh", "exp", "expm1", "floor", "isfinite", "isinf", "isnan", "log", "log1p"),
            *("imag", "log2", "log10", "logical_not", "negative", "positive", "real"),
            *("reciprocal", "round", "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh"),
            "trunc",
        )
    },
    "bitwise_invert": "bitwise_not",
}
_BINARY = {
    **{
        name: name
        for name in (
            *("add", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "copysign"),
            *("floor_divide", "greater", "greater_equal", "hypot", "less", "less_equal"),
            *("logaddexp", "logical_and", "logical_or", "logical_xor", "maximum", "minimum"),
            *("multiply", "nextafter", "not_equal", "pow", "remainder", "subtract"),
            *("bitwise_left_shift", "bitwise_right_shift", "divide"),
        )
    },
    "equal": "eq",
}


def _unary(name: str, theirs: str) -> Callable[[Tensor], Tensor]:
    function = getattr(metaop, theirs)

    def elementwise(x: Tensor, /) -> Tensor:
        return function(x)

    elementwise.__name__ = elementwise.__qualname__ = name
    elementwise.__doc__ = f"`metaop.{theirs}` of every element."
    return elementwise


def _binary(name: str, theirs: str) -> Callable[[Any, Any], Tensor]:
    function = getattr(metaop, theirs)

    def elementwise(x1: Any, x2: Any, /) -> Tensor:
        return function(*promoted(x1, x2))

    elementwise.__name__ = elementwise.__qualname__ = name
    elementwise.__doc__ = f"`metaop.{theirs}` of two arrays in their common type."
    return elementwise


NAMES = (*_UNARY, *_BINARY, "clip", "sign", "where")
for _name, _theirs in _UNARY.items():
    globals()[_name] = _unary(_name, _theirs)
for _name, _theirs in _BINARY.items():
    globals()[_name] = _binary(_name, _theirs)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1, of complex numbers x / abs(x); NaN stays NaN."""
    if x.dtype.is_complex:
        return metaop.sgn(x)
    found = metaop.sign(x)
    return metaop.where(metaop.isnan(x), x, found) if x.dtype.kind == "float" else found


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Values within [min, max], in the type of `x`."""
    if min is None and max is None:
        return metaop.clone(x)
    bounds = [one.to(x.dtype) if isinstance(one, Tensor) else one for one in (min, max)]
    return metaop.clamp(x, *bounds).to(x.dtype)  # type: ignore[attr-defined]


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """`x1` where the condition holds, `x2` elsewhere, in their common type."""
    return metaop.where(condition, *promoted(x1, x2))
