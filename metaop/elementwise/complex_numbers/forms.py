"""THE table of scalar functions of complex numbers: what each is in parts, and its gradient.

A function whose gradient is not said here is analytic, and real on real numbers: so the gradient of
its row, taken at the conjugates, is the conjugate of the derivative times the cotangent. That is
the gradient d/d(real) + i d/d(imag) of a real loss, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metaop.elementwise.complex_numbers import functions, parts
from metaop.elementwise.complex_numbers.parts import Parts, call
from metaop.elementwise.meta_op import apply, where
from metaop.reindex.reinterpret import real_part
from metaop.unified_graph.node import Constant, Node

Cotangents = tuple["Node | None", ...]


class ComplexForm(NamedTuple):
    """What a function does with complex numbers.

    `formula` gives the parts of the result, or a real one, from the parts of the operands;
    `gradient` is as that of a row of the table of real functions, in complex nodes. With
    `is_real` the result is real. A function that is `linear` in all operands treats real and
    imaginary parts alike: it may be applied to both at once.
    """

    formula: Callable[..., Parts | Node]
    gradient: Callable[..., Cotangents] | None = None
    is_real: bool = False
    is_linear: bool = False


def _each(name: str) -> Callable[..., Parts]:
    """The real function of each part."""
    return lambda *z: Parts(call(name, *(x.real for x in z)), call(name, *(x.imag for x in z)))


def _either(name: str) -> Callable[[Parts], Node]:
    """Whether a part is such a number."""
    return lambda z: call("logical_or", call(name, z.real), call(name, z.imag))


def _of_truth(name: str) -> Callable[..., Node]:
    """A logical function of whether numbers are not 0."""
    return lambda *z: call(name, *map(parts.truth, z))


def _of_sgn(g: Node, y: Node, x: Node) -> Cotangents:
    """What of the cotangent is across the number: along it, the sign is the same."""
    size = apply("abs", x)
    along = real_part(g * apply("conj", y))
    return (where(size.equals(0.0), 0, (g - along * y) / size),)


def _of_acosh(g: Node, y: Node, x: Node) -> Cotangents:
    slope = apply("rsqrt", x + 1.0) * apply("rsqrt", x - 1.0)
    return (g * apply("conj", slope),)


def _of_pow(g: Node, y: Node, base: Node, exponent: Node) -> Cotangents:
    """As of real numbers: 0 for an exponent of 0, and by that of 0 to a positive power."""
    is_fixed = isinstance(exponent.op, Constant)
    if is_fixed and exponent.op.value(exponent.dtype) == 0:  # type: ignore[attr-defined]
        return None, None
    is_zero = exponent.equals(0)
    slope = exponent * apply("pow", base, exponent - 1)
    of_base = g * apply("conj", slope if is_fixed else where(is_zero, 0, slope))
    if is_fixed:
        return of_base, None
    vanishes = apply("logical_and", base.equals(0), real_part(exponent) >= 0)
    logarithm = apply("log", where(vanishes, 1, base))
    return of_base, g * apply("conj", y * logarithm)


FORMS: dict[str, ComplexForm] = {
    "add": ComplexForm(parts.add, is_linear=True),
    "sub": ComplexForm(parts.subtract, is_linear=True),
    "neg": ComplexForm(parts.negative, is_linear=True),
    "stop_gradient": ComplexForm(_each("stop_gradient"), is_linear=True),
    "conj": ComplexForm(parts.conjugate, lambda g, y, x: (apply("conj", g),)),
    "mul": ComplexForm(parts.multiply),
    "div": ComplexForm(parts.divide),
    "reciprocal": ComplexForm(parts.reciprocal),
    "square": ComplexForm(functions.square),
    "abs": ComplexForm(parts.modulus, lambda g, y, x: (g * apply("sgn", x),), is_real=True),
    "logaddexp": ComplexForm(functions.log_add_exp),
    "sgn": ComplexForm(functions.sgn, _of_sgn),
    "pow": ComplexForm(functions.power, _of_pow),
    "acosh": ComplexForm(functions.acosh, _of_acosh),
    **{
        name: ComplexForm(getattr(functions, name))
        for name in (
            *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt"),
            *("sin", "cos", "tan", "sinh", "cosh", "tanh", "sigmoid"),
            *("asin", "acos", "atan", "asinh", "atanh"),
        )
    },
    "eq": ComplexForm(
        lambda z, w: call("logical_and", z.real.equals(w.real), z.imag.equals(w.imag))
    ),
    "ne": ComplexForm(
        lambda z, w: call("logical_or", z.real.differs(w.real), z.imag.differs(w.imag))
    ),
    "isnan": ComplexForm(_either("isnan")),
    "isinf": ComplexForm(_either("isinf")),
    "isfinite": ComplexForm(
        lambda z: call("logical_and", call("isfinite", z.real), call("isfinite", z.imag))
    ),
    "logical_not": ComplexForm(lambda z: ~parts.truth(z)),
    **{name: ComplexForm(_of_truth(name)) for name in ("logical_and", "logical_or", "logical_xor")},
}


def complex_gradient(node: Node, cotangent: Node) -> Cotangents:
    """The cotangents of the operands of a function of complex numbers."""
    function = node.op.function  # type: ignore[attr-defined]
    form = FORMS.get(function.name)
    if form is not None and form.gradient is not None:
        return form.gradient(cotangent, node, *node.inputs)
    if function.gradient is None:
        return (None,) * len(node.inputs)
    return tuple(function.gradient(cotangent, *map(_conjugate, (node, *node.inputs))))


def _conjugate(node: Node) -> Node:
    return apply("conj", node) if node.dtype.is_complex else node
