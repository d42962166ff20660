"""Elementwise functions with loops that have no fixed length: the host computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from metaop.elementwise import reference
from metaop.errors import DTypeError, UnsupportedError
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.functions.pointwise import ldexp, lgamma
from metaop.tensor.host.host_function import host_function
from metaop.tensor.linear_algebra.decompositions import Cotangents
from metaop.tensor.promotion import Operand, defaults, result_type
from metaop.tensor.surface import in_every_form, public
from metaop.tensor.words import elementwise_words


def _of_integers(name: str, function: Callable[..., np.ndarray]) -> Callable[..., Tensor]:
    def on_host(input: Tensor, other: Tensor) -> Tensor:
        dtype = result_type(input, other)
        if dtype.kind != "int":
            raise DTypeError(f"{name} does not take {dtype.name}", fix="convert to integers")
        values = function(*(x.detach()._array().astype(dtype.numpy) for x in (input, other)))
        return from_array(np.asarray(values, dtype.numpy), dtype).to(device=input.device)

    on_host.__name__ = on_host.__qualname__ = name
    on_host.__doc__ = elementwise_words(name, "Raises DTypeError for other types than integers.")
    return on_host


gcd = in_every_form(in_place_function=True)(_of_integers("gcd", np.gcd))
lcm = in_every_form(in_place_function=True)(_of_integers("lcm", np.lcm))


class Decomposed(NamedTuple):
    """`mantissa * 2 ** exponent`, with 1/2 <= |mantissa| < 1."""

    mantissa: Tensor
    exponent: Tensor


@public(method=True, out=True)
def frexp(input: Tensor) -> Decomposed:
    """Mantissa and exponent: `input == mantissa * 2 ** exponent`; both of the input's shape.

    Magnitudes of mantissas lie in [1/2, 1). Raises DTypeError for integers.

    >>> metaop.frexp(metaop.tensor([6.0, -0.75])).exponent
    tensor([3, 0], dtype=metaop.int32)
    """
    if input.dtype.kind != "float":
        raise DTypeError("torch.frexp() only supports floating-point dtypes", fix="use .float()")
    values = input.detach()._array().astype(np.float64)
    mantissas, exponents = np.frexp(values)

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        assert cotangents[0] is not None
        return [ldexp(cotangents[0], -results[1])]

    found = [np.asarray(mantissas, input.dtype.numpy), np.asarray(exponents, np.int32)]
    return Decomposed(*host_function([input], found, backward))


@in_every_form()
def igamma(input: Tensor, other: Tensor) -> Tensor:
    """The regularised lower incomplete gamma function P(input, other).

    The operands broadcast to one shape. It has a gradient in `other` only, as in PyTorch.

    >>> metaop.igamma(metaop.tensor([1.0, 2.0]), metaop.tensor(1.0))
    tensor([0.6321, 0.2642])
    """
    return _incomplete_gamma(input, other, 0)


@in_every_form()
def igammac(input: Tensor, other: Tensor) -> Tensor:
    """The regularised upper incomplete gamma function Q(input, other) = 1 - P(input, other).

    The operands broadcast to one shape. It has a gradient in `other` only.

    >>> metaop.igammac(metaop.tensor([1.0, 2.0]), metaop.tensor(1.0))
    tensor([0.3679, 0.7358])
    """
    return _incomplete_gamma(input, other, 1)


def _incomplete_gamma(input: Operand, other: Operand, upper: int) -> Tensor:
    dtype = result_type(input, other)
    dtype = dtype if dtype.kind == "float" else defaults.dtype
    like = input if isinstance(input, Tensor) else other
    assert isinstance(like, Tensor)
    order, place = (
        (x if isinstance(x, Tensor) else like.new_tensor(x)).to(dtype) for x in (input, other)
    )

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        order, place = inputs
        if order.requires_grad:
            raise UnsupportedError(
                "igamma: the gradient in the first argument is not known",
                fix="detach the first argument",
            )
        density = ((order - 1) * place.log() - place - lgamma(order)).exp()
        gradient = density * cotangents[0] * (-1 if upper else 1)
        return [None, gradient.sum_to_size(place.shape)]

    values = (x.detach()._array().astype(np.float64) for x in (order, place))
    found = _both_incomplete_gammas(*np.broadcast_arrays(*values))[upper]
    return host_function([order, place], [found.astype(dtype.numpy)], backward)[0]


def _both_incomplete_gammas(a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P and Q: the series for x below a + 1, Legendre's continued fraction above."""
    lower, upper = np.full(a.shape, np.nan), np.full(a.shape, np.nan)
    usual = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    near, far = usual & (x < a + 1), usual & (x >= a + 1)
    lower[near] = _gamma_series(a[near], x[near])
    upper[near] = 1 - lower[near]
    upper[far] = _gamma_fraction(a[far], x[far])
    lower[far] = 1 - upper[far]
    whole = ((a == 0) & (x > 0)) | ((a > 0) & np.isfinite(a) & (x == np.inf))
    none = ((a > 0) & (x == 0)) | ((a == np.inf) & (x >= 0) & np.isfinite(x))
    lower[whole], upper[whole] = 1, 0
    lower[none], upper[none] = 0, 1
    return lower, upper


def _gamma_factor(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.exp(a * np.log(x) - x - reference.lgamma(a)) if a.size else a


def _gamma_series(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    term = total = 1 / a
    place = a.copy()
    while np.any(term > total * 1e-17):
        place = place + 1
        term = term * x / place
        total = total + term
    return total * _gamma_factor(a, x)


def _gamma_fraction(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Lentz' evaluation (Numerical Recipes, section 6.2)."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = np.full_like(b, 1 / tiny), 1 / b
    total, change, k = d, np.full_like(b, 2.0), 0
    while np.any(np.abs(change - 1) > 1e-16) and k < 100_000:
        k += 1
        numerator = -k * (k - a)
        b = b + 2
        d, c = numerator * d + b, b + numerator / c
        d, c = (np.where(np.abs(y) < tiny, tiny, y) for y in (d, c))
        d = 1 / d
        change = d * c
        total = total * change
    return total * _gamma_factor(a, x)
