"""The error function and the gamma function with their relatives."""

from __future__ import annotations

import math

from metaop.elementwise import reference
from metaop.elementwise.gradients import call, of_trigamma
from metaop.elementwise.scalar_function import ScalarFunction, to_float

_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)
_POSITIVE = ((0.2, 20.0),)

ROWS = (
    ScalarFunction(
        "erf",
        1,
        numpy=reference.erf,
        llvm=lambda b, x: b.math.erf(x),
        cuda="erf({0})",
        gradient=lambda g, y, x: (g * (call("exp", -(x * x)) * _TWO_OVER_SQRT_PI),),
        operand=to_float,
    ),
    ScalarFunction(
        "erfc",
        1,
        numpy=reference.erfc,
        llvm=lambda b, x: b.math.erfc(x),
        cuda="erfc({0})",
        gradient=lambda g, y, x: (g * (call("exp", -(x * x)) * -_TWO_OVER_SQRT_PI),),
        operand=to_float,
    ),
    ScalarFunction(
        "erfinv",
        1,
        numpy=reference.erfinv,
        llvm=lambda b, x: b.math.erfinv(x),
        cuda="erfinv({0})",
        gradient=lambda g, y, x: (g * (call("exp", y * y) / _TWO_OVER_SQRT_PI),),
        operand=to_float,
        domain=((-0.9, 0.9),),
    ),
    ScalarFunction(
        "lgamma",
        1,
        numpy=reference.lgamma,
        llvm=lambda b, x: b.math.lgamma(x),
        cuda="lgamma({0})",
        gradient=lambda g, y, x: (g * call("digamma", x),),
        operand=to_float,
        domain=_POSITIVE,
    ),
    ScalarFunction(
        "digamma",
        1,
        numpy=reference.digamma,
        llvm=lambda b, x: b.math.digamma(x),
        cuda="metaop_digamma({0})",
        gradient=lambda g, y, x: (g * call("trigamma", x),),
        operand=to_float,
        domain=_POSITIVE,
    ),
    ScalarFunction(
        "trigamma",
        1,
        numpy=reference.trigamma,
        llvm=lambda b, x: b.math.trigamma(x),
        cuda="metaop_trigamma({0})",
        gradient=of_trigamma,
        operand=to_float,
        domain=_POSITIVE,
    ),
)
