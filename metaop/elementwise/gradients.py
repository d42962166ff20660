"""Helpers with which the rows of the function table write their gradients."""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, where
from metaop.elementwise.reference import TRIGAMMA_SERIES
from metaop.unified_graph.node import Constant, Node

Cotangents = tuple["Node | None", ...]

# Steps to the right after which the asymptotic series of polygamma has all digits.
_RECURRENCES = 12


def call(name: str, *operands: Node | float) -> Node:
    """The node of a row of the table; a short name, because gradients use it so often."""
    return apply(name, *operands)


def keep(condition: Node, g: Node) -> Node:
    """The cotangent where the condition holds, zero elsewhere (also where g is not finite)."""
    return where(condition, g, 0)


def drop(condition: Node, g: Node) -> Node:
    """Zero where the condition holds, the cotangent elsewhere (also where a NaN compared)."""
    return where(condition, 0, g)


def constant_value(node: Node) -> float | None:
    """The number that fills the node, or None when it is not a constant."""
    return node.op.value(node.dtype) if isinstance(node.op, Constant) else None


def of_power(g: Node, y: Node, base: Node, exponent: Node) -> Cotangents:
    """d(b**e): e * b**(e-1) and b**e * log(b), with PyTorch's zeros at 0**0 and 0**positive."""
    fixed = constant_value(exponent)
    if fixed is not None:
        return _of_constant_power(g, base, float(fixed)), None
    # Where the exponent is 0 the factor is 0 and the power is kept finite by an exponent of 1.
    nonzero = where(exponent.equals(0), 1, exponent)
    of_base = g * exponent * call("pow", base, nonzero - 1)
    vanishes = call("logical_and", base.equals(0), exponent >= 0)
    # The logarithm of a safe base, so that no infinity meets a zero in higher derivatives.
    logarithm = call("log", where(vanishes, 1, base))
    return of_base, g * y * logarithm


def _of_constant_power(g: Node, base: Node, exponent: float) -> Node | None:
    if exponent == 0:
        return None
    if exponent == 1:
        return g
    if exponent == 2:
        return g * (base * 2.0)
    return g * (call("pow", base, exponent - 1) * exponent)


def of_maximum(g: Node, y: Node, x: Node, other: Node) -> Cotangents:
    """Ties share the cotangent; a NaN operand sends it to both, as in PyTorch."""
    return _of_extreme(g, x, other, x < other, x > other)


def of_minimum(g: Node, y: Node, x: Node, other: Node) -> Cotangents:
    """Ties share the cotangent; a NaN operand sends it to both, as in PyTorch."""
    return _of_extreme(g, x, other, x > other, x < other)


def _of_extreme(g: Node, x: Node, other: Node, loses: Node, wins: Node) -> Cotangents:
    shared = where(x.equals(other), g * 0.5, g)
    return drop(loses, shared), drop(wins, shared)


def of_atan2(g: Node, y: Node, opposite: Node, adjacent: Node) -> Cotangents:
    """Zero at the origin, where the angle has no derivative."""
    squared = opposite * opposite + adjacent * adjacent
    scaled = g / where(squared.equals(0), 1, squared)
    return scaled * adjacent, -(scaled * opposite)


def of_xlogy(g: Node, y: Node, x: Node, other: Node) -> Cotangents:
    """xlogy(g, other), zero where x is 0 and the logarithm has no finite value; g * x / other."""
    vanishes = call("logical_and", x.equals(0), other <= 0)
    return call("xlogy", drop(vanishes, g), where(vanishes, 1, other)), g * x / other


def of_trigamma(g: Node, y: Node, x: Node) -> Cotangents:
    """Polygamma of order 2: reflection, recurrence, then the derivative of trigamma's series."""
    reflected = x < 0.0
    place = where(reflected, 1.0 - x, x)
    total = place * 0.0
    for _ in range(_RECURRENCES):
        total = total - 2.0 / (place * place * place)
        place = place + 1.0
    square = 1.0 / (place * place)
    series = square * 0.0
    for k, number in reversed(list(enumerate(TRIGAMMA_SERIES, 1))):
        series = (series + (2 * k + 1) * number) * square
    total = total - square * (1.0 + 1.0 / place + series)
    angle = where(reflected, x, 0.5) * math.pi
    sine = call("sin", angle)
    mirrored = call("cos", angle) * (2 * math.pi**3) / (sine * sine * sine)
    return (g * where(reflected, total - mirrored, total),)
