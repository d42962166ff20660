"""Special functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.operators import bessel
from metaop.operators import special as operators
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.functions.pointwise import digamma, lgamma
from metaop.tensor.promotion import Operand, defaults, result_type
from metaop.tensor.surface import in_every_form, method, public
from metaop.tensor.words import elementwise_words
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.recording import record


def _floating(input: Tensor, name: str) -> Tensor:
    return input if input.dtype.kind == "float" else input.to(defaults.dtype)


def _unary(name: str, step: Composite) -> Callable[..., Tensor]:
    def function(input: Tensor) -> Tensor:
        return wrap(record(step, (_floating(input, name).call,)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = elementwise_words(name, place="metaop.special")
    return function


i0 = in_every_form(in_place_function=True)(_unary("i0", operators.bessel_i0))
i0e = _unary("i0e", operators.bessel_i0e)
i1 = _unary("i1", operators.bessel_i1)
i1e = _unary("i1e", operators.bessel_i1e)
erfcx = _unary("erfcx", operators.erfcx)
ndtr = _unary("ndtr", operators.ndtr)
ndtri = _unary("ndtri", operators.ndtri)
log_ndtr = _unary("log_ndtr", operators.log_ndtr)
entr = _unary("entr", operators.entropy_term)
airy_ai = _unary("airy_ai", bessel.airy_ai)
bessel_j0 = _unary("bessel_j0", bessel.bessel_j0)
bessel_j1 = _unary("bessel_j1", bessel.bessel_j1)
bessel_y0 = _unary("bessel_y0", bessel.bessel_y0)
bessel_y1 = _unary("bessel_y1", bessel.bessel_y1)
modified_bessel_i0 = _unary("modified_bessel_i0", operators.bessel_i0)
modified_bessel_i1 = _unary("modified_bessel_i1", operators.bessel_i1)
modified_bessel_k0 = _unary("modified_bessel_k0", bessel.bessel_k0)
modified_bessel_k1 = _unary("modified_bessel_k1", bessel.bessel_k1)
scaled_modified_bessel_k0 = _unary("scaled_modified_bessel_k0", bessel.bessel_k0e)
scaled_modified_bessel_k1 = _unary("scaled_modified_bessel_k1", bessel.bessel_k1e)
spherical_bessel_j0 = _unary("spherical_bessel_j0", bessel.spherical_bessel_j0)


def _two(step: Composite, input: Operand, other: Operand) -> Tensor:
    dtype = result_type(input, other)
    dtype = dtype if dtype.kind == "float" else defaults.dtype
    first, second = (
        x.to(dtype) if isinstance(x, Tensor) else from_array(np.asarray(x, dtype.numpy), dtype)
        for x in (input, other)
    )
    return wrap(record(step, (first.call, second.call)))


def xlog1py(input: Operand, other: Operand) -> Tensor:
    """`input * log(1 + other)`, 0 where `input` is 0; the operands broadcast to one shape.

    >>> metaop.special.xlog1py(metaop.tensor([0.0, 2.0]), metaop.tensor([-1.0, 1.0]))
    tensor([0.0000, 1.3863])
    """
    return _two(operators.xlog1py, input, other)


def zeta(input: Operand, other: Operand) -> Tensor:
    """Hurwitz' zeta function: the sum of `(other + k) ** -input` over k = 0, 1, ….

    The operands broadcast to one shape. With `other` 1 it is Riemann's.

    >>> metaop.special.zeta(metaop.tensor([2.0, 4.0]), 1.0)
    tensor([1.6449, 1.0823])
    """
    return _two(operators.zeta, input, other)


@public(out=True)
def polygamma(n: int, input: Tensor) -> Tensor:
    """The derivative of order `n` of digamma; the shape stays.

    Raises ArgumentError for negative n.

    >>> metaop.polygamma(1, metaop.tensor([1.0, 2.0]))
    tensor([1.6449, 0.6449])
    """
    if n < 0:
        raise ArgumentError(f"polygamma(n, x) does not support negative n, got {n}")
    if n == 0:
        return digamma(input)
    return wrap(record(operators.polygamma, (_floating(input, "polygamma").call,), (int(n),)))


@method("polygamma", in_place=True)
def _polygamma_method(input: Tensor, n: int) -> Tensor:
    return polygamma(n, input)


@in_every_form()
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension `p`; the shape stays.

    >>> metaop.mvlgamma(metaop.tensor([2.0, 3.0]), 2)
    tensor([0.4516, 1.5502])
    """
    input = _floating(input, "mvlgamma")
    total: Any = p * (p - 1) / 4 * math.log(math.pi)
    for k in range(p):
        total = lgamma(input - k / 2) + total
    return total


