"""Quotients, remainders and powers of integers and floats, and functions on bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.llvm.math.common import MANTISSA_BITS, two_product
from metaop.codegen.llvm.math.exponential import float_power

if TYPE_CHECKING:
    from metaop.codegen.llvm.builder import Builder


def trunc_divide(b: Builder, x: Value, y: Value) -> Value:
    """The quotient rounded towards zero; an integer divided by 0 gives 0."""
    if x.is_float:
        return b.trunc(x / y)
    if x.bits <= 32:
        return _narrow_quotient(b, x, y)
    return b.select(y.equals(0), 0, _divide(b, "div", x, y))


def _narrow_quotient(b: Builder, x: Value, y: Value) -> Value:
    """Through double, which has vectors: a quotient of 32 bits is never rounded over an integer."""
    quotient = b.trunc(b.to_type(x, "double") / b.to_type(y, "double"))
    type = "i32" if x.bits < 32 or x.signed else "i64"
    # -2**31 / -1 does not fit: it wraps.
    overflow = quotient > 2.0**31 - 1 if type == "i32" else y.equals(0)
    quotient = b.select(y.equals(0), 0.0, b.select(overflow, -(2.0**31), quotient))
    return b.to_type(b.to_type(quotient, type), x.type, x.signed)


def _divide(b: Builder, name: str, x: Value, y: Value) -> Value:
    """sdiv, udiv, srem or urem, with 1 for the divisors at which the processor would trap."""
    unsafe = y.equals(0)
    if x.signed:
        smallest = -(1 << (x.bits - 1))
        unsafe = b.bit_or(unsafe, b.bit_and(x.equals(smallest), y.equals(-1)))
    divisor = b.select(unsafe, 1, y)
    letter = "s" if x.signed else "u"
    return b.like(x, b.emit(f"{letter}{name} {x.typed}, {divisor.text}"))


def fmod(b: Builder, x: Value, y: Value) -> Value:
    """The remainder with the sign of x; that of an integer and 0 is 0."""
    if x.is_float:
        return _float_remainder(b, x, y)
    if x.bits <= 32:
        rest = x - trunc_divide(b, x, y) * y
        return b.select(y.equals(0), 0, rest)
    return _divide(b, "rem", x, y)


def _float_remainder(b: Builder, x: Value, y: Value) -> Value:
    """Exact: rounds of x - trunc(x / y) * y, of which nearly always one is enough."""
    if x.type == "float":
        wide = _magnitude_of_remainder(b, b.to_type(x, "double"), b.to_type(y, "double"))
        return b.copysign(b.to_type(wide, "float"), x)
    return b.copysign(_magnitude_of_remainder(b, x, y), x)


def _magnitude_of_remainder(b: Builder, x: Value, y: Value) -> Value:
    magnitude, divisor = abs(x), abs(y)

    def unfinished(rest: Value) -> Value:
        return b.any(b.bit_and(abs(rest) >= divisor, abs(rest) < math.inf))

    def once(rest: Value) -> list[Value]:
        return [_reduce_once(b, rest, divisor)]

    valid = b.bit_and(magnitude < math.inf, divisor > 0)
    start = b.select(valid, magnitude, math.nan)
    (rest,) = b.loop_while(unfinished, once, [start])
    # A quotient that was rounded up has left a negative rest.
    rest = b.select(rest < 0, rest + divisor, rest)
    return b.select(b.bit_and(valid, divisor.equals(math.inf)), magnitude, rest)


def _reduce_once(b: Builder, rest: Value, divisor: Value) -> Value:
    """53 bits of the quotient taken off; without effect below the divisor."""
    step = divisor
    for _ in range(2):
        # Of a quotient beyond all numbers, a multiple of a larger multiple is taken off first.
        step = b.select(abs(rest / step) < 2.0**900, step, step * 2.0**900)
    quotient = b.trunc(rest / step)
    # A quotient that was rounded up, and Dekker's product, would overflow near the end of the
    # range: there, all is scaled down.
    factor = b.select(abs(rest) > 2.0**900, 2.0**-200, b.constant_like(rest, 1))
    product, error = two_product(b, quotient, step * factor)
    with b.exact():
        reduced = ((rest * factor - product) - error) / factor
    return b.select(abs(rest) >= divisor, reduced, rest)


def remainder(b: Builder, x: Value, y: Value) -> Value:
    """The remainder with the sign of y, as Python's %."""
    if not x.is_float and x.signed and x.bits > 32:
        return b.select(y.equals(0), 0, x - _wide_floor_quotient(b, x, y) * y)
    rest = fmod(b, x, y)
    if not x.is_float and not x.signed:
        return rest
    differs = b.bit_xor(rest < 0, y < 0)
    return b.select(b.bit_and(rest.differs(0), differs), rest + y, rest)


