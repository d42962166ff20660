"""Winograd's minimal filters F(m, 3): m neighbouring results of a window with m + 2 products.

For inputs x, taps w and results y: `y = A (G w * B x)`, where `*` multiplies element by element
(A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metaop.codegen import loop_nest as ir
from metaop.fusion.sliding import TAPS
from metaop.unified_graph.dtype import DType

Matrix = tuple[tuple[float, ...], ...]


class Filter(NamedTuple):
    """The three transforms of F(results, 3)."""

    results: int
    of_inputs: Matrix
    of_taps: Matrix
    of_products: Matrix

    @property
    def products(self) -> int:
        return self.results + TAPS - 1


_FILTERS = (
    Filter(
        2,
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        ((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
    Filter(
        4,
        (
            (4, 0, -5, 0, 1, 0),
            (0, -4, -4, 1, 1, 0),
            (0, 4, -4, -1, 1, 0),
            (0, -2, -1, 2, 1, 0),
            (0, 2, -1, -2, 1, 0),
            (0, 4, 0, -5, 0, 1),
        ),
        (
            (1 / 4, 0, 0),
            (-1 / 6, -1 / 6, -1 / 6),
            (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6),
            (0, 0, 1),
        ),
        ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    ),
)


def filter_for(extent: int) -> Filter:
    """The filter that covers an axis of results with the fewest products."""
    return min(_FILTERS, key=lambda each: -(-extent // each.results) * each.products)


def combinations(matrix: Matrix, values: Sequence[ir.Expr], dtype: DType) -> list[ir.Expr]:
    """The product of a matrix and a vector of expressions; zeros and ones cost nothing."""
    return [_combination(row, values, dtype) for row in matrix]


def _combination(weights: Sequence[float], values: Sequence[ir.Expr], dtype: DType) -> ir.Expr:
    total: ir.Expr | None = None
    # Positive terms first, so that none has to be negated as long as there is one.
    for weight, value in sorted(zip(weights, values), key=lambda term: -term[0]):
        if weight == 0:
            continue
        size = abs(weight) if total is not None else weight
        term = (
            value if size == 1 else ir.Apply("mul", (value, ir.Number(size, dtype)), dtype, dtype)
        )
        if total is None:
            total = term
        else:
            total = ir.Apply("add" if weight > 0 else "sub", (total, term), dtype, dtype)
    assert total is not None
    return total
