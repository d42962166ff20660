"""The error function and the gamma function with their relatives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.llvm.math import coefficients
from metaop.codegen.llvm.math.common import polynomial, through_double, two_product
from metaop.codegen.llvm.math.exponential import exp, log
from metaop.codegen.llvm.math.trigonometric import sin_cos_kernel

if TYPE_CHECKING:
    from metaop.codegen.llvm.builder import Builder

# Arguments are moved this far to the right before the asymptotic series is used.
_SHIFT = 10
# Bernoulli numbers B(2), B(4), … as they appear in the series of lgamma, digamma and trigamma.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_LGAMMA_SERIES = tuple(value / (2 * k * (2 * k - 1)) for k, value in enumerate(_BERNOULLI, start=1))
_DIGAMMA_SERIES = tuple(value / (2 * k) for k, value in enumerate(_BERNOULLI, start=1))


def erf(b: Builder, x: Value) -> Value:
    """The error function."""
    if x.type == "float":
        return _erf_of_float(b, x)
    small = x * polynomial(b, x * x, coefficients.ERF_SMALL)
    large = b.copysign(1.0 - _erfc_of_positive(b, b.maximum(abs(x), 0.9)), x)
    return b.select(abs(x) < 1.0, small, large)


def _erf_of_float(b: Builder, x: Value) -> Value:
    """A quotient of polynomials, for it is used so often (gelu)."""
    clamped = b.maximum(b.minimum(x, 3.92), -3.92)
    z = clamped * clamped
    top = clamped * polynomial(b, z, coefficients.ERF_NUMERATOR)
    inside = top / polynomial(b, z, coefficients.ERF_DENOMINATOR)
    return b.select(abs(x) >= 3.92, b.copysign(b.constant_like(x, 1), x), inside)


def erfc(b: Builder, x: Value) -> Value:
    """1 - erf(x), to full relative precision for positive x."""
    magnitude = abs(x)
    if x.type == "float":
        positive = _erfc_of_positive(b, magnitude)
        return b.select(x < 0, 2.0 - positive, positive)
    outer = _erfc_of_positive(b, b.maximum(magnitude, 0.9))
    inner = 1.0 - x * polynomial(b, x * x, coefficients.ERF_SMALL)
    folded = b.select(x < 0, 2.0 - outer, outer)
    return b.select(magnitude < 0.9, inner, folded)


def _erfc_of_positive(b: Builder, x: Value) -> Value:
    # Far beyond the underflow to 0 nothing may become infinite.
    x = b.minimum(x, 10.5 if x.type == "float" else 27.5)
    t = (x - 4.0) / (x + 4.0)
    scaled = polynomial(b, t, coefficients.ERFC[x.type]) / b.fma(x, 2.0, 1.0)
    square, error = two_product(b, x, x)
    return exp(b, -square) * (scaled - scaled * error)


def erfinv(b: Builder, y: Value) -> Value:
    """The inverse of erf; infinite at -1 and 1, NaN outside."""
    w = -log(b, (1.0 - y) * (y + 1.0))
    root = b.sqrt(w)
    (near, centre, factors), *others = coefficients.ERFINV[y.type]
    result = b.constant_like(y, 0)
    for upper, root_centre, root_factors in reversed(others):
        result = b.select(w < upper, polynomial(b, root - root_centre, root_factors), result)
    result = b.select(w < near, polynomial(b, w - centre, factors), result)
    inside = abs(y) < 1.0
    edge = b.select(abs(y).equals(1.0), y * math.inf, b.constant_like(y, math.nan))
    return b.select(inside, result * y, edge)


@through_double
def lgamma(b: Builder, x: Value) -> Value:
    """log|gamma(x)|, to 1e-14 in absolute terms near its roots; infinite at its poles."""
    reflected = x < 0
    z = b.select(reflected, 1.0 - x, x)
    positive = _lgamma_of_positive(b, z)
    sine, _ = _sin_cos_pi(b, x)
    folded = (math.log(math.pi) - log(b, abs(sine))) - positive
    result = b.select(reflected, folded, positive)
    root = b.bit_or(x.equals(1.0), x.equals(2.0))
    pole = b.bit_and(reflected, sine.equals(0))
    infinite = b.bit_or(abs(x).equals(math.inf), pole)
    return b.select(infinite, math.inf, b.select(root, 0.0, result))


def _lgamma_of_positive(b: Builder, x: Value) -> Value:
    """Stirling's series at x + 10, less the logarithm of the factors in between."""
    near = x < float(_SHIFT)
    product = x
    for step in range(1, _SHIFT):
        product = product * (x + float(step))
    z = b.select(near, x + float(_SHIFT), x)
    inverse = 1.0 / z
    series = inverse * polynomial(b, inverse * inverse, _LGAMMA_SERIES)
    stirling = b.fma(z - 0.5, log(b, z), 0.5 * math.log(2 * math.pi) - z) + series
    return stirling - log(b, b.select(near, product, 1.0))


