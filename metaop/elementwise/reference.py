"""NumPy references of scalar functions that NumPy itself does not have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray


def _through_float64(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """The function of one Python float on arrays, computed in float64."""
    elementwise = np.frompyfunc(function, 1, 1)

    def on_arrays(x: Array) -> Array:
        x = np.asarray(x)
        return np.asarray(elementwise(x.astype(np.float64))).astype(x.dtype)

    return on_arrays


def _in_float64(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The function of arrays of float64 on arrays of any dtype, without warnings."""

    def on_arrays(x: Array) -> Array:
        x = np.asarray(x)
        with np.errstate(all="ignore"):
            return np.asarray(function(x.astype(np.float64))).astype(x.dtype)

    return on_arrays


def _log_gamma(x: float) -> float:
    if math.isfinite(x) and x <= 0 and x == math.floor(x):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


# Bernoulli numbers B(2k) over 2k, and B(2k) themselves, k = 1, 2, …
TRIGAMMA_SERIES = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
DIGAMMA_SERIES = tuple(b / (2 * k + 2) for k, b in enumerate(TRIGAMMA_SERIES))


def _even_series(x: Array, coefficients: tuple[float, ...]) -> Array:
    square = 1 / (x * x)
    total = np.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = (total + coefficient) * square
    return total


@_in_float64
def digamma(x: Array) -> Array:
    """Reflection to the right half plane, recurrence to x >= 10, asymptotic series."""
    positive = np.where(x < 0, 1 - x, x)
    shift = np.zeros_like(x)
    for _ in range(10):
        below = positive < 10
        shift -= np.where(below, 1 / positive, 0)
        positive = positive + below
    series = _even_series(positive, DIGAMMA_SERIES)
    found = shift + np.log(positive) - 0.5 / positive - series
    # The distance to the next integer is exact, so tan keeps its precision far from zero.
    reflected = found - math.pi / np.tan(math.pi * (x - np.rint(x)))
    found = np.where(x < 0, np.where(x == np.floor(x), np.nan, reflected), found)
    return np.where(x == 0, np.copysign(np.inf, -x), found)


@_in_float64
def trigamma(x: Array) -> Array:
    """The derivative of digamma, by the same three steps."""
    positive = np.where(x < 0, 1 - x, x)
    shift = np.zeros_like(x)
    for _ in range(10):
        below = positive < 10
        shift += np.where(below, 1 / (positive * positive), 0)
        positive = positive + below
    series = _even_series(positive, TRIGAMMA_SERIES) / positive
    found = shift + 1 / positive + 0.5 / (positive * positive) + series
    ratio = math.pi / np.sin(math.pi * (x - np.rint(x)))
    found = np.where(x < 0, ratio * ratio - found, found)
    found = np.where((x <= 0) & (x == np.floor(x)), np.inf, found)
    return np.where(x == -np.inf, np.nan, found)


def _inverse_erf(y: float) -> float:
    """Giles' first approximation, then Newton steps on erf or, near one, on erfc."""
    if math.isnan(y) or abs(y) > 1:
        return math.nan
    if abs(y) == 1:
        return math.copysign(math.inf, y)
    w = -math.log1p(-y * y)
    # Winitzki's formula is within 2e-3, from where three steps of third order suffice.
    a = 2 / (math.pi * 0.147) - w / 2
    x = math.copysign(math.sqrt(math.sqrt(a * a + w / 0.147) - a), y)
    for _ in range(3):
        if abs(y) < 0.5:
            error = math.erf(x) - y
        else:
            error = ((1 - abs(y)) - math.erfc(abs(x))) * math.copysign(1, y)
        step = error * math.sqrt(math.pi) / 2 * math.exp(x * x)
        x -= step / (1 + x * step)
    return x


erf = _through_float64(math.erf)
erfc = _through_float64(math.erfc)
erfinv = _through_float64(_inverse_erf)
lgamma = _through_float64(_log_gamma)


def sign(x: Array) -> Array:
    """-1, 0 or 1; 0 for NaN, as PyTorch's sign; of complex numbers x / abs(x)."""
    if x.dtype.kind == "c":
        size = np.abs(x)
        return np.where(size == 0, 0, x / np.where(size == 0, 1, size))
    return ((x > 0).astype(np.int8) - (x < 0).astype(np.int8)).astype(x.dtype)


