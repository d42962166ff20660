"""Samples of the gamma distribution with gradients for its shape parameter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaop.tensor.core import Tensor, from_array
from metaop.tensor.generator import host_random
from metaop.tensor.host_function import host_function

# The relative step of the central difference, and the terms of the series it is applied to.
_STEP = 1e-4
_TERMS = 200


def standard_gamma(concentration: Tensor) -> Tensor:
    """One sample of rate 1 for each element of `concentration`."""
    shapes = concentration.detach()._array().astype(np.float64)
    drawn = host_random(None).standard_gamma(shapes)
    values = drawn.astype(concentration.dtype.numpy)

    def backward(
        results: Sequence[Tensor], cotangents: Sequence[Tensor | None]
    ) -> Sequence[Tensor | None]:
        slope = _slope(shapes, np.maximum(drawn, 1e-300)).astype(concentration.dtype.numpy)
        factor = from_array(np.asarray(slope), concentration.dtype)
        return [cotangents[0] * factor.to(device=concentration.device)]  # type: ignore[operator]

    return host_function([concentration], [np.asarray(values)], backward)[0]


def _slope(shape: np.ndarray, value: np.ndarray) -> np.ndarray:
    """dx/da of a sample x: minus the change of P(a, x) with a, over the density at x."""
    step = _STEP * np.maximum(shape, 1e-2)
    change = (_lower(shape + step, value) - _lower(shape - step, value)) / (2 * step)
    log_density = (shape - 1) * np.log(value) - value - _lgamma(shape)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        slope = -change * np.exp(-log_density)
    # Far out in the tails the quotient is 0/0; there the sample moves like the mean.
    return np.where(np.isfinite(slope), slope, 1.0)


def _lower(shape: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The regularised lower incomplete gamma function P(a, x), by its power series."""
    term = np.ones_like(value)
    total = term.copy()
    for k in range(1, _TERMS):
        term = term * value / (shape + k)
        total += term
    return np.exp(shape * np.log(value) - value - _lgamma(shape + 1)) * total


def _lgamma(value: np.ndarray) -> np.ndarray:
    """log(gamma(x)) for positive x by Stirling's series, moved up to where it converges."""
    moved = np.asarray(value, np.float64)
    shift = np.zeros_like(moved)
    for _ in range(8):
        shift = shift + np.log(moved)
        moved = moved + 1
    inverse = 1 / moved
    squared = inverse * inverse
    series = inverse * (1 / 12 - squared * (1 / 360 - squared * (1 / 1260 - squared / 1680)))
    return (moved - 0.5) * np.log(moved) - moved + 0.5 * np.log(2 * np.pi) + series - shift
