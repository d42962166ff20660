"""What the math functions share: polynomials, exact sums and products, powers of two."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from metaop.codegen.llvm.instructions.value import Value

if TYPE_CHECKING:
    from metaop.codegen.llvm.builder import Builder

MANTISSA_BITS = {"float": 23, "double": 52}
EXPONENT_BIAS = {"float": 127, "double": 1023}
# Adding 1.5 * 2**mantissa rounds to an integer and leaves it in the low bits of the sum.
_ROUNDER = {"float": 1.5 * 2.0**23, "double": 1.5 * 2.0**52}
# Veltkamp's constant splits a mantissa into two halves.
_SPLITTER = {"float": 2.0**12 + 1, "double": 2.0**27 + 1}

# The leading bits of ln(2) and the rest: a multiple of the first is exact.
LN2_HIGH = {"float": 0.693359375, "double": 6.93147180369123816490e-01}
LN2_LOW = {"float": -2.12194440054690583e-4, "double": 1.90821492927058770002e-10}
# 1 / ln(2) as a float, and what it lacks.
LOG2_E_HIGH, LOG2_E_LOW = 1.44269502162933349609375, 1.925962991126617e-08


def polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's scheme; coefficients from the lowest power."""
    total = b.constant_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = b.fma(total, x, coefficient)
    return total


def through_double(function: Callable[..., Value]) -> Callable[..., Value]:
    """Floats are computed as doubles: right to the last bit, at two or three times the cost."""

    @functools.wraps(function)
    def wrapped(b: Builder, *operands: Value) -> Value:
        if operands[0].type != "float":
            return function(b, *operands)
        wide = (b.to_type(x, "double") for x in operands)
        return b.to_type(function(b, *wide), "float")

    return wrapped


def round_to_bits(b: Builder, x: Value) -> tuple[Value, Value]:
    """The nearest integer as a float, and as bits of which only the low ones mean anything.

    |x| must be below 2**22 for float, 2**51 for double.
    """
    rounder = _ROUNDER[x.type]
    with b.exact():
        moved = x + rounder
        return moved - rounder, b.bits(moved)


def power_of_two(b: Builder, bits: Value, type: str) -> Value:
    """2**n for the integer in the low bits, where that is a normal number."""
    return b.bitcast((bits + EXPONENT_BIAS[type]) << MANTISSA_BITS[type], type)


def scale(b: Builder, x: Value, exponent: Value, vanishes: Value) -> Value:
    """x * 2**exponent with an integer in floating point; over- and underflows gradually.

    The result is 0 where it `vanishes`. Processors take a hundred times as long for a product that
    underflows, and those of masked scores, `exp(-inf)`, all would.
    """
    if b.target.has_avx512 and x.lanes * x.bits in (128, 256, 512):
        return _scaled_at_once(b, x, exponent, b.bit_not(vanishes))
    half, half_bits = round_to_bits(b, exponent * 0.5)
    _, rest_bits = round_to_bits(b, exponent - half)
    with b.exact():
        first = x * power_of_two(b, half_bits, x.type)
        return first * b.select(vanishes, 0.0, power_of_two(b, rest_bits, x.type))


def _scaled_at_once(b: Builder, x: Value, exponent: Value, lanes: Value) -> Value:
    """The same as one instruction of AVX-512 for whole registers; 0 except in some `lanes`."""
    width = x.lanes * x.bits
    symbol = f"llvm.x86.avx512.mask.scalef.p{x.type[0].replace('f', 's')}.{width}"
    full, mask = x.full_type, f"i{max(x.lanes, 8)}"
    chosen = b.emit(f"bitcast {lanes.typed} to i{x.lanes}")
    if x.lanes < 8:
        chosen = b.emit(f"zext i{x.lanes} {chosen} to {mask}")
    rounding = ", i32" if width == 512 else ""
    b.declare(f"declare {full} @{symbol}({full}, {full}, {full}, {mask}{rounding})")
    # Rounded as everywhere.
    rest = f"{full} zeroinitializer, {mask} {chosen}" + (", i32 4" if width == 512 else "")
    return b.like(x, b.emit(f"call {full} @{symbol}({x.typed}, {exponent.typed}, {rest})"))


def two_sum(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """The rounded sum and its error (Knuth)."""
    with b.exact():
        total = x + y
        part = total - x
        return total, (x - (total - part)) + (y - part)


def two_product(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """The rounded product and its error (Dekker where there is no fused multiply-add)."""
    with b.exact():
        product = x * y
        if b.target.has_fma:
            return product, b.fma(x, y, -product)
        x_high, x_low = _split(x)
        y_high, y_low = _split(y)
        error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
        return product, error


def _split(x: Value) -> tuple[Value, Value]:
    scaled = x * _SPLITTER[x.type]
    high = scaled - (scaled - x)
    return high, x - high


def smallest_normal(type: str) -> float:
    """The least number with a full mantissa."""
    return math.ldexp(1.0, 1 - EXPONENT_BIAS[type])
