"""Circular functions and their inverses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.llvm.math import coefficients
from metaop.codegen.llvm.math.common import (
    polynomial,
    round_to_bits,
    through_double,
    two_product,
    two_sum,
)

if TYPE_CHECKING:
    from metaop.codegen.llvm.builder import Builder

# pi / 2 as a sum of three doubles.
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
# Above, multiples of pi / 2 are not told apart any more, and the results mean nothing.
_LARGEST_ANGLE = 2.0**50
_TAN_PI_8 = math.tan(math.pi / 8)


def sin(b: Builder, x: Value) -> Value:
    """The sine, for |x| below 2**50 (of no meaning, but between -1 and 1, above)."""
    quadrant, r = _reduce(b, x)
    # Sums of zeros make 0.0 of -0.0.
    return b.select(x.equals(0), x, _by_quadrant(b, quadrant, *sin_cos_kernel(b, r)))


def cos(b: Builder, x: Value) -> Value:
    """The cosine, for |x| below 2**50 (of no meaning, but between -1 and 1, above)."""
    quadrant, r = _reduce(b, x)
    return _by_quadrant(b, quadrant + 1, *sin_cos_kernel(b, r))


def tan(b: Builder, x: Value) -> Value:
    """The tangent, for |x| below 2**50."""
    quadrant, r = _reduce(b, x)
    sine, cosine = sin_cos_kernel(b, r)
    odd = (quadrant & 1).differs(0)
    tangent = b.select(odd, -cosine, sine) / b.select(odd, sine, cosine)
    return b.select(x.equals(0), x, tangent)


def _by_quadrant(b: Builder, quadrant: Value, sine: Value, cosine: Value) -> Value:
    chosen = b.select((quadrant & 1).differs(0), cosine, sine)
    sign = (quadrant & 2) << (chosen.bits - 2)
    return b.bitcast(b.bits(chosen) ^ sign, chosen.type)


def _reduce(b: Builder, x: Value) -> tuple[Value, Value]:
    """x as n * pi / 2 + r: n in the low bits of an integer, and r with |r| <= pi / 4 or so."""
    if x.type == "double":
        return _reduce_double(b, x)
    # In double the rounding errors of a float's angle are out of sight.
    quadrant, r = _reduce_double(b, b.to_type(x, "double"), parts=2)
    return b.to_type(quadrant, "i32"), b.to_type(r, "float")


def _reduce_double(b: Builder, x: Value, parts: int = 3) -> tuple[Value, Value]:
    # Larger angles are taken modulo nothing in particular; infinities must become NaN.
    beyond = abs(x) >= _LARGEST_ANGLE
    x = b.select(beyond, (x - x), x)
    n, bits = round_to_bits(b, x * (2 / math.pi))
    with b.exact():
        product, error = two_product(b, n, b.constant_like(n, _HALF_PI[0]))
        high = x - product
        if parts == 2:
            return bits, (high - error) - n * _HALF_PI[1]
        second, second_error = two_product(b, n, b.constant_like(n, _HALF_PI[1]))
        high, low = two_sum(b, high, -error)
        high, more = two_sum(b, high, -second)
        return bits, high + ((low + more) - (second_error + n * _HALF_PI[2]))


def sin_cos_kernel(b: Builder, r: Value) -> tuple[Value, Value]:
    """Sine and cosine for |r| up to pi / 4."""
    z = r * r
    sine = b.fma(r * z, polynomial(b, z, coefficients.SIN[r.type]), r)
    cosine = b.fma(z * z, polynomial(b, z, coefficients.COS[r.type]), b.fma(z, -0.5, 1.0))
    return sine, cosine


def atan(b: Builder, x: Value) -> Value:
    """The inverse tangent."""
    magnitude = abs(x)
    inverted = magnitude > 1.0
    top = b.select(inverted, 1.0, magnitude)
    bottom = b.select(inverted, magnitude, 1.0)
    angle = _atan_of_quotient(b, top, bottom)
    return b.copysign(_complement(b, inverted, angle), x)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), with C's rules for zeros and infinities."""
    height, width = abs(y), abs(x)
    top, bottom = b.minimum(height, width), b.maximum(height, width)
    # Both infinite counts as a diagonal; both zero as an angle of zero.
    both = top.equals(math.inf)
    top, bottom = b.select(both, 1.0, top), b.select(both, 1.0, bottom)
    bottom = b.select(bottom.equals(0), 1.0, bottom)
    angle = _complement(b, height > width, _atan_of_quotient(b, top, bottom))
    angle = b.select(b.sign_bit(x), (math.pi - angle) + 2 * _HALF_PI[1], angle)
    return b.copysign(angle, y)


def _complement(b: Builder, condition: Value, angle: Value) -> Value:
    """pi / 2 minus the angle where the condition holds."""
    return b.select(condition, (math.pi / 2 - angle) + _HALF_PI[1], angle)


def _atan_of_quotient(b: Builder, top: Value, bottom: Value) -> Value:
    """atan(top / bottom) for 0 <= top <= bottom, with one division."""
    beyond = top > bottom * _TAN_PI_8
    u = b.select(beyond, top - bottom, top) / b.select(beyond, top + bottom, bottom)
    z = u * u
    angle = b.fma(u * z, polynomial(b, z, coefficients.ATAN[u.type]), u)
    return angle + b.select(beyond, math.pi / 4, b.constant_like(u, 0))


def asin(b: Builder, x: Value) -> Value:
    """The inverse sine; NaN outside -1 … 1."""
    magnitude = abs(x)
    outer = magnitude > 0.5
    half = _half_angle_or_angle(b, magnitude, outer)
    return b.copysign(b.select(outer, math.pi / 2 - half * 2.0, half), x)


def acos(b: Builder, x: Value) -> Value:
    """The inverse cosine; NaN outside -1 … 1."""
    magnitude = abs(x)
    outer = magnitude > 0.5
    angle = _half_angle_or_angle(b, magnitude, outer)
    double = angle * 2.0
    folded = b.select(x < 0, math.pi - double, double)
    return b.select(outer, folded, math.pi / 2 - (b.copysign(angle, x) - _HALF_PI[1]))


def _half_angle_or_angle(b: Builder, magnitude: Value, outer: Value) -> Value:
    """asin of the magnitude up to 1/2; above, of sqrt((1 - magnitude) / 2)."""
    square = b.select(outer, (1.0 - magnitude) * 0.5, magnitude * magnitude)
    u = b.select(outer, b.sqrt(square), magnitude)
    return b.fma(u * square, polynomial(b, square, coefficients.ASIN[u.type]), u)


@through_double
def hypot(b: Builder, x: Value, y: Value) -> Value:
    """sqrt(x**2 + y**2) without overflow; infinite when either operand is."""
    x, y = abs(x), abs(y)
    infinite = b.bit_or(x.equals(math.inf), y.equals(math.inf))
    large, small = b.maximum(x, y), b.minimum(x, y)
    ratio = small / b.select(large.equals(0), 1.0, large)
    return b.select(infinite, math.inf, large * b.sqrt(b.fma(ratio, ratio, 1.0)))
