"""THE table of scalar functions, gathered from the modules that hold its rows by meaning.

To add a function, add one row to the module in `tables/` where it belongs; its tests, its
documentation and its tensor method come from the row.
"""

from __future__ import annotations

from metaop.elementwise.scalar_function import ScalarFunction
from metaop.elementwise.tables import (
    arithmetic,
    exponential,
    logic,
    random_bits,
    rounding,
    selection,
    special,
    trigonometric,
)
from metaop.elementwise.tables.cuda_helpers import CUDA_HELPERS

TABLES = (
    arithmetic,
    exponential,
    trigonometric,
    special,
    rounding,
    selection,
    logic,
    random_bits,
)
FUNCTIONS: dict[str, ScalarFunction] = {row.name: row for table in TABLES for row in table.ROWS}

__all__ = ["CUDA_HELPERS", "FUNCTIONS"]