@through_double
def digamma(b: Builder, x: Value) -> Value:
    """The derivative of lgamma; NaN at the negative integers, infinite at zero."""
    reflected = x < 0
    positive = _digamma_of_positive(b, b.select(reflected, 1.0 - x, x))
    sine, cosine = _sin_cos_pi(b, x)
    result = b.select(reflected, positive - cosine * math.pi / sine, positive)
    pole = b.bit_and(sine.equals(0), x < 0)
    result = b.select(pole, math.nan, result)
    return b.select(x.equals(0), b.copysign(b.constant_like(x, math.inf), -x), result)


def _digamma_of_positive(b: Builder, x: Value) -> Value:
    near = x < float(_SHIFT)
    # The sum of 1 / (x + k) as one fraction.
    top, bottom = b.constant_like(x, 1), x
    for step in range(1, _SHIFT):
        factor = x + float(step)
        top = b.fma(top, factor, bottom)
        bottom = bottom * factor
    z = b.select(near, x + float(_SHIFT), x)
    inverse = 1.0 / z
    square = inverse * inverse
    series = b.fma(square, polynomial(b, square, _DIGAMMA_SERIES), inverse * 0.5)
    result = log(b, z) - b.select(z < math.inf, series, 0.0)
    return result - b.select(near, top / bottom, 0.0)


@through_double
def trigamma(b: Builder, x: Value) -> Value:
    """The derivative of digamma; infinite at its poles."""
    reflected = x < 0
    positive = _trigamma_of_positive(b, b.select(reflected, 1.0 - x, x))
    sine, _ = _sin_cos_pi(b, x)
    ratio = math.pi / sine
    return b.select(reflected, ratio * ratio - positive, positive)


def _trigamma_of_positive(b: Builder, x: Value) -> Value:
    near = x < float(_SHIFT)
    total = b.constant_like(x, 0)
    for step in range(_SHIFT):
        inverse = 1.0 / (x + float(step))
        total = b.fma(inverse, inverse, total)
    z = b.select(near, x + float(_SHIFT), x)
    inverse = 1.0 / z
    square = inverse * inverse
    series = b.fma(square * inverse, polynomial(b, square, _BERNOULLI), square * 0.5) + inverse
    return series + b.select(near, total, 0.0)


def _sin_cos_pi(b: Builder, x: Value) -> tuple[Value, Value]:
    """sin(pi * x) and cos(pi * x) up to a common sign; exact at the zeros."""
    t = x - b.round_even(x)
    # Beyond a quarter the two change places, so that the angle stays small.
    beyond = abs(t) > 0.25
    near = b.select(beyond, 0.5 - abs(t), t)
    sine, cosine = sin_cos_kernel(b, near * math.pi)
    return (
        b.select(beyond, b.copysign(cosine, t), sine),
        b.select(beyond, sine, cosine),
    )
