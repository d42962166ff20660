"""How much Winograd's method rounds, beside plain sums: derived from its matrices.

Errors are counted in roundings of the result: the expected error of the result, relative to its
norm, in units of the expected error of rounding one number. A running sum of `n` random terms has
`sqrt(n / 2)` of them. The products at the points of a tile are sums too, each of them smaller or
larger than the results; `amplification` tells how much larger their errors are in the results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from metaop.codegen.lowering.winograd.short_products import Matrix, ShortProduct

# Sums are taken in runs of so many products, so that rounding hardly grows with their length.
RUN = 32
# The transforms of the data, of the window and of the products each round about once along an axis.
_TRANSFORMS = 3


def excess(products: Sequence[ShortProduct], summed: int, depth: int) -> float:
    """The rounding of results by short products along some axes, relative to plain sums.

    `summed` products are added at each point, instead of `depth` products for each result.
    """
    axes = [product for product in products if product.points > 1]
    sums = (min(summed, RUN) + -(-summed // RUN)) / 2
    factor = math.prod(amplification(product) for product in axes)
    return factor * ((_TRANSFORMS * len(axes) + sums) / (depth / 2)) ** 0.5


@cache
def amplification(product: ShortProduct) -> float:
    """How much larger errors of the products at the points are in the results, than those of sums.

    The numbers of data and window are random, or those of one of both are all the same: whichever
    is worse.
    """
    data, window = _energies(product.data), _energies(product.window)
    same_data, same_window = _energies_of_ones(product.data), _energies_of_ones(product.window)
    worst = max(
        sum(weight**2 * x * y for row in product.output for weight, x, y in zip(row, first, second))
        for first, second in ((data, window), (same_data, window), (data, same_window))
    )
    return math.sqrt(worst / (product.results * product.taps))


def _energies(matrix: Matrix) -> list[Fraction]:
    """The expected squares of a matrix times random numbers."""
    return [sum((weight**2 for weight in row), start=Fraction(0)) for row in matrix]


def _energies_of_ones(matrix: Matrix) -> list[Fraction]:
    """The squares of a matrix times ones."""
    return [sum(row, start=Fraction(0)) ** 2 for row in matrix]