def floor_divide(b: Builder, x: Value, y: Value) -> Value:
    """The quotient rounded down, as Python's //; an integer divided by 0 gives 0."""
    if x.is_float:
        return _float_floor_divide(b, x, y)
    if x.signed and x.bits > 32:
        return _wide_floor_quotient(b, x, y)
    quotient = trunc_divide(b, x, y)
    if not x.signed:
        return quotient
    rest = x - quotient * y
    down = b.bit_and(rest.differs(0), b.bit_xor(x < 0, y < 0))
    down = b.bit_and(down, y.differs(0))
    return b.select(down, quotient - 1, quotient)


def _wide_floor_quotient(b: Builder, x: Value, y: Value) -> Value:
    """From the quotient of magnitudes; where the signs differ, -1 - (|x| - 1) // |y|.

    LLVM 22 makes wrong code of vectors on AVX2 where a signed quotient by a power of two is
    multiplied back and compared with what was divided: the comparison would tell when to round.
    """
    negative = b.bit_and(b.bit_xor(x < 0, y < 0), x.differs(0))
    magnitude, divisor = (b.select(one < 0, -one, one) for one in (x, y))
    divisor = b.select(y.equals(0), 1, divisor)
    magnitude = b.select(negative, magnitude - 1, magnitude)
    quotient = b.like(x, b.emit(f"udiv {magnitude.typed}, {divisor.text}"))
    rounded = b.select(negative, -1 - quotient, quotient)
    return b.select(y.equals(0), 0, rounded)


def _float_floor_divide(b: Builder, x: Value, y: Value) -> Value:
    """Through the exact remainder, as Python and NumPy do it."""
    rest = fmod(b, x, y)
    quotient = (x - rest) / y
    adjust = b.bit_and(rest.differs(0), b.bit_xor(rest < 0, y < 0))
    quotient = b.select(adjust, quotient - 1.0, quotient)
    nearest = b.round_even(quotient)
    whole = b.select(abs(quotient).equals(0), b.copysign(quotient, x / y), nearest)
    return b.select(y.equals(0), x / y, whole)


def power(b: Builder, x: Value, y: Value) -> Value:
    """x**y; an integer to a negative power is 0, unless the base is 1 or -1."""
    if x.is_float:
        return float_power(b, x, y)
    result, base = b.constant_like(x, 1), x
    for position in range(x.bits):
        used = (y & (1 << position)).differs(0)
        result = b.select(used, result * base, result)
        base = base * base
    if not x.signed:
        return result
    odd = (y & 1).differs(0)
    sign = b.select(odd, x, 1)
    unit = abs(x).equals(1)
    return b.select(y < 0, b.select(unit, sign, 0), result)


def heaviside(b: Builder, x: Value, at_zero: Value) -> Value:
    """0 below zero, `at_zero` at zero, 1 above; 0 for NaN."""
    step = b.select(x > 0, 1, b.constant_like(x, 0))
    return b.select(x.equals(0), at_zero, step)


def nextafter(b: Builder, x: Value, y: Value) -> Value:
    """The representable number next to x in the direction of y."""
    bits = b.bits(x)
    outwards = b.bit_xor(y > x, x < 0)
    moved = b.bitcast(b.select(outwards, bits + 1, bits - 1), x.type)
    tiny = 2.0 ** (-149 if MANTISSA_BITS[x.type] == 23 else -1074)
    smallest = b.copysign(b.constant_like(x, tiny), y)
    moved = b.select(x.equals(0), smallest, moved)
    moved = b.select(x.equals(y), y, moved)
    return b.select(b.bit_or(b.is_nan(x), b.is_nan(y)), math.nan, moved)


def threefry(
    b: Builder,
    key: Value,
    counter: Value,
    rotations: Sequence[Sequence[int]],
    groups: int,
    parity: int,
) -> Value:
    """64 random bits from a 64-bit key and counter: see `elementwise.tables.random_bits`."""
    low, high = b.to_type(key, "i32"), b.to_type(_upper_half(b, key), "i32")
    keys = [low, high, low ^ high ^ parity]
    first = b.to_type(counter, "i32") + keys[0]
    second = b.to_type(_upper_half(b, counter), "i32") + keys[1]
    for group in range(groups):
        for rotation in rotations[group % 2]:
            first = first + second
            second = b.rotate_left(second, rotation) ^ first
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + (group + 1)
    upper = b.to_type(second, "i64") << 32
    return upper | b.as_signed(b.to_type(b.as_unsigned(first), "i64"))


def _upper_half(b: Builder, x: Value) -> Value:
    return b.as_unsigned(x) >> 32
