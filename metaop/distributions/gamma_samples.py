"""Samples of the gamma distribution with gradients for its shape parameter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaop.elementwise.functions import FUNCTIONS
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.generator import host_random
from metaop.tensor.host.host_function import host_function

# Exponents below minus this number count for nothing; the quadrature over [0, 1] takes 64 points.
_RANGE = 45.0
_NODES, _WEIGHTS = (
    0.5 * (x + shift) for x, shift in zip(np.polynomial.legendre.leggauss(64), (1, 0))
)
_MOMENTS = np.stack([_WEIGHTS, _WEIGHTS * _NODES], axis=1)
_BLOCK = 256


def standard_gamma(concentration: Tensor) -> Tensor:
    """One sample of rate 1 for each element of `concentration`."""
    shapes = concentration.detach()._array().astype(np.float64)
    drawn = host_random(None).standard_gamma(shapes, shapes.shape)
    values = drawn.astype(concentration.dtype.numpy)

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Sequence[Tensor | None]
    ) -> Sequence[Tensor | None]:
        slope = _slope(shapes, np.maximum(drawn, 1e-300)).astype(concentration.dtype.numpy)
        factor = from_array(np.asarray(slope), concentration.dtype)
        return [cotangents[0] * factor.to(device=concentration.device)]  # type: ignore[operator]

    return host_function([concentration], [np.asarray(values)], backward)[0]


def _slope(shape: np.ndarray, value: np.ndarray) -> np.ndarray:
    """dx/da of a sample x: minus the change of P(a, x) with a, over the density p(x).

    That is the integral of (log t - digamma(a)) p(t) / p(x) over all t above x, or minus the
    integral over all t below x, because the whole integral is 0. It takes the side away from the
    mode, on which the ratio of densities only falls: with t = x exp(u), as
    exp(a u - x (exp(u) - 1)).
    """
    below = value < shape
    apart = np.abs(shape - value)
    with np.errstate(divide="ignore"):
        steep = _RANGE / apart
        flat = np.where(
            below,
            _RANGE / shape + 10 / np.sqrt(shape),
            np.minimum(np.sqrt(2 * _RANGE / value), np.log1p(_RANGE / value) + 1),
        )
    length = np.where(below, -1.0, 1.0) * np.minimum(steep, flat)
    mean, moment = _integrals(length, shape, value)
    offset = np.log(value) - FUNCTIONS["digamma"].numpy(shape)
    return value * length * (offset * mean + moment)


def _integrals(length: np.ndarray, shape: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The means of the ratio of densities, and of u times it, over u from 0 to `length`.

    A few samples at a time, so that their points stay in the cache.
    """
    found = np.empty((2, length.size))
    lengths, shapes, values = (x.reshape(-1, 1) for x in (length, shape, value))
    for start in range(0, length.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        u = lengths[block] * _NODES
        ratio = np.expm1(u)
        ratio *= -values[block]
        u *= shapes[block]
        ratio += u
        np.exp(ratio, out=ratio)
        found[:, block] = (ratio @ _MOMENTS).T
    found[1] *= length.reshape(-1)
    return found.reshape(2, *length.shape)
