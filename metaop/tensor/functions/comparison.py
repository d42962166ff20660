"""Comparisons, booleans, and tests of floating-point numbers."""

from __future__ import annotations

from metaop.operators import pointwise as operators
from metaop.operators.pointwise import POINTWISE
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.promotion import binary_function, mixed, unary_function
from metaop.tensor.surface import in_every_form, public, synonym
from metaop.unified_graph.recording import record

eq = in_every_form()(binary_function("eq"))
ne = in_every_form()(binary_function("ne"))
lt = in_every_form()(binary_function("lt"))
le = in_every_form()(binary_function("le"))
gt = in_every_form()(binary_function("gt"))
ge = in_every_form()(binary_function("ge"))
isnan = public(method=True)(unary_function("isnan"))
isinf = public(method=True)(unary_function("isinf"))
isfinite = public(method=True)(unary_function("isfinite"))
signbit = public(method=True, out=True)(unary_function("signbit"))
logical_not = in_every_form()(unary_function("logical_not"))


@in_every_form()
def logical_and(input: Tensor, other: Tensor) -> Tensor:
    """Whether both elements are nonzero; the operands broadcast to one shape.

    >>> metaop.logical_and(metaop.tensor([0, 1, 2]), metaop.tensor([1, 0, 3]))
    tensor([False, False,  True])
    """
    return mixed(POINTWISE["logical_and"], (input, other))


@in_every_form()
def logical_or(input: Tensor, other: Tensor) -> Tensor:
    """Whether at least one of the elements is nonzero; the operands broadcast to one shape.

    >>> metaop.logical_or(metaop.tensor([0, 1, 0]), metaop.tensor([1, 0, 0]))
    tensor([ True,  True, False])
    """
    return mixed(POINTWISE["logical_or"], (input, other))


@in_every_form()
def logical_xor(input: Tensor, other: Tensor) -> Tensor:
    """Whether exactly one of the elements is nonzero; the operands broadcast to one shape.

    >>> metaop.logical_xor(metaop.tensor([0, 1, 2]), metaop.tensor([1, 0, 3]))
    tensor([ True,  True, False])
    """
    return mixed(POINTWISE["logical_xor"], (input, other))


@public(method=True, out=True)
def isposinf(input: Tensor) -> Tensor:
    """Whether an element is positive infinity; the shape stays.

    >>> metaop.isposinf(metaop.tensor([1.0, float("inf"), float("-inf")]))
    tensor([False,  True, False])
    """
    return isinf(input) & (input > 0)


@public(method=True, out=True)
def isneginf(input: Tensor) -> Tensor:
    """Whether an element is negative infinity; the shape stays.

    >>> metaop.isneginf(metaop.tensor([1.0, float("inf"), float("-inf")]))
    tensor([False, False,  True])
    """
    return isinf(input) & (input < 0)


@public(method=True)
def isreal(input: Tensor) -> Tensor:
    """Whether an element has no imaginary part, which is always true of real tensors.

    The shape stays.

    >>> metaop.isreal(metaop.tensor([1.0, 2.0]))
    tensor([True, True])
    """
    return input.imag.eq(0) if input.dtype.is_complex else input.eq(input) | True


@public(method=True)
def isclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """Whether `|input - other| <= atol + rtol * |other|`, elementwise; the operands broadcast.

    NaN is close to nothing, or with `equal_nan` to NaN. The result has their common shape.

    >>> metaop.isclose(metaop.tensor([1.0, 1.0]), metaop.tensor([1.000001, 1.1]))
    tensor([ True, False])
    """
    step = operators.isclose
    return wrap(record(step, (input.call, other.call), (rtol, atol, equal_nan)))


@public(method=True)
def allclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """Whether all elements are close in the sense of `isclose`; a Python bool.

    Raises ShapeError if the shapes do not broadcast.

    >>> metaop.allclose(metaop.ones(2), metaop.tensor([1.0, 1.000001]))
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@public(method=True)
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and the same elements; a Python bool.

    >>> metaop.equal(metaop.ones(2), metaop.ones(2)), metaop.equal(metaop.ones(2), metaop.ones(1))
    (True, False)
    """
    return input.shape == other.shape and bool(eq(input, other).all())


greater = synonym("greater", gt)
greater_equal = synonym("greater_equal", ge)
less = synonym("less", lt)
less_equal = synonym("less_equal", le)
not_equal = synonym("not_equal", ne)
