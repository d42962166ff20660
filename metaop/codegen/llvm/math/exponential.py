"""Exponentials, logarithms, hyperbolic functions, the logistic function and powers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.llvm.math import coefficients
from metaop.codegen.llvm.math.common import (
    EXPONENT_BIAS,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E_HIGH,
    LOG2_E_LOW,
    MANTISSA_BITS,
    polynomial,
    power_of_two,
    round_to_bits,
    scale,
    smallest_normal,
    through_double,
    two_product,
    two_sum,
)

if TYPE_CHECKING:
    from metaop.codegen.llvm.builder import Builder

# Outside these bounds the exponentials are 0 and infinity.
_EXP_RANGE = {"float": (-104.0, 89.0), "double": (-746.0, 710.0)}
_EXP2_RANGE = {"float": (-151.0, 129.0), "double": (-1076.0, 1025.0)}
# At the lower bound exp(x) - 1 rounds to -1; at the upper one sinh is infinite and a quarter of
# exp(x) is not.
_EXPM1_RANGE = {"float": (-20.0, 89.7), "double": (-40.0, 710.7)}
# Above, sqrt(x**2 + 1) is x to the last bit and log(1 + x) is log(x); squares still fit.
_LARGE = 1e20


def exp(b: Builder, x: Value) -> Value:
    """e**x to 1 unit in the last place."""
    if x.type == "float" and b.target.has_fma:
        return _exp_by_powers_of_two(b, x)
    n, r = _reduce(b, x, _EXP_RANGE)
    found = b.fma(r * r, polynomial(b, r, coefficients.EXP[x.type]), r) + 1.0
    return scale(b, found, n, x < _EXP_RANGE[x.type][0])


def _exp_by_powers_of_two(b: Builder, x: Value) -> Value:
    """2**(x / ln(2)) with fewer operations, where multiply-adds keep all bits of the quotient."""
    low, high = _EXP_RANGE[x.type]
    vanishes = x < low
    x = b.maximum(b.minimum(x, high), low)
    n, _ = round_to_bits(b, x * LOG2_E_HIGH)
    r = b.fma(x, LOG2_E_LOW, b.fma(x, LOG2_E_HIGH, -n))
    return scale(b, b.fma(r, polynomial(b, r, coefficients.EXP2[x.type]), 1.0), n, vanishes)


def _reduce(b: Builder, x: Value, bounds: dict[str, tuple[float, float]]) -> tuple[Value, Value]:
    """x as n * ln(2) + r with an integer n and |r| <= ln(2) / 2, x being clamped first."""
    low, high = bounds[x.type]
    x = b.maximum(b.minimum(x, high), low)
    n, _ = round_to_bits(b, x * (1 / math.log(2)))
    r = x - n * LN2_HIGH[x.type]
    return n, r - n * LN2_LOW[x.type]


def exp2(b: Builder, x: Value) -> Value:
    """2**x to 1 unit in the last place; exact for integers."""
    low, high = _EXP2_RANGE[x.type]
    vanishes = x < low
    x = b.maximum(b.minimum(x, high), low)
    n, _ = round_to_bits(b, x)
    r = x - n
    return scale(b, b.fma(r, polynomial(b, r, coefficients.EXP2[x.type]), 1.0), n, vanishes)


def expm1(b: Builder, x: Value) -> Value:
    """e**x - 1 without cancellation near 0; -0.0 stays."""
    return b.copysign(_quarter_of_expm1(b, x) * 4.0, x)


def _quarter_of_expm1(b: Builder, x: Value) -> Value:
    """A quarter, so that sinh and cosh do not overflow before their time."""
    n, r = _reduce(b, x, _EXPM1_RANGE)
    p = b.fma(r * r, polynomial(b, r, coefficients.EXP[x.type]), r)
    _, bits = round_to_bits(b, n - 2.0)
    quarter = power_of_two(b, bits, x.type)
    return b.fma(quarter, p, quarter - 0.25)


def log(b: Builder, x: Value) -> Value:
    """The natural logarithm to 1 unit in the last place."""
    exponent, f = _exponent_and_fraction(b, x)
    s, hfsq, rest = _log_parts(b, f)
    low = b.fma(exponent, LN2_LOW[x.type], s * (hfsq + rest))
    result = exponent * LN2_HIGH[x.type] - ((hfsq - low) - f)
    return _log_special(b, x, result)


def log2(b: Builder, x: Value) -> Value:
    """The logarithm to base 2; exact for powers of two."""
    exponent, f = _exponent_and_fraction(b, x)
    return _log_special(b, x, b.fma(_log_of_fraction(b, f), 1 / math.log(2), exponent))


def log10(b: Builder, x: Value) -> Value:
    """The logarithm to base 10."""
    exponent, f = _exponent_and_fraction(b, x)
    scaled = _log_of_fraction(b, f) * (1 / math.log(10))
    return _log_special(b, x, b.fma(exponent, math.log10(2), scaled))


def log1p(b: Builder, x: Value) -> Value:
    """log(1 + x) without cancellation near 0; -0.0 stays."""
    return b.copysign(_log1p(b, x), x)


def _log1p(b: Builder, x: Value) -> Value:
    """log(1 + x), with 0.0 for -0.0."""
    with b.exact():
        total, error = two_sum(b, b.constant_like(x, 1), x)
        correction = error / total
    result = log(b, total)
    usable = b.bit_and(total > 0, total < math.inf)
    # Below the smallest step the sum is 1 and the correction is all of x.
    return b.select(usable, result + correction, result)


def _exponent_and_fraction(b: Builder, x: Value) -> tuple[Value, Value]:
    """x = 2**exponent * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), for positive finite x."""
    mantissa, bias = MANTISSA_BITS[x.type], EXPONENT_BIAS[x.type]
    subnormal = x < smallest_normal(x.type)
    x = b.select(subnormal, x * 2.0 ** (mantissa + 1), x)
    half_bits = _bits_of_root(x.type)
    shifted = b.as_unsigned(b.bits(x)) + ((bias << mantissa) - half_bits)
    biased = shifted >> mantissa
    # An integer below 2**mantissa becomes a float by pasting it under an exponent.
    pasted = b.bitcast(biased | ((bias + mantissa) << mantissa), x.type)
    offset = b.select(subnormal, float(bias + mantissa + 1), b.constant_like(x, bias))
    fraction = b.bitcast((shifted & ((1 << mantissa) - 1)) + half_bits, x.type)
    with b.exact():
        return (pasted - 2.0**mantissa) - offset, fraction - 1.0


def _bits_of_root(type: str) -> int:
    """The bits of a number just below sqrt(1/2)."""
    return 0x3F3504F3 if type == "float" else 0x3FE6A09E00000000


def _log_parts(b: Builder, f: Value) -> tuple[Value, Value, Value]:
    """s, f**2 / 2 and R of log(1 + f) = f - f**2 / 2 + s * (f**2 / 2 + R), s = f / (2 + f)."""
    s = f / (f + 2.0)
    z = s * s
    return s, f * f * 0.5, z * polynomial(b, z, coefficients.LOG[f.type])


def _log_of_fraction(b: Builder, f: Value) -> Value:
    s, hfsq, rest = _log_parts(b, f)
    return f - (hfsq - s * (hfsq + rest))


def _log_special(b: Builder, x: Value, result: Value) -> Value:
    """Logarithms of 0, of negative numbers, of infinity and NaN."""
    finite = b.select(x < math.inf, result, x)
    below = b.select(x.equals(0), -math.inf, b.constant_like(x, math.nan))
    return b.select(x > 0, finite, below)


def log_add_exp(b: Builder, x: Value, y: Value) -> Value:
    """log(e**x + e**y) without overflow."""
    distance = b.select(x.equals(y), 0.0, abs(x - y))
    return b.maximum(x, y) + _log1p(b, exp(b, -distance))


def softplus(b: Builder, x: Value) -> Value:
    """log(1 + e**x) without overflow."""
    return b.maximum(x, 0.0) + _log1p(b, exp(b, -abs(x)))


def log_sigmoid(b: Builder, x: Value) -> Value:
    """log(sigmoid(x)) without overflow; 0.0 for infinity."""
    total = softplus(b, -x)
    with b.exact():
        return 0.0 - total


def sigmoid(b: Builder, x: Value) -> Value:
    """1 / (1 + e**-x)."""
    return 1.0 / (exp(b, -x) + 1.0)


def xlogy(b: Builder, x: Value, y: Value) -> Value:
    """x * log(y), and 0 where x is 0 unless y is NaN."""
    vanishes = b.bit_and(x.equals(0), y.equals(y))
    return b.select(vanishes, 0.0, x * log(b, y))


def sinh(b: Builder, x: Value) -> Value:
    """The hyperbolic sine."""
    quarter = _quarter_of_expm1(b, abs(x))
    # e / (e + 1) stays finite when e is clamped far above where it rounds to 1.
    e = b.minimum(quarter, 1e30) * 4.0
    return b.copysign(quarter * 2.0 + e / (e + 1.0) * 0.5, x)


def cosh(b: Builder, x: Value) -> Value:
    """The hyperbolic cosine."""
    quarter = _quarter_of_expm1(b, abs(x))
    return quarter * 2.0 + (0.5 / (quarter * 4.0 + 1.0) + 0.5)


def tanh(b: Builder, x: Value) -> Value:
    """The hyperbolic tangent."""
    e = _quarter_of_expm1(b, abs(x) * -2.0) * 4.0
    return b.copysign(e / (e + 2.0), x)


@through_double
def asinh(b: Builder, x: Value) -> Value:
    """The inverse hyperbolic sine."""
    magnitude = abs(x)
    square = magnitude * magnitude
    near = magnitude + square / (b.sqrt(square + 1.0) + 1.0)
    return b.copysign(_log1p_of_sum(b, magnitude, near), x)


@through_double
def acosh(b: Builder, x: Value) -> Value:
    """The inverse hyperbolic cosine; NaN below 1."""
    t = x - 1.0
    result = _log1p_of_sum(b, x, t + b.sqrt(b.fma(t, t, t * 2.0)))
    return b.select(x < 1.0, math.nan, result)


def _log1p_of_sum(b: Builder, x: Value, near: Value) -> Value:
    """log1p(near), or log(2 * x) where x is so large that its square may overflow."""
    large = x > _LARGE
    logarithm = _log1p(b, b.select(large, x, near))
    return logarithm + b.select(large, math.log(2), b.constant_like(x, 0))


@through_double
def atanh(b: Builder, x: Value) -> Value:
    """The inverse hyperbolic tangent; NaN outside -1 … 1."""
    magnitude = abs(x)
    return b.copysign(_log1p(b, magnitude * 2.0 / (1.0 - magnitude)) * 0.5, x)


@through_double
def cbrt(b: Builder, x: Value) -> Value:
    """The real cube root."""
    magnitude = abs(x)
    near = exp2(b, log2(b, magnitude) * (1 / 3))
    square = near * near
    better = near - (near - magnitude / square) * (1 / 3)
    usable = b.bit_and(magnitude > 0, magnitude < math.inf)
    return b.copysign(b.select(usable, better, magnitude), x)


@through_double
def float_power(b: Builder, x: Value, y: Value) -> Value:
    """x**y with C's rules for zeros, infinities, NaN and negative bases."""
    magnitude = abs(x)
    result = _power_of_positive(b, magnitude, y)
    half = y * 0.5
    whole = b.trunc(y).equals(y)
    odd = b.bit_and(whole, b.trunc(half).differs(half))
    result = b.select(b.bit_and(b.sign_bit(x), odd), -result, result)
    negative = b.bit_and(x < 0, x > -math.inf)
    result = b.select(b.bit_and(negative, b.bit_not(whole)), math.nan, result)
    minus_one_to_infinity = b.bit_and(x.equals(-1), abs(y).equals(math.inf))
    unity = b.bit_or(b.bit_or(y.equals(0), x.equals(1)), minus_one_to_infinity)
    return b.select(unity, 1.0, result)


def _power_of_positive(b: Builder, x: Value, y: Value) -> Value:
    """exp(y * log(x)) with the logarithm and the product to twice the precision."""
    exponent, f = _exponent_and_fraction(b, x)
    s, hfsq, rest = _log_parts(b, f)
    sum_high, sum_low = two_sum(b, exponent * LN2_HIGH[x.type], f)
    square_high, square_low = two_product(b, f, f * 0.5)
    high, low = two_sum(b, sum_high, -square_high)
    low = low + (sum_low - square_low)
    low = low + b.fma(exponent, LN2_LOW[x.type], s * (hfsq + rest))
    high, low = two_sum(b, high, low)
    high = _log_special(b, x, high)
    product, error = two_product(b, y, high)
    error = b.fma(y, low, error)
    # Where the product is not finite, its error is not a number.
    error = b.select(abs(error) < 1.0, error, 0.0)
    return exp(b, product) * (error + 1.0)
