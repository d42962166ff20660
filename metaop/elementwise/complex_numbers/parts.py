"""A complex value as two real ones, with the arithmetic that formulas need."""

from __future__ import annotations

from typing import NamedTuple

from metaop.elementwise.meta_op import apply, where
from metaop.unified_graph.node import Node, Operand


class Parts(NamedTuple):
    """The real and the imaginary part of a complex value."""

    real: Node
    imag: Node


def call(name: str, *operands: Operand) -> Node:
    """The node of a row of the table for real numbers."""
    return apply(name, *operands)


def conjugate(z: Parts) -> Parts:
    """The number with the other sign of its imaginary part."""
    return Parts(z.real, -z.imag)


def negative(z: Parts) -> Parts:
    """The number with the other sign."""
    return Parts(-z.real, -z.imag)


def add(z: Parts, w: Parts) -> Parts:
    """The sum of two numbers."""
    return Parts(z.real + w.real, z.imag + w.imag)


def subtract(z: Parts, w: Parts) -> Parts:
    """The difference of two numbers."""
    return Parts(z.real - w.real, z.imag - w.imag)


def multiply(z: Parts, w: Parts) -> Parts:
    """The product of two numbers; both parts are sums, so that those of matrices are contractions.

    A difference is not distributed over sums of products, because that may cancel digits.
    """
    return Parts(z.real * w.real + (-z.imag) * w.imag, z.real * w.imag + z.imag * w.real)


def scale(z: Parts, factor: Operand) -> Parts:
    """The product with a real number."""
    return Parts(z.real * factor, z.imag * factor)


def divide(z: Parts, w: Parts) -> Parts:
    """The quotient by R. Smith's method (1962): nothing overflows that fits in the end."""
    is_real, ratio, divisor = _smith(w)
    real = where(is_real, z.real + z.imag * ratio, z.real * ratio + z.imag)
    imag = where(is_real, z.imag - z.real * ratio, z.imag * ratio - z.real)
    return Parts(real / divisor, imag / divisor)


def reciprocal(z: Parts) -> Parts:
    """The quotient of 1 and the number, in the same way."""
    is_real, ratio, divisor = _smith(z)
    return Parts(where(is_real, 1.0, ratio) / divisor, where(is_real, -ratio, -1.0) / divisor)


def _smith(w: Parts) -> tuple[Node, Node, Node]:
    """Whether the real part of a divisor is the larger one, the smaller one over the larger one,
    and |w|**2 over the larger one."""
    is_real = call("abs", w.real) >= call("abs", w.imag)
    large, small = where(is_real, w.real, w.imag), where(is_real, w.imag, w.real)
    is_zero = ~truth(w)
    ratio = where(is_zero, 0.0, small / large)
    return is_real, ratio, where(is_zero, call("abs", large), large + small * ratio)


def chosen(condition: Node, z: Parts, w: Parts) -> Parts:
    """The one number where the condition holds, else the other."""
    return Parts(where(condition, z.real, w.real), where(condition, z.imag, w.imag))


def modulus(z: Parts) -> Node:
    """The distance from 0."""
    return call("hypot", z.real, z.imag)


def angle(z: Parts) -> Node:
    """The angle with the positive real axis."""
    return call("atan2", z.imag, z.real)


def truth(z: Parts) -> Node:
    """Whether a number is not 0."""
    return call("logical_or", z.real, z.imag)


def times_i(z: Parts) -> Parts:
    """The product with the imaginary unit, with the signs of zeros."""
    return Parts(-z.imag, z.real)


def over_i(z: Parts) -> Parts:
    """The quotient by the imaginary unit, with the signs of zeros."""
    return Parts(z.imag, -z.real)
