"""Comparisons, truth values, and tests of floating-point numbers."""

from __future__ import annotations

from metaop.operators import pointwise as operators
from metaop.operators.pointwise import POINTWISE
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.promotion import binary_function, mixed, unary_function
from metaop.unified_graph.recording import record

eq = binary_function("eq")
ne = binary_function("ne")
lt = binary_function("lt")
le = binary_function("le")
gt = binary_function("gt")
ge = binary_function("ge")
isnan = unary_function("isnan")
isinf = unary_function("isinf")
isfinite = unary_function("isfinite")
signbit = unary_function("signbit")
logical_not = unary_function("logical_not")


def logical_and(input: Tensor, other: Tensor) -> Tensor:
    """Whether both elements are nonzero."""
    return mixed(POINTWISE["logical_and"], (input, other))


def logical_or(input: Tensor, other: Tensor) -> Tensor:
    """Whether one of the elements is nonzero."""
    return mixed(POINTWISE["logical_or"], (input, other))


def logical_xor(input: Tensor, other: Tensor) -> Tensor:
    """Whether exactly one of the elements is nonzero."""
    return mixed(POINTWISE["logical_xor"], (input, other))


def isposinf(input: Tensor) -> Tensor:
    """Whether an element is positive infinity."""
    return isinf(input) & (input > 0)


def isneginf(input: Tensor) -> Tensor:
    """Whether an element is negative infinity."""
    return isinf(input) & (input < 0)


def isreal(input: Tensor) -> Tensor:
    """True everywhere: there are no complex tensors."""
    return input.eq(input) | True


def isclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """Whether `|input - other| <= atol + rtol * |other|`, elementwise."""
    step = operators.isclose
    return wrap(record(step, (input.call, other.call), (rtol, atol, equal_nan)))


def allclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """Whether all elements are close (`isclose`)."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and the same elements."""
    return input.shape == other.shape and bool(eq(input, other).all())


greater = gt
greater_equal = ge
less = lt
less_equal = le
not_equal = ne

_COMPARISONS = (
    *("eq", "ne", "lt", "le", "gt", "ge", "greater", "greater_equal", "less", "less_equal"),
    *("not_equal", "logical_and", "logical_or", "logical_xor", "logical_not"),
)
IN_PLACE = _COMPARISONS
METHODS = (
    *_COMPARISONS,
    *("isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "isclose", "allclose"),
    *("equal", "signbit"),
)
