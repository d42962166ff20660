"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

import numpy as np

from metaop.elementwise.gradients import call, of_atan2
from metaop.elementwise.scalar_function import ScalarFunction, to_float

_INSIDE_ONE = ((-0.9, 0.9),)

ROWS = (
    ScalarFunction(
        "sin",
        1,
        numpy=np.sin,
        llvm=lambda b, x: b.math.sin(x),
        cuda="sin({0})",
        gradient=lambda g, y, x: (g * call("cos", x),),
        operand=to_float,
    ),
    ScalarFunction(
        "cos",
        1,
        numpy=np.cos,
        llvm=lambda b, x: b.math.cos(x),
        cuda="cos({0})",
        gradient=lambda g, y, x: (-g * call("sin", x),),
        operand=to_float,
    ),
    ScalarFunction(
        "tan",
        1,
        numpy=np.tan,
        llvm=lambda b, x: b.math.tan(x),
        cuda="tan({0})",
        gradient=lambda g, y, x: (g * (y * y + 1.0),),
        operand=to_float,
        domain=((-1.2, 1.2),),
    ),
    ScalarFunction(
        "asin",
        1,
        numpy=np.arcsin,
        llvm=lambda b, x: b.math.asin(x),
        cuda="asin({0})",
        gradient=lambda g, y, x: (g * call("rsqrt", 1.0 - x * x),),
        operand=to_float,
        domain=_INSIDE_ONE,
    ),
    ScalarFunction(
        "acos",
        1,
        numpy=np.arccos,
        llvm=lambda b, x: b.math.acos(x),
        cuda="acos({0})",
        gradient=lambda g, y, x: (-g * call("rsqrt", 1.0 - x * x),),
        operand=to_float,
        domain=_INSIDE_ONE,
    ),
    ScalarFunction(
        "atan",
        1,
        numpy=np.arctan,
        llvm=lambda b, x: b.math.atan(x),
        cuda="atan({0})",
        gradient=lambda g, y, x: (g / (x * x + 1.0),),
        operand=to_float,
    ),
    ScalarFunction(
        "atan2",
        2,
        numpy=np.arctan2,
        llvm=lambda b, x, y: b.math.atan2(x, y),
        cuda="atan2({0}, {1})",
        gradient=of_atan2,
        operand=to_float,
        # One operand away from zero: the cut lies along the negative second axis.
        domain=((-3.0, 3.0), (0.3, 3.0)),
    ),
    ScalarFunction(
        "sinh",
        1,
        numpy=np.sinh,
        llvm=lambda b, x: b.math.sinh(x),
        cuda="sinh({0})",
        gradient=lambda g, y, x: (g * call("cosh", x),),
        operand=to_float,
    ),
    ScalarFunction(
        "cosh",
        1,
        numpy=np.cosh,
        llvm=lambda b, x: b.math.cosh(x),
        cuda="cosh({0})",
        gradient=lambda g, y, x: (g * call("sinh", x),),
        operand=to_float,
    ),
    ScalarFunction(
        "tanh",
        1,
        numpy=np.tanh,
        llvm=lambda b, x: b.math.tanh(x),
        cuda="tanh({0})",
        gradient=lambda g, y, x: (g * (1.0 - y * y),),
        operand=to_float,
    ),
    ScalarFunction(
        "asinh",
        1,
        numpy=np.arcsinh,
        llvm=lambda b, x: b.math.asinh(x),
        cuda="asinh({0})",
        gradient=lambda g, y, x: (g * call("rsqrt", x * x + 1.0),),
        operand=to_float,
    ),
    ScalarFunction(
        "acosh",
        1,
        numpy=np.arccosh,
        llvm=lambda b, x: b.math.acosh(x),
        cuda="acosh({0})",
        gradient=lambda g, y, x: (g * call("rsqrt", x * x - 1.0),),
        operand=to_float,
        domain=((1.2, 6.0),),
    ),
    ScalarFunction(
        "atanh",
        1,
        numpy=np.arctanh,
        llvm=lambda b, x: b.math.atanh(x),
        cuda="atanh({0})",
        gradient=lambda g, y, x: (g / (1.0 - x * x),),
        operand=to_float,
        domain=_INSIDE_ONE,
    ),
)
