"""Choosing between values: extremes, clamps, relu, where, and conversion between types."""

from __future__ import annotations

import numpy as np

from metaop.elementwise import reference
from metaop.elementwise.gradients import (
    Cotangents,
    call,
    drop,
    keep,
    of_maximum,
    of_minimum,
)
from metaop.elementwise.meta_op import cast
from metaop.elementwise.scalar_function import Gradient, Refusal, ScalarFunction, to_bool
from metaop.unified_graph.faults import (
    INPUT_OUTSIDE_UNIT,
    NO_RANGE,
    NO_TOTAL_WEIGHT,
    NO_WEIGHT,
    QUANTILE_OUTSIDE_UNIT,
    TARGET_OUTSIDE_UNIT,
    TOO_FEW_VALUES,
    TOO_FEW_WEIGHTS,
    FaultKind,
)
from metaop.unified_graph.node import Node

# Extremes and clamps propagate NaN; `x != x` holds for NaN alone.
_GREATER = "({0} != {0} || {0} > {1} ? {0} : {1})"
_SMALLER = "({0} != {0} || {0} < {1} ? {0} : {1})"


def _in_unit(name: str, kind: FaultKind) -> ScalarFunction:
    """The identity on 0 … 1; it refuses other numbers, NaN among them."""
    return _refusing(name, kind, "outside_unit", "float", lambda g, y, x: (g,))


def _refusing(
    name: str, kind: FaultKind, test: str, accepted: str, gradient: Gradient | None = None
) -> ScalarFunction:
    """The identity, but for values of the accepted kind for which a test holds."""
    return ScalarFunction(
        name,
        1,
        numpy=lambda x: x,
        llvm=lambda b, x: x,
        cuda="({0})",
        gradient=gradient,
        accepts=(accepted,),
        domain=((0.0, 1.0),),
        refusal=Refusal(kind, position=0, test=test, among=(accepted,)),
    )


ROWS = (
    ScalarFunction(
        "maximum",
        2,
        numpy=np.maximum,
        llvm=lambda b, x, y: b.maximum(x, y),
        cuda=_GREATER,
        gradient=of_maximum,
    ),
    ScalarFunction(
        "minimum",
        2,
        numpy=np.minimum,
        llvm=lambda b, x, y: b.minimum(x, y),
        cuda=_SMALLER,
        gradient=of_minimum,
    ),
    # fmax and fmin ignore a NaN operand; ties send the whole cotangent to the first operand.
    ScalarFunction(
        "fmax",
        2,
        numpy=np.fmax,
        llvm=lambda b, x, y: b.fmax(x, y),
        cuda="({1} != {1} || {0} >= {1} ? {0} : {1})",
        gradient=lambda g, y, a, b: _of_fextreme(g, a >= b, b),
    ),
    ScalarFunction(
        "fmin",
        2,
        numpy=np.fmin,
        llvm=lambda b, x, y: b.fmin(x, y),
        cuda="({1} != {1} || {0} <= {1} ? {0} : {1})",
        gradient=lambda g, y, a, b: _of_fextreme(g, a <= b, b),
    ),
    # A clamp passes the whole cotangent to the clamped operand at its boundary.
    ScalarFunction(
        "clamp_min",
        2,
        numpy=np.maximum,
        llvm=lambda b, x, y: b.maximum(x, y),
        cuda=_GREATER,
        gradient=lambda g, y, x, low: (keep(x >= low, g), keep(x < low, g)),
    ),
    ScalarFunction(
        "clamp_max",
        2,
        numpy=np.minimum,
        llvm=lambda b, x, y: b.minimum(x, y),
        cuda=_SMALLER,
        gradient=lambda g, y, x, high: (keep(x <= high, g), keep(x > high, g)),
    ),
    ScalarFunction(
        "relu",
        1,
        numpy=lambda x: np.where(x < 0, np.zeros((), x.dtype), x),
        llvm=lambda b, x: b.maximum(x, b.constant_like(x, 0)),
        cuda="({0} < 0 ? 0 : {0})",
        gradient=lambda g, y, x: (drop(y <= 0, g),),
        accepts=("int", "float"),
    ),
    ScalarFunction(
        "heaviside",
        2,
        numpy=reference.heaviside,
        llvm=lambda b, x, y: b.math.heaviside(x, y),
        cuda="({0} == 0 ? {1} : {0} > 0)",
    ),
    # The first operand is a truth value; `where` in meta_op builds the node.
    ScalarFunction(
        "where",
        3,
        numpy=np.where,
        llvm=lambda b, condition, x, y: b.select(condition, x, y),
        cuda="({0} ? {1} : {2})",
        gradient=lambda g, y, condition, a, b: (None, keep(condition, g), drop(condition, g)),
        degree="linear in branches",
    ),
    # The identity without a gradient. Right where the result does not depend on the operand at
    # all, like softmax on the maximum that it subtracts. It vanishes before code is made.
    ScalarFunction(
        "stop_gradient",
        1,
        numpy=lambda x: x,
        llvm=lambda b, x: x,
        cuda="({0})",
        degree="linear",
    ),
    ScalarFunction(
        "outside_unit",
        1,
        numpy=lambda x: ~((x >= 0) & (x <= 1)),
        llvm=lambda b, x: b.bit_not(b.bit_and(x >= 0, x <= 1)),
        cuda="(!({0} >= 0 && {0} <= 1))",
        result=to_bool,
        accepts=("float",),
    ),
    _in_unit("input_in_unit", INPUT_OUTSIDE_UNIT),
    _in_unit("target_in_unit", TARGET_OUTSIDE_UNIT),
    _in_unit("quantile_in_unit", QUANTILE_OUTSIDE_UNIT),
    ScalarFunction(
        "no_weight",
        1,
        numpy=lambda x: ~((x >= 0) & (x < np.inf)),
        llvm=lambda b, x: ~((x >= 0) & b.is_finite(x)),
        cuda="(!({0} >= 0 && {0} - {0} == 0))",
        result=to_bool,
        accepts=("float",),
    ),
    _refusing("weight", NO_WEIGHT, "no_weight", "float"),
    _refusing("has_total_weight", NO_TOTAL_WEIGHT, "logical_not", "bool"),
    _refusing("has_enough_weights", TOO_FEW_WEIGHTS, "logical_not", "bool"),
    _refusing("has_enough_values", TOO_FEW_VALUES, "logical_not", "bool"),
    _refusing("has_range", NO_RANGE, "logical_not", "bool"),
    # The result type is the node's own. The emitter converts with `Builder.convert`, or with a
    # static_cast to the compute type of the result, in place of these two entries.
    ScalarFunction(
        "cast",
        1,
        numpy=lambda x: x,
        llvm=lambda b, x: x,
        cuda="({0})",
        gradient=lambda g, y, x: (cast(g, x.dtype) if x.dtype.is_differentiable else None,),
        degree="linear",
    ),
)


def _of_fextreme(g: Node, first_wins: Node, second: Node) -> Cotangents:
    first = call("logical_or", first_wins, call("isnan", second))
    return keep(first, g), drop(first, g)
