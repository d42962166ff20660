"""A program of all functions that are computed in vectors by code of metaop's own."""

from __future__ import annotations

import metaop

UNARY = (
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
    *("atanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "erf"),
    *("erfc", "lgamma", "digamma", "sigmoid", "floor", "ceil", "trunc", "round", "frac"),
)


def functions(x: metaop.Tensor) -> list[metaop.Tensor]:
    """All of them at x, and those of two arguments."""
    y = x * 3 - 1
    found = [getattr(metaop, name)(x) for name in UNARY]
    found += [metaop.pow(x, y), metaop.fmod(y, x), metaop.remainder(y, x)]
    found += [
        metaop.atan2(x, y),
        metaop.hypot(x, y),
        metaop.maximum(x, y),
        (y * 7).to(metaop.int32),
    ]
    return [*found, x.to(metaop.float16), x.to(metaop.bfloat16).float(), x.to(metaop.float64).exp()]
