"""Arithmetic: sums, products, quotients, remainders, powers and roots."""

from __future__ import annotations

import numpy as np

from metaop.elementwise import reference
from metaop.elementwise.gradients import call, drop, of_power
from metaop.elementwise.scalar_function import Refusal, ScalarFunction, to_float
from metaop.unified_graph.faults import DIVISION_BY_ZERO

_NUMBERS = ("int", "float")
_FLOATS = ("float",)
# Divisors stay away from zero, where finite differences mean nothing.
_DIVISION = ((-9.0, 9.0), (0.5, 3.0))
_ZERO_DIVISOR = Refusal(DIVISION_BY_ZERO, position=1, test="logical_not", among=("int",))

ROWS = (
    ScalarFunction(
        "add",
        2,
        numpy=np.add,
        llvm=lambda b, x, y: b.add(x, y),
        cuda="({0} + {1})",
        gradient=lambda g, y, a, b: (g, g),
        degree="linear",
    ),
    ScalarFunction(
        "sub",
        2,
        numpy=np.subtract,
        llvm=lambda b, x, y: b.sub(x, y),
        cuda="({0} - {1})",
        gradient=lambda g, y, a, b: (g, -g),
        accepts=_NUMBERS,
        degree="linear",
    ),
    ScalarFunction(
        "mul",
        2,
        numpy=np.multiply,
        llvm=lambda b, x, y: b.mul(x, y),
        cuda="({0} * {1})",
        gradient=lambda g, y, a, b: (g * b, g * a),
        degree="multilinear",
    ),
    ScalarFunction(
        "div",
        2,
        numpy=np.true_divide,
        llvm=lambda b, x, y: b.div(x, y),
        cuda="({0} / {1})",
        # The quotient g / b serves both operands.
        gradient=lambda g, y, a, b: (g / b, -(g / b) * y),
        operand=to_float,
        domain=_DIVISION,
        degree="linear in first",
    ),
    ScalarFunction(
        "floor_divide",
        2,
        numpy=reference.floor_divide,
        llvm=lambda b, x, y: b.math.floor_divide(x, y),
        cuda="metaop_floor_divide({0}, {1})",
        accepts=_NUMBERS,
        domain=_DIVISION,
        refusal=_ZERO_DIVISOR,
    ),
    ScalarFunction(
        "trunc_divide",
        2,
        numpy=reference.trunc_divide,
        llvm=lambda b, x, y: b.math.trunc_divide(x, y),
        cuda="metaop_trunc_divide({0}, {1})",
        accepts=_NUMBERS,
        domain=_DIVISION,
        refusal=_ZERO_DIVISOR,
    ),
    ScalarFunction(
        "remainder",
        2,
        numpy=reference.remainder,
        llvm=lambda b, x, y: b.math.remainder(x, y),
        cuda="metaop_remainder({0}, {1})",
        gradient=lambda g, y, a, b: (g, -g * call("floor_divide", a, b)),
        accepts=_NUMBERS,
        domain=_DIVISION,
        refusal=_ZERO_DIVISOR,
    ),
    ScalarFunction(
        "fmod",
        2,
        numpy=reference.fmod,
        llvm=lambda b, x, y: b.math.fmod(x, y),
        cuda="metaop_fmod({0}, {1})",
        gradient=lambda g, y, a, b: (g, -g * call("trunc_divide", a, b)),
        accepts=_NUMBERS,
        domain=_DIVISION,
        refusal=_ZERO_DIVISOR,
    ),
    ScalarFunction(
        "pow",
        2,
        numpy=reference.power,
        llvm=lambda b, x, y: b.math.power(x, y),
        cuda="metaop_power({0}, {1})",
        gradient=of_power,
        accepts=_NUMBERS,
        domain=((0.1, 4.0), (-3.0, 3.0)),
    ),
    ScalarFunction(
        "neg",
        1,
        numpy=np.negative,
        llvm=lambda b, x: b.neg(x),
        cuda="(-{0})",
        gradient=lambda g, y, x: (-g,),
        accepts=_NUMBERS,
        degree="linear",
    ),
    ScalarFunction(
        "conj",
        1,
        numpy=np.conjugate,
        llvm=lambda b, x: x,
        cuda="({0})",
        gradient=lambda g, y, x: (g,),
        degree="linear",
    ),
    ScalarFunction(
        "abs",
        1,
        numpy=np.abs,
        llvm=lambda b, x: b.absolute(x),
        cuda="metaop_abs({0})",
        gradient=lambda g, y, x: (g * call("sgn", x),),
        accepts=_NUMBERS,
    ),
    ScalarFunction(
        "sign",
        1,
        numpy=reference.sign,
        llvm=lambda b, x: b.sign(x),
        cuda="(({0} > 0) - ({0} < 0))",
    ),
    # Real numbers have one sign function under two names.
    ScalarFunction(
        "sgn",
        1,
        numpy=reference.sign,
        llvm=lambda b, x: b.sign(x),
        cuda="(({0} > 0) - ({0} < 0))",
    ),
    ScalarFunction(
        "reciprocal",
        1,
        numpy=np.reciprocal,
        llvm=lambda b, x: b.div(b.constant_like(x, 1), x),
        cuda="(1 / {0})",
        gradient=lambda g, y, x: (-g * (y * y),),
        operand=to_float,
        domain=((0.3, 4.0),),
    ),
    ScalarFunction(
        "square",
        1,
        numpy=np.square,
        llvm=lambda b, x: b.square(x),
        cuda="({0} * {0})",
        gradient=lambda g, y, x: (g * (x * 2.0),),
        accepts=_NUMBERS,
    ),
    # (x - m)**2 for an m that is the mean of the x that it is summed over: the sum of variances.
    # That sum does not change with m to first order, so m gets no cotangent, which saves backward
    # passes a reduction. The cotangent of x is exact as a formula in m: so are higher derivatives.
    ScalarFunction(
        "squared_deviation",
        2,
        numpy=lambda x, m: (x - m) * (x - m),
        llvm=lambda b, x, m: b.square(b.sub(x, m)),
        cuda="(({0} - {1}) * ({0} - {1}))",
        gradient=lambda g, y, x, m: (g * ((x - m) * 2.0), None),
        accepts=_FLOATS,
    ),
    ScalarFunction(
        "sqrt",
        1,
        numpy=np.sqrt,
        llvm=lambda b, x: b.sqrt(x),
        cuda="sqrt({0})",
        gradient=lambda g, y, x: (g / (y * 2.0),),
        operand=to_float,
        domain=((0.1, 9.0),),
    ),
    ScalarFunction(
        "rsqrt",
        1,
        numpy=lambda x: 1 / np.sqrt(x),
        llvm=lambda b, x: b.div(b.constant_like(x, 1), b.sqrt(x)),
        cuda="(1 / sqrt({0}))",
        gradient=lambda g, y, x: (g * (y * y * y) * -0.5,),
        operand=to_float,
        domain=((0.1, 9.0),),
    ),
    ScalarFunction(
        "cbrt",
        1,
        numpy=np.cbrt,
        llvm=lambda b, x: b.math.cbrt(x),
        cuda="cbrt({0})",
        gradient=lambda g, y, x: (g / (y * y * 3.0),),
        operand=to_float,
        domain=((0.1, 9.0),),
    ),
    ScalarFunction(
        "hypot",
        2,
        numpy=np.hypot,
        llvm=lambda b, x, y: b.math.hypot(x, y),
        cuda="hypot({0}, {1})",
        gradient=lambda g, y, a, b: (g * (a / y), g * (b / y)),
        accepts=_FLOATS,
    ),
    ScalarFunction(
        "copysign",
        2,
        numpy=np.copysign,
        llvm=lambda b, x, y: b.copysign(x, y),
        cuda="copysign({0}, {1})",
        gradient=lambda g, y, a, b: (g * (call("sign", a) * call("sign", y)), None),
        operand=to_float,
    ),
    ScalarFunction(
        "nextafter",
        2,
        numpy=np.nextafter,
        llvm=lambda b, x, y: b.math.nextafter(x, y),
        cuda="nextafter({0}, {1})",
        # A step of a tiny size away from the first operand, or the second one where they meet.
        gradient=lambda g, y, a, b: (drop(a.equals(b), g), drop(a < b, drop(a > b, g))),
        accepts=_FLOATS,
    ),
)
