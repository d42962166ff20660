"""Resizing: every output element is a weighted sum of a few neighbouring input elements.

One dimension is resized at a time. Where the sizes have the ratio p : r, output q*r + m starts
reading at q*p + s(m): a map that the compiler inverts for the gradient. Other scales look their
starts up. The scale of a dimension, in per out, follows from the extents if it is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from metaop.elementwise.meta_op import apply, cast, where
from metaop.operators.expressions import in_compute_type
from metaop.operators.padding import extended
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import reshape
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.index_expr import IndexExpr, lookup
from metaop.unified_graph.node import Node, index_node
from metaop.unified_graph.symbolic import common_divisor, divides, is_symbolic

# Starts are looked up unless the scale is a fraction whose denominator is at most this.
_LARGEST_PERIOD = 1 << 12
# With denominators up to this, single precision rounds to the same starts as fractions do.
_LARGEST_EXACT = 1 << 6


class Filter(NamedTuple):
    """An interpolation kernel: its half-width, its value at a distance, and its border handling.

    `antialias_value` is the kernel for shrinking with antialiasing.
    """

    radius: int
    value: Callable[[Node], Node]
    antialias_value: Callable[[Node], Node]


def _triangle(distance: Node) -> Node:
    return apply("relu", 1.0 - distance)


def cubic(distance: Node, sharpness: float = -0.75) -> Node:
    """The piecewise cubic kernel of R. Keys (1981) at a non-negative distance."""
    a = sharpness
    near = ((distance * (a + 2.0) - (a + 3.0)) * distance) * distance + 1.0
    far = ((distance * a - 5.0 * a) * distance + 8.0 * a) * distance - 4.0 * a
    return where(distance <= 1, near, where(distance < 2, far, 0))


FILTERS = {
    "linear": Filter(1, _triangle, _triangle),
    "cubic": Filter(2, cubic, lambda distance: cubic(distance, -0.5)),
}

# The scales that the user gave, in per out; None follows from the extents.
Scales = tuple["float | None", ...]


@composite
def nearest(input: Node, output: tuple[int, ...], scales: Scales, exact: bool) -> Node:
    """Each element of the last dimensions taken from the nearest one."""
    offset = 0.5 if exact else 0.0
    for k, (extent, given) in enumerate(zip(output, scales)):
        dim = input.ndim - len(output) + k
        size = input.shape[dim]
        if given is not None and not exact and (extent == size or extent == 2 * size):
            given = None  # PyTorch copies, or doubles, whatever the factor was before rounding.
        scale, last = _Scale.of(size, extent, given, False), size - 1
        # PyTorch computes them in single precision for all types.
        places = _Places(scale, offset, 0.0, 0, last, dtypes.float32)
        input = _resampled(input, dim, extent, places, 1, None)
    return input


@composite
@in_compute_type
def interpolate(
    input: Node,
    output: tuple[int, ...],
    scales: Scales,
    align_corners: bool,
    filter: str,
    antialias: bool,
) -> Node:
    """The last dimensions resized by the separable `filter`."""
    kernel = FILTERS[filter]
    resized = _antialiased if antialias else _interpolated
    for k, (extent, given) in enumerate(zip(output, scales)):
        dim = input.ndim - len(output) + k
        if (antialias or filter == "linear") and given is not None and extent == input.shape[dim]:
            given = None  # PyTorch copies, whatever the factor was before rounding.
        scale = _Scale.of(input.shape[dim], extent, given, align_corners)
        input = resized(input, dim, extent, scale, align_corners, kernel)
    return input


class _Scale(NamedTuple):
    """The step in the input per output element, and the fraction that it rounds, if it does."""

    value: float
    ratio: tuple[int, int] | None

    @staticmethod
    def of(extent: int, output: int, given: float | None, align_corners: bool) -> _Scale:
        if given is not None:
            near = None if is_symbolic(given) else _fraction(given)
            is_near = near is not None and math.isclose(given, near, rel_tol=1e-12)
            return _Scale(given, near.as_integer_ratio() if near is not None and is_near else None)
        inward = int(align_corners)
        if output == inward:
            return _Scale(0.0, (0, 1))
        step, steps = extent - inward, output - inward
        common = common_divisor(step, steps)
        step, steps = step // common, steps // common
        return _Scale(step / steps, (step, steps))

    @property
    def is_exact(self) -> bool:
        """Whether single precision rounds no product down to a smaller integer."""
        if self.ratio is None or is_symbolic(self.ratio[1]) or self.ratio[1] > _LARGEST_EXACT:
            return False
        return Fraction(float(np.float32(self.value))) >= Fraction(*self.ratio)


def _fraction(scale: float) -> Fraction:
    return Fraction(scale).limit_denominator(_LARGEST_PERIOD)


class _Places(NamedTuple):
    """The first input of output element o: floor(scale * (o + offset) + shift) + first.

    It is at most `high`, if that is given.
    """

    scale: _Scale
    offset: float
    shift: float
    first: int
    high: int | None
    dtype: DType

    def centres(self, position: Node) -> Node:
        """The fractional input coordinate of the output element `position`."""
        return (cast(position, self.dtype) + self.offset) * self.scale.value + self.shift

    def starts(self, position: Node) -> Node:
        """The first input element that output element `position` reads."""
        start = cast(apply("floor", self.centres(position)), dtypes.int64) + self.first
        return start if self.high is None else apply("minimum", start, self.high)

    def known_starts(self, count: int) -> list[int] | None:
        """The same numbers for outputs 0 … count - 1, computed now; None if they vary."""
        if any(map(is_symbolic, (count, self.scale.value, self.high))):
            return None
        kind = self.dtype.numpy.type
        position = np.arange(count).astype(kind)
        centres = (position + kind(self.offset)) * kind(self.scale.value) + kind(self.shift)
        starts = np.floor(centres).astype(np.int64) + self.first
        return [int(s) for s in (starts if self.high is None else np.minimum(starts, self.high))]

    def exactly(self, position: IndexExpr) -> IndexExpr:
        """The same number, by the fraction."""
        assert self.scale.ratio is not None
        step, divisor = self.scale.ratio
        twice = int(2 * self.offset), int(2 * self.shift)
        if twice == (0, 0):
            return position * step // divisor + self.first
        moved = twice[0] * step + twice[1] * divisor
        return (position * (2 * step) + moved) // (2 * divisor) + self.first


def _interpolated(
    input: Node, dim: int, extent: int, scale: _Scale, align_corners: bool, kernel: Filter
) -> Node:
    last = input.shape[dim] - 1
    offset, shift = (0.0, 0.0) if align_corners else (0.5, -0.5)
    places = _Places(scale, offset, shift, 1 - kernel.radius, None, input.dtype)
    taps = 2 * kernel.radius
    if kernel.radius > 1:
        # Wide kernels repeat the border element beyond the border.
        before = after = kernel.radius
        starts = places.known_starts(extent)
        if starts and not is_symbolic(last):
            before, after = max(-min(starts), 0), max(max(starts) + taps - 1 - last, 0)
        input = extended(input, dim, before, after, "replicate")
        places = places._replace(shift=shift + before)

    def weight(position: Node, start: Node, tap: int) -> Node:
        centre = places.centres(position)
        if kernel.radius == 1:
            centre = apply("clamp_max", apply("clamp_min", centre, 0), last)
        return kernel.value(apply("abs", centre - cast(start + tap, centre.dtype)))

    return _resampled(input, dim, extent, places, taps, weight)


def _antialiased(
    input: Node, dim: int, extent: int, scale: _Scale, align_corners: bool, kernel: Filter
) -> Node:
    """Downsampling with the kernel stretched by the scale, and normalised weights."""
    size = input.shape[dim]
    stretch = max(scale.value, 1.0)
    support = kernel.radius * stretch
    places = _Places(scale, 0.5, 0.5 - support, 0, None, input.dtype)
    taps = math.ceil(support) * 2 + 1

    def raw(position: Node, start: Node, tap: int) -> Node:
        centre = places.centres(position) + (support - 0.5)
        place = start + tap
        end = cast(apply("floor", centre + (support + 0.5)), dtypes.int64)
        inside = (place >= 0) & (place < apply("minimum", end, size))
        distance = (cast(place, centre.dtype) - centre + 0.5) * (1.0 / stretch)
        return where(inside, kernel.antialias_value(apply("abs", distance)), 0)

    def weight(position: Node, start: Node, tap: int) -> Node:
        total = raw(position, start, 0)
        for other in range(1, taps):
            total = total + raw(position, start, other)
        return raw(position, start, tap) / total

    return _resampled(input, dim, extent, places, taps, weight)


Weight = Callable[[Node, Node, int], Node]


def _resampled(
    input: Node, dim: int, extent: int, places: _Places, taps: int, weight: Weight | None
) -> Node:
    """Dimension `dim` with `extent` elements, each the weighted sum of `taps` input elements."""
    size = input.shape[dim]
    step, period, within, (low, high) = _starts(extent, size, places, weight is not None)
    shape = (*input.shape[:dim], extent // period, period, *input.shape[dim + 1 :])
    axes = IndexMap.axes(shape)
    thin = tuple(n if k in (dim, dim + 1) else 1 for k, n in enumerate(shape))
    position = index_node(axes[dim] * period + axes[dim + 1], thin)
    operands: tuple[Node, ...] = ()
    if within is not None:
        first = axes[dim] * step + within(axes[dim + 1])
        # The weights must use exactly these starts. A kernel with fused multiply-add rounds less
        # than NumPy, and would compute another start where a centre is an integer.
        start = index_node(first, thin)
    else:
        start = apply("minimum", apply("maximum", places.starts(position), low), high)
        operands = (reshape(start - low, (extent,)),)
        first = lookup(1, (axes[dim] * period + axes[dim + 1],), high - low + 1) + low

    def tapped(tap: int) -> Node:
        place = first + tap
        indices = [*axes[:dim], place, *axes[dim + 2 :]]
        moved = reindex(input, IndexMap(shape, indices, [Within(place, size)]), 0, operands)
        return moved if weight is None else moved * weight(position, start, tap)

    result = tapped(0)
    for tap in range(1, taps):
        result = result + tapped(tap)
    return reshape(result, (*input.shape[:dim], extent, *input.shape[dim + 1 :]))


def _starts(
    extent: int, size: int, places: _Places, is_continuous: bool
) -> tuple[int, int, Callable[[IndexExpr], IndexExpr] | None, tuple[int, int]]:
    """How the starts follow from the outputs: (step, period, within, bounds).

    Output `q * period + m` starts at `q * step + within(m)`; without `within`, starts are computed
    at run time, and are clamped to the bounds. `is_continuous`: a start that rounding moves by one
    hardly changes the result.
    """
    scale = places.scale
    step, divisor = scale.ratio or (extent, extent)
    period = divisor if not is_symbolic(divisor) and divides(divisor, extent) else extent
    within: Callable[[IndexExpr], IndexExpr] | None = None
    if scale.is_exact or (is_continuous and scale.ratio is not None):
        within = places.exactly
    bounds = 0, size - 1
    starts = places.known_starts(extent)
    if starts is not None:
        bounds = min(starts), max(starts)
        ratio = Fraction(*scale.ratio) if scale.ratio else _fraction(scale.value)
        within = _as_quotient(starts, ratio, period) or within
    return step * period // divisor, period, within, bounds


def _as_quotient(
    starts: list[int], ratio: Fraction, period: int
) -> Callable[[IndexExpr], IndexExpr] | None:
    """s(m) as an index expression if starts[q*period + m] = q*stride + s(m), else None."""
    step, divisor = ratio.numerator, ratio.denominator
    stride = step * period // divisor
    low = starts[0]
    if any(s != o // period * stride + starts[o % period] for o, s in enumerate(starts)):
        return None
    first = range(period)
    least = max((starts[m] - low) * divisor - m * step for m in first)
    most = min((starts[m] - low + 1) * divisor - m * step - 1 for m in first)
    if least > most:
        return None
    return lambda m: (m * step + least) // divisor + low
