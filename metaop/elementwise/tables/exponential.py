"""Exponentials, logarithms, and the logistic function with its relatives."""

from __future__ import annotations

import math

import numpy as np

from metaop.elementwise import reference
from metaop.elementwise.gradients import call, of_xlogy
from metaop.elementwise.scalar_function import ScalarFunction, to_float

_LN2 = math.log(2)
_LN10 = math.log(10)
_POSITIVE = ((0.1, 9.0),)

ROWS = (
    ScalarFunction(
        "exp",
        1,
        numpy=np.exp,
        llvm=lambda b, x: b.math.exp(x),
        cuda="exp({0})",
        gradient=lambda g, y, x: (g * y,),
        operand=to_float,
    ),
    ScalarFunction(
        "exp2",
        1,
        numpy=np.exp2,
        llvm=lambda b, x: b.math.exp2(x),
        cuda="exp2({0})",
        gradient=lambda g, y, x: (g * (y * _LN2),),
        operand=to_float,
    ),
    ScalarFunction(
        "expm1",
        1,
        numpy=np.expm1,
        llvm=lambda b, x: b.math.expm1(x),
        cuda="expm1({0})",
        gradient=lambda g, y, x: (g * (y + 1.0),),
        operand=to_float,
    ),
    ScalarFunction(
        "log",
        1,
        numpy=np.log,
        llvm=lambda b, x: b.math.log(x),
        cuda="log({0})",
        gradient=lambda g, y, x: (g / x,),
        operand=to_float,
        domain=_POSITIVE,
    ),
    ScalarFunction(
        "log2",
        1,
        numpy=np.log2,
        llvm=lambda b, x: b.math.log2(x),
        cuda="log2({0})",
        gradient=lambda g, y, x: (g / (x * _LN2),),
        operand=to_float,
        domain=_POSITIVE,
    ),
    ScalarFunction(
        "log10",
        1,
        numpy=np.log10,
        llvm=lambda b, x: b.math.log10(x),
        cuda="log10({0})",
        gradient=lambda g, y, x: (g / (x * _LN10),),
        operand=to_float,
        domain=_POSITIVE,
    ),
    ScalarFunction(
        "log1p",
        1,
        numpy=np.log1p,
        llvm=lambda b, x: b.math.log1p(x),
        cuda="log1p({0})",
        gradient=lambda g, y, x: (g / (x + 1.0),),
        operand=to_float,
        domain=((-0.8, 9.0),),
    ),
    ScalarFunction(
        "logaddexp",
        2,
        numpy=reference.log_add_exp,
        llvm=lambda b, x, y: b.math.log_add_exp(x, y),
        cuda="metaop_log_add_exp({0}, {1})",
        gradient=lambda g, y, a, b: (
            g * call("sigmoid", a - b),
            g * call("sigmoid", b - a),
        ),
        accepts=("float",),
    ),
    ScalarFunction(
        "xlogy",
        2,
        numpy=reference.xlogy,
        llvm=lambda b, x, y: b.math.xlogy(x, y),
        cuda="({0} == 0 && {1} == {1} ? 0 : {0} * log({1}))",
        gradient=of_xlogy,
        operand=to_float,
        domain=((-3.0, 3.0), (0.1, 9.0)),
    ),
    ScalarFunction(
        "sigmoid",
        1,
        numpy=reference.sigmoid,
        llvm=lambda b, x: b.math.sigmoid(x),
        cuda="(1 / (1 + exp(-{0})))",
        gradient=lambda g, y, x: (g * (y * (1.0 - y)),),
        operand=to_float,
    ),
    ScalarFunction(
        "logsigmoid",
        1,
        numpy=reference.log_sigmoid,
        llvm=lambda b, x: b.math.log_sigmoid(x),
        cuda="(0 - metaop_softplus(-{0}))",
        # 1 - sigmoid(x) = 1 - exp(y), through the result and without cancellation.
        gradient=lambda g, y, x: (-g * call("expm1", y),),
        operand=to_float,
    ),
    ScalarFunction(
        "softplus",
        1,
        numpy=reference.softplus,
        llvm=lambda b, x: b.math.softplus(x),
        cuda="metaop_softplus({0})",
        # sigmoid(x) = 1 - exp(-y).
        gradient=lambda g, y, x: (-g * call("expm1", -y),),
        operand=to_float,
    ),
)