def _polynomial(
    name: str, second: Callable[[Any], Any], step: Callable[[int, Any, Any, Any], Any]
) -> Callable[..., Tensor]:
    """A family of orthogonal polynomials by its recurrence; the degree may be a tensor."""

    def function(input: Operand, n: Operand) -> Tensor:
        tensors = [value for value in (input, n) if isinstance(value, Tensor)]
        dtype = result_type(input, n)
        dtype = dtype if dtype.kind == "float" else defaults.dtype
        place, degree = (
            value.detach()._array() if isinstance(value, Tensor) else value for value in (input, n)
        )
        place, degree = np.broadcast_arrays(np.asarray(place, np.float64), np.asarray(degree))
        degree = np.trunc(degree).astype(np.int64)
        values = _recurrence(place, degree, second, step)
        result = from_array(np.asarray(values).astype(dtype.numpy), dtype)
        return result.to(device=tensors[0].device)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = elementwise_words(name, "There is no gradient.", place="metaop.special")
    return function


def _recurrence(place: np.ndarray, degree: np.ndarray, second: Any, step: Any) -> np.ndarray:
    before, current = np.ones_like(place), second(place)
    values = np.where(degree == 0, before, np.where(degree == 1, current, 0.0))
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(1, int(degree.max(initial=0))):
            before, current = current, step(k, place, current, before)
            values = np.where(degree == k + 1, current, values)
    return values


def _twice(k: int, x: Any, current: Any, before: Any) -> Any:
    return 2 * x * current - before


def _shifted(second: Callable[[Any], Any]) -> tuple[Callable, Callable]:
    return (
        lambda x: second(2 * x - 1),
        lambda k, x, current, before: _twice(k, 2 * x - 1, current, before),
    )


_SECOND = {
    "t": lambda x: x,
    "u": lambda x: 2 * x,
    "v": lambda x: 2 * x - 1,
    "w": lambda x: 2 * x + 1,
}
_POLYNOMIALS: dict[str, Callable[..., Tensor]] = {}
for _kind, _start in _SECOND.items():
    _name = f"chebyshev_polynomial_{_kind}"
    _POLYNOMIALS[_name] = _polynomial(_name, _start, _twice)
    _name = f"shifted_{_name}"
    _POLYNOMIALS[_name] = _polynomial(_name, *_shifted(_start))
_POLYNOMIALS["hermite_polynomial_h"] = _polynomial(
    "hermite_polynomial_h",
    lambda x: 2 * x,
    lambda k, x, current, before: 2 * (x * current - k * before),
)
_POLYNOMIALS["hermite_polynomial_he"] = _polynomial(
    "hermite_polynomial_he",
    lambda x: x,
    lambda k, x, current, before: x * current - k * before,
)
_POLYNOMIALS["laguerre_polynomial_l"] = _polynomial(
    "laguerre_polynomial_l",
    lambda x: 1 - x,
    lambda k, x, current, before: ((2 * k + 1 - x) * current - k * before) / (k + 1),
)
_POLYNOMIALS["legendre_polynomial_p"] = _polynomial(
    "legendre_polynomial_p",
    lambda x: x,
    lambda k, x, current, before: ((2 * k + 1) * x * current - k * before) / (k + 1),
)
globals().update(_POLYNOMIALS)
POLYNOMIALS = tuple(_POLYNOMIALS)
