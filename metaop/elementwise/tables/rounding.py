"""Rounding to integers, in floating point."""

from __future__ import annotations

import numpy as np

from metaop.elementwise import reference
from metaop.elementwise.scalar_function import ScalarFunction

_NUMBERS = ("int", "float")

ROWS = (
    ScalarFunction(
        "floor",
        1,
        numpy=np.floor,
        llvm=lambda b, x: b.floor(x),
        cuda="metaop_floor({0})",
        accepts=_NUMBERS,
    ),
    ScalarFunction(
        "ceil",
        1,
        numpy=np.ceil,
        llvm=lambda b, x: b.ceil(x),
        cuda="metaop_ceil({0})",
        accepts=_NUMBERS,
    ),
    ScalarFunction(
        "round",
        1,
        numpy=reference.round_even,
        llvm=lambda b, x: b.round_even(x),
        cuda="metaop_round({0})",
        accepts=_NUMBERS,
    ),
    ScalarFunction(
        "trunc",
        1,
        numpy=np.trunc,
        llvm=lambda b, x: b.trunc(x),
        cuda="metaop_trunc({0})",
        accepts=_NUMBERS,
    ),
    ScalarFunction(
        "frac",
        1,
        numpy=reference.fraction,
        llvm=lambda b, x: b.sub(x, b.trunc(x)),
        cuda="({0} - trunc({0}))",
        gradient=lambda g, y, x: (g,),
        accepts=("float",),
    ),
)