def _with_nonzero_divisor(function: Callable[..., Any]) -> Callable[[Array, Array], Array]:
    """Integer division and remainders where x/0 is 0; floats pass through."""

    def divided(x: Array, y: Array) -> Array:
        if x.dtype.kind == "f":
            return function(x, y)
        return np.where(y == 0, 0, function(x, np.where(y == 0, 1, y))).astype(x.dtype)

    return divided


floor_divide = _with_nonzero_divisor(np.floor_divide)
fmod = _with_nonzero_divisor(np.fmod)


@_with_nonzero_divisor
def trunc_divide(x: Array, y: Array) -> Array:
    """The quotient rounded towards zero."""
    if x.dtype.kind == "f":
        return np.trunc(x / y)
    return np.where(y == -1, -x, (x - np.fmod(x, y)) // np.where(y == -1, 1, y))


@_with_nonzero_divisor
def remainder(x: Array, y: Array) -> Array:
    """The remainder with the sign of the divisor, computed from fmod as PyTorch does."""
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest).astype(x.dtype)


def power(x: Array, y: Array) -> Array:
    """`x**y`; a negative power of an integer is 0 unless the base is 1 or -1."""
    if x.dtype.kind in "fc":
        return np.power(x, y)
    whole = np.power(x, np.where(y < 0, 0, y))
    unit = np.where((y % 2 == 0) | (x == 1), 1, -1)
    inverse = np.where((x == 1) | (x == -1) & (x < 0), unit, 0)
    return np.where(y < 0, inverse, whole).astype(x.dtype)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    if x.dtype.kind == "c":
        falling = np.exp(np.where(x.real < 0, x, -x))
        return np.where(x.real < 0, falling, 1) / (1 + falling)
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small / (1 + small), 1 / (1 + small)).astype(x.dtype)


def log_add_exp(x: Array, y: Array) -> Array:
    """log(exp(x) + exp(y)) without overflow."""
    if x.dtype.kind != "c":
        return np.logaddexp(x, y)
    large, small = np.where(x.real >= y.real, (x, y), (y, x))
    gap = np.where(np.isneginf(small.real), -np.inf, small - large)
    return large + np.log1p(np.exp(gap))


def log_sigmoid(x: Array) -> Array:
    """log(sigmoid(x)) without overflow."""
    return 0 - softplus(-x)


def softplus(x: Array) -> Array:
    """log(1 + exp(x)) without overflow."""
    return (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))).astype(x.dtype)


def xlogy(x: Array, y: Array) -> Array:
    """x * log(y), and 0 where x is 0 unless y is NaN."""
    return np.where((x == 0) & ~np.isnan(y), 0, x * np.log(y)).astype(x.dtype)


def fraction(x: Array) -> Array:
    """The part behind the point, with the sign of x; NaN for infinities."""
    return x - np.trunc(x)


def round_even(x: Array) -> Array:
    """The nearest integer, halves to the even one; integers stay."""
    return np.rint(x) if x.dtype.kind == "f" else x


def isinf(x: Array) -> Array:
    """Whether x is an infinity; False for integers and booleans."""
    return np.isinf(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)


def signbit(x: Array) -> Array:
    """Whether the sign is set; for booleans never."""
    return np.signbit(x) if x.dtype.kind == "f" else x < 0


def heaviside(x: Array, at_zero: Array) -> Array:
    """0 below zero, `at_zero` at zero, 1 above; 0 for NaN, as PyTorch's."""
    return np.where(x == 0, at_zero, x > 0).astype(x.dtype)


def sort_key(x: Array) -> Array:
    """Integers of the width of floats, in the order of the floats; NaN is the greatest."""
    kind = np.int64 if x.dtype == np.float64 else np.int32
    bits = np.where(x == 0, 0, x).astype(x.dtype).view(kind)
    greatest = np.iinfo(kind).max
    return np.where(np.isnan(x), greatest, np.where(bits < 0, bits ^ greatest, bits))


def bfloat16_pair(x: Array, y: Array) -> Array:
    """The upper halves of two float32 in an int32, that of `x` in the lower half."""
    low, high = (np.asarray(z, np.float32).view(np.uint32) for z in (x, y))
    return (low >> np.uint32(16) | high & np.uint32(0xFFFF0000)).view(np.int32)
