"""A line search for the strong Wolfe conditions (Nocedal & Wright, algorithms 3.5 and 3.6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from metaop.tensor.core import Tensor


class Point(NamedTuple):
    """A step length with the loss, gradient and slope there."""

    length: float
    loss: float
    gradient: Tensor
    slope: float


def _cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """The minimum, within bounds, of the cubic through two points and their slopes."""
    low, high = bounds or sorted((a.length, b.length))
    if a.length > b.length:
        a, b = b, a
    first = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.length - b.length)
    square = first**2 - a.slope * b.slope
    if square < 0:
        return (low + high) / 2.0
    second = math.sqrt(square)
    share = (b.slope + second - first) / (b.slope - a.slope + 2 * second)
    return min(max(b.length - (b.length - a.length) * share, low), high)


def strong_wolfe(
    evaluate: Callable[[float], tuple[float, Tensor]],
    length: float,
    direction: Tensor,
    loss: float,
    gradient: Tensor,
    slope: float,
    decrease: float = 1e-4,
    curvature: float = 0.9,
    tolerance_change: float = 1e-9,
    max_evaluations: int = 25,
) -> tuple[float, Tensor, float, int]:
    """Finds a step length that satisfies both Wolfe conditions.

    Returns loss, gradient, step length and the number of evaluations.
    """

    def at(where: float) -> Point:
        found, gradient = evaluate(where)
        return Point(where, found, gradient, gradient.dot(direction).item())

    start = Point(0.0, loss, gradient, slope)

    def too_high(point: Point) -> bool:
        return point.loss > loss + decrease * point.length * slope

    def flat(point: Point) -> bool:
        return abs(point.slope) <= -curvature * slope

    previous, point = start, at(length)
    calls = 1
    step = 0
    bracket: list[Point] = []
    while step < max_evaluations:
        if too_high(point) or (calls > 1 and point.loss >= previous.loss):
            bracket = [previous, point]
            break
        if flat(point):
            return point.loss, point.gradient, point.length, calls
        if point.slope >= 0:
            bracket = [previous, point]
            break
        bounds = (point.length + 0.01 * (point.length - previous.length), point.length * 10)
        following = _cubic_minimum(previous, point, bounds)
        previous, point = point, at(following)
        calls += 1
        step += 1
    if not bracket:
        bracket = [start, point]
    limit = max_evaluations - step
    reach = direction.abs().max().item()
    best, more = _zoom(at, bracket, too_high, flat, limit, tolerance_change / max(reach, 1e-300))
    return best.loss, best.gradient, best.length, calls + more


def _zoom(
    at: Callable[[float], Point],
    bracket: list[Point],
    too_high: Callable[[Point], bool],
    flat: Callable[[Point], bool],
    limit: int,
    smallest: float,
) -> tuple[Point, int]:
    """Narrows a bracket; returns the best point in it and the number of evaluations."""
    low, high = sorted(bracket, key=lambda point: point.loss)
    calls = 0
    stuck = False
    while calls < limit and abs(low.length - high.length) >= smallest:
        length = _cubic_minimum(low, high)
        left, right = sorted((low.length, high.length))
        margin = 0.1 * (right - left)
        if min(right - length, length - left) < margin:
            # Twice too near an edge of the bracket: move a tenth of its length inside instead.
            if stuck or length >= right or length <= left:
                nearer = abs(length - right) < abs(length - left)
                length = right - margin if nearer else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = at(length)
        calls += 1
        if too_high(point) or point.loss >= low.loss:
            high = point
            if high.loss < low.loss:
                low, high = high, low
            continue
        if flat(point):
            return point, calls
        if point.slope * (high.length - low.length) >= 0:
            high = low
        low = point
    return low, calls
