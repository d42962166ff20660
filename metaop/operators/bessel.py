"""Bessel functions of orders 0 and 1, and Airy's: Chebyshev sums near 0, phase and size far off."""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, where
from metaop.operators import bessel_coefficients as table
from metaop.operators.special import bessel_i0, bessel_i1, chebyshev
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node

# Where the sums in powers of x end and those in powers of 1/x begin.
_OSCILLATING, _DECAYING, _AIRY_RIGHT, _AIRY_LEFT = 8.0, 2.0, 2.0, -4.0


def _near(size: Node) -> tuple[Node, Node]:
    """The size where it is small (else the border), and its place for even functions of it."""
    small = where(size <= _OSCILLATING, size, _OSCILLATING)
    return small, small * small * (2 / _OSCILLATING**2) - 1.0


def _far(size: Node, order: int) -> tuple[Node, Node, Node]:
    """Phase, and the parts in phase and out of phase, both times sqrt(2 / (pi x))."""
    large = where(size <= _OSCILLATING, _OSCILLATING, size)
    ratio = _OSCILLATING / large
    place = ratio * ratio * 2.0 - 1.0
    in_phase, out_of_phase = (
        (table.IN_PHASE_0, table.OUT_OF_PHASE_0),
        (table.IN_PHASE_1, table.OUT_OF_PHASE_1),
    )[order]
    scale = apply("rsqrt", large * (math.pi / 2))
    phase = large - (math.pi / 4 + order * math.pi / 2)
    return (
        phase,
        chebyshev(place, in_phase) * scale,
        chebyshev(place, out_of_phase) * ratio * scale,
    )


def _first_kind(size: Node, order: int) -> Node:
    small, place = _near(size)
    inner = small * chebyshev(place, table.J1_NEAR) if order else chebyshev(place, table.J0_NEAR)
    phase, one, other = _far(size, order)
    outer = one * apply("cos", phase) - other * apply("sin", phase)
    return where(size <= _OSCILLATING, inner, where(size.equals(math.inf), 0.0, outer))


def _second_kind(source: Node, order: int) -> Node:
    small, place = _near(source)
    logarithm = apply("log", small) * (2 / math.pi)
    inner = chebyshev(place, table.Y0_NEAR) + logarithm * chebyshev(place, table.J0_NEAR)
    if order:
        series = chebyshev(place, table.Y1_NEAR) + logarithm * chebyshev(place, table.J1_NEAR)
        inner = small * series - (2 / math.pi) / small
    phase, one, other = _far(source, order)
    outer = one * apply("sin", phase) + other * apply("cos", phase)
    result = where(source <= _OSCILLATING, inner, where(source.equals(math.inf), 0.0, outer))
    return _from_zero(source, result, -math.inf)


def _from_zero(source: Node, result: Node, at_zero: float) -> Node:
    """`at_zero` at 0, NaN below."""
    return where(source > 0.0, result, where(source.equals(0), at_zero, math.nan))


@composite
def bessel_j0(source: Node) -> Node:
    """The Bessel function of the first kind of order 0."""
    return _first_kind(apply("abs", source), 0)


@composite
def bessel_j1(source: Node) -> Node:
    """The Bessel function of the first kind of order 1."""
    # Not abs, whose gradient of 0 at 0 would hide the gradient of this function.
    size = _first_kind(where(source < 0.0, -source, source), 1)
    return where(source < 0.0, -size, size)


@composite
def bessel_y0(source: Node) -> Node:
    """The Bessel function of the second kind of order 0."""
    return _second_kind(source, 0)


@composite
def bessel_y1(source: Node) -> Node:
    """The Bessel function of the second kind of order 1."""
    return _second_kind(source, 1)


def _decaying(source: Node, order: int, scaled: bool) -> Node:
    """The modified Bessel function of the second kind, times exp(x) if `scaled`."""
    close = source <= _DECAYING
    small, large = where(close, source, _DECAYING), where(close, _DECAYING, source)
    logarithm = apply("log", small * 0.5)
    place = small * small * (2 / _DECAYING**2) - 1.0
    if order:
        inner = logarithm * bessel_i1(small) + chebyshev(place, table.K1_NEAR) / small
    else:
        inner = chebyshev(place, table.K0_NEAR) - logarithm * bessel_i0(small)
    coefficients = table.K1_FAR if order else table.K0_FAR
    outer = chebyshev(2 * _DECAYING / large - 1.0, coefficients) * apply("rsqrt", large)
    if scaled:
        inner = inner * apply("exp", small)
    else:
        outer = outer * apply("exp", -large)
    return _from_zero(source, where(close, inner, outer), math.inf)


@composite
def bessel_k0(source: Node) -> Node:
    """The modified Bessel function of the second kind of order 0."""
    return _decaying(source, 0, False)


@composite
def bessel_k1(source: Node) -> Node:
    """The modified Bessel function of the second kind of order 1."""
    return _decaying(source, 1, False)


@composite
def bessel_k0e(source: Node) -> Node:
    """`exp(x) K0(x)`."""
    return _decaying(source, 0, True)


@composite
def bessel_k1e(source: Node) -> Node:
    """`exp(x) K1(x)`."""
    return _decaying(source, 1, True)


@composite
def spherical_bessel_j0(source: Node) -> Node:
    """`sin(x) / x`, 1 at 0."""
    at_zero = source.equals(0)
    place = where(at_zero, 1.0, source)
    result = where(apply("isinf", source), 0.0, apply("sin", place) / place)
    return where(at_zero, 1.0, result)


@composite
def airy_ai(source: Node) -> Node:
    """Airy's function Ai."""
    middle_place = apply("clamp_max", apply("clamp_min", source, _AIRY_LEFT), _AIRY_RIGHT)
    span = _AIRY_RIGHT - _AIRY_LEFT
    scaled_place = (middle_place * 2.0 - (_AIRY_RIGHT + _AIRY_LEFT)) / span
    middle = chebyshev(scaled_place, table.AIRY_MIDDLE)
    result = where(source > _AIRY_RIGHT, _airy_right(source), middle)
    result = where(source < _AIRY_LEFT, _airy_left(source), result)
    return where(apply("isnan", source), source, result)


def _airy_argument(size: Node) -> Node:
    return size * apply("sqrt", size) * (2 / 3)


def _airy_right(source: Node) -> Node:
    size = where(source > _AIRY_RIGHT, source, _AIRY_RIGHT)
    argument = _airy_argument(size)
    first = 2 / 3 * _AIRY_RIGHT**1.5
    sums = chebyshev((2 * first) / argument - 1.0, table.AIRY_RIGHT)
    root = apply("sqrt", apply("rsqrt", size))
    return sums * root * apply("exp", -argument) * (0.5 / math.sqrt(math.pi))


def _airy_left(source: Node) -> Node:
    size = where(source < _AIRY_LEFT, -source, -_AIRY_LEFT)
    argument = _airy_argument(size)
    ratio = (2 / 3 * (-_AIRY_LEFT) ** 1.5) / argument
    place = ratio * ratio * 2.0 - 1.0
    phase = argument + math.pi / 4
    waves = chebyshev(place, table.AIRY_IN_PHASE) * apply("sin", phase)
    waves = waves - chebyshev(place, table.AIRY_OUT_OF_PHASE) * ratio * apply("cos", phase)
    return waves * apply("sqrt", apply("rsqrt", size)) * (1 / math.sqrt(math.pi))
