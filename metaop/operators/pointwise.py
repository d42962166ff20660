"""Elementwise composites: one per row of the function table, and small formulas of them."""

from __future__ import annotations

import math

import numpy as np

from metaop.elementwise import meta_op
from metaop.elementwise.functions import FUNCTIONS
from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import DTypeError
from metaop.reindex.reinterpret import as_numbers, as_pairs
from metaop.unified_graph.composite import Composite, composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, Scalar

# All other functions promote booleans to the type of the other operand.
_WITHOUT_BOOLEANS = ("sub",)


def _composite_of(name: str) -> Composite:
    arity = FUNCTIONS[name].arity

    def expansion(*arguments: object) -> Node:
        operands, (dtype, number) = arguments[:arity], (*arguments[arity:], None, None)[:2]
        if name in _WITHOUT_BOOLEANS:
            _refuse_booleans(name, operands)
        prepared = [
            number if x is None else x if dtype is None else cast(x, dtype)  # type: ignore
            for x in operands
        ]
        return meta_op.apply(name, *prepared)  # type: ignore[arg-type]

    return Composite(name, expansion)


def _refuse_booleans(name: str, operands: tuple[object, ...]) -> None:
    if any(isinstance(x, Node) and x.dtype.kind == "bool" for x in operands):
        raise DTypeError(f"{name} does not take bool", fix="invert a mask with ~, or convert it")


# Called as `record(POINTWISE[name], operands, (dtype, number))`: operands are converted to
# `dtype` first when it is given, and an absent operand is the constant `number`.
POINTWISE: dict[str, Composite] = {
    name: _composite_of(name) for name in FUNCTIONS if name not in ("cast", "where")
}


@composite
def select(condition: Node, left: Node, right: Node) -> Node:
    """`left` where `condition` holds, else `right`."""
    return where(condition, left, right)


@composite
def lerp(start: Node, end: Node, weight: Node) -> Node:
    """The point at `weight` of the way from `start` to `end`; exact at both ends."""
    difference = end - start
    near = start + weight * difference
    far = end - difference * (1.0 - weight)
    return where(apply("abs", weight) < 0.5, near, far)


@composite
def addcmul(source: Node, left: Node, right: Node, scale: Node | None, dtype: DType) -> Node:
    """`source + scale * left * right` in `dtype`."""
    product = cast(left, dtype) * cast(right, dtype)
    return cast(source, dtype) + (product if scale is None else scale * product)


@composite
def addcdiv(source: Node, left: Node, right: Node, scale: Node | None, dtype: DType) -> Node:
    """`source + scale * left / right` in `dtype`."""
    left = cast(left, dtype)
    quotient = (left if scale is None else scale * left) / cast(right, dtype)
    return cast(source, dtype) + quotient


@composite
def ldexp(source: Node, exponent: Node, dtype: DType) -> Node:
    """`source * 2 ** exponent` in `dtype`."""
    power = apply("exp2", cast(exponent, dtype.compute))
    return cast(cast(source, dtype.compute) * power, dtype)


@composite
def sinc(source: Node) -> Node:
    """`sin(pi x) / (pi x)`, 1 at 0, with a gradient of 0 there."""
    at_zero = source.equals(0)
    angle = where(at_zero, 1.0, source * math.pi)
    return where(at_zero, 1.0, apply("sin", angle) / angle)


@composite
def logit(source: Node, epsilon: float | None) -> Node:
    """`log(x / (1 - x))` of x clamped to [epsilon, 1 - epsilon]."""
    if epsilon is not None:
        source = apply("clamp_max", apply("clamp_min", source, epsilon), 1 - epsilon)
    return apply("log", source / (1.0 - source))


@composite
def nan_to_num(source: Node, nan: float, positive: float | None, negative: float | None) -> Node:
    """The input with NaN and infinities replaced; None means the extreme finite numbers."""
    if source.dtype.is_complex:
        return as_numbers(nan_to_num(as_pairs(source), nan, positive, negative))
    if source.dtype.kind != "float":
        return source
    largest = finite_maximum(source.dtype)
    infinite = apply("isinf", source)
    result = where(apply("isnan", source), nan, source)
    result = where(infinite & (source > 0), largest if positive is None else positive, result)
    return where(infinite & (source < 0), -largest if negative is None else negative, result)


def finite_maximum(dtype: DType) -> float:
    """The largest finite number of a float type."""
    if dtype.name == "bfloat16":
        return float.fromhex("0x1.fep127")
    return float(np.finfo(dtype.numpy).max)


@composite(differentiable=False)
def isclose(left: Node, right: Node, rtol: Scalar, atol: Scalar, equal_nan: bool) -> Node:
    """Whether `|left - right| <= atol + rtol * |right|`; equal infinities are close."""
    close = left.equals(right)
    if left.dtype.is_differentiable:
        difference = apply("abs", left - right)
        within = difference <= apply("abs", right) * float(rtol) + float(atol)
        close = close | (apply("isfinite", difference) & within)
        if equal_nan:
            close = close | (apply("isnan", left) & apply("isnan", right))
    elif left.dtype.kind == "int":
        difference = apply("abs", left - right)
        close = close | (difference <= apply("abs", right) * float(rtol) + float(atol))
    return close
