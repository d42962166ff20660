"""Short correlations with few multiplications, as Toom, Cook and Winograd found them.

`m` neighbouring results of a window of `r` numbers need `m * r` multiplications, or `m + r - 1`
when both factors are evaluated at as many points (infinity is one), as polynomials are: with the
data `d` and the window `g`, `y = output @ ((window @ g) * (data @ d))` (A. Lavin, S. Gray, "Fast
algorithms for convolutional neural networks", 2015).

The points ±5/8 and ±8/5 amplify errors the least among fractions of numbers up to 8: those of 4 x 4
results of a 3 x 3 window half as much as the usual ±1 and ±2 (`rounding.amplification`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod

from metaop.codegen.nest import ir
from metaop.unified_graph.dtype import DType

Matrix = tuple[tuple[Fraction, ...], ...]
# Pairs of points that differ in sign share half of their work.
_POINTS = (Fraction(0), Fraction(5, 8), Fraction(-5, 8), Fraction(8, 5), Fraction(-8, 5))
_FEW_POINTS = (Fraction(0), Fraction(1), Fraction(-1))


@dataclass(frozen=True, eq=False)
class ShortProduct:
    """The matrices for `results` results at once: of the data, of the window, of the results.

    There is one of each, so that none is compared number by number.
    """

    results: int
    data: Matrix
    window: Matrix
    output: Matrix

    @property
    def points(self) -> int:
        """The number of multiplications."""
        return len(self.data)

    @property
    def taps(self) -> int:
        """The extent of the window."""
        return len(self.window[0])


_ONE: Matrix = ((Fraction(1),),)
# One result of a window of one number.
SINGLE = ShortProduct(1, _ONE, _ONE, _ONE)


@cache
def short_product(results: int, window: int) -> ShortProduct:
    """The matrices for `results` neighbouring results of a window, at most 6 points in all."""
    count = results + window - 2
    points = (_FEW_POINTS if count <= len(_FEW_POINTS) else _POINTS)[:count]
    others = [[b for b in points if b is not a] for a in points]
    # The polynomial through the values at the points, and its leading coefficient at infinity.
    data = [(*_product_of(rest), Fraction(0)) for rest in others] + [_product_of(list(points))]
    scale = [prod((a - b for b in rest), start=Fraction(1)) for a, rest in zip(points, others)]
    window_rows = [tuple(a**k / f for k in range(window)) for a, f in zip(points, scale)]
    window_rows.append(tuple(Fraction(k == window - 1) for k in range(window)))
    output = [(*(a**i for a in points), Fraction(i == results - 1)) for i in range(results)]
    return ShortProduct(results, tuple(data), tuple(window_rows), tuple(output))


def _product_of(roots: list[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of the product of `x - root`, lowest first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [*(-root * c for c in coefficients), Fraction(0)]
        coefficients = [a + b for a, b in zip(shifted, scaled)]
    return tuple(coefficients)


def combined(
    matrix: Matrix,
    numbers: Sequence[ir.Expr],
    named: Callable[[ir.Expr], ir.Expr],
    dtype: DType,
) -> list[ir.Expr]:
    """The matrix times a column of numbers; mirror images share their work.

    `named` binds a value that is used more than once to a name.
    """
    matrix, terms = _paired_columns(matrix, numbers, named, dtype)
    found: list[ir.Expr] = []
    while len(found) < len(matrix):
        row = matrix[len(found)]
        following = matrix[len(found) + 1] if len(found) + 1 < len(matrix) else row
        even = [k for k, c in enumerate(row) if c and c == following[k]]
        odd = [k for k, c in enumerate(row) if c and c == -following[k]]
        if even and odd and len(even) + len(odd) == sum(map(bool, row)):
            same, other = (named(_weighted(row, ks, terms, dtype)) for ks in (even, odd))
            found += [_apply("add", same, other, dtype), _apply("sub", same, other, dtype)]
        else:
            found.append(_weighted(row, [k for k, c in enumerate(row) if c], terms, dtype))
    return found


def _paired_columns(
    matrix: Matrix,
    numbers: Sequence[ir.Expr],
    named: Callable[[ir.Expr], ir.Expr],
    dtype: DType,
) -> tuple[Matrix, list[ir.Expr]]:
    """Neighbouring columns that agree but for signs get the sum and the difference."""
    columns, terms = [list(column) for column in zip(*matrix)], list(numbers)
    for k in range(len(columns) - 1):
        left, right = columns[k : k + 2]
        if list(map(abs, left)) != list(map(abs, right)) or left == right or not any(left):
            continue
        both = terms[k : k + 2]
        terms[k : k + 2] = [named(_apply(name, both[0], both[1], dtype)) for name in ("add", "sub")]
        columns[k] = [c if c == d else Fraction(0) for c, d in zip(left, right)]
        columns[k + 1] = [c if c != d else Fraction(0) for c, d in zip(left, right)]
    return tuple(zip(*columns)), terms


def _weighted(
    row: Sequence[Fraction], positions: Sequence[int], numbers: Sequence[ir.Expr], dtype: DType
) -> ir.Expr:
    """The sum of some numbers, each times its entry of a row."""
    # A number that is neither scaled nor subtracted comes first.
    order = sorted(positions, key=lambda k: (row[k] < 0, abs(row[k]) != 1))
    total: ir.Expr | None = None
    for k in order:
        weight = row[k] if total is None else abs(row[k])
        term = numbers[k]
        if weight != 1:
            term = _apply("mul", term, ir.Number(float(weight), dtype), dtype)
        if total is not None:
            term = _apply("add" if row[k] > 0 else "sub", total, term, dtype)
        total = term
    assert total is not None
    return total


def _apply(function: str, left: ir.Expr, right: ir.Expr, dtype: DType) -> ir.Expr:
    return ir.Apply(function, (left, right), dtype, dtype)
