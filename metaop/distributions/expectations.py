"""Cross entropies of pairs of distributions, from expectations under the first.

The log-density of the second is linear in a few functions of the value: the value, its square, its
logarithm and so on. The tables here have one row for the expectation of each under each first
distribution, so N first and M second distributions need N + M formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from metaop.distributions.continuous import ContinuousBernoulli, Exponential, Uniform
from metaop.distributions.counts import Bernoulli, Binomial, Geometric, Poisson
from metaop.distributions.distribution import Distribution
from metaop.distributions.gamma_family import Beta, Gamma
from metaop.distributions.location_scale import EULER, Gumbel, Laplace, Normal
from metaop.distributions.transformed_families import Pareto
from metaop.tensor.core import Tensor
from metaop.tensor.functions.pointwise import digamma, lgamma, xlogy

_Row = Callable[..., Tensor]


def _mean_log_between(low: Tensor, high: Tensor) -> Tensor:
    """The mean of the logarithm over an interval."""
    return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1


# The expectation of log x.
_LOG: dict[type, _Row] = {
    Beta: lambda p: digamma(p.concentration1) - digamma(p.concentration1 + p.concentration0),
    Exponential: lambda p: -p.rate.log() - EULER,
    Gamma: lambda p: digamma(p.concentration) - p.rate.log(),
    Pareto: lambda p: p.scale.log() + 1 / p.alpha,
    Uniform: lambda p: _mean_log_between(p.low, p.high),
}

# The expectation of log(1 - x).
_LOG_REST: dict[type, _Row] = {
    Uniform: lambda p: _mean_log_between(1 - p.high, 1 - p.low),
}

# The expectation of exp(-t x).
_EXP: dict[type, _Row] = {
    Exponential: lambda p, t: p.rate / (p.rate + t),
    Gamma: lambda p, t: (1 + t / p.rate).pow(-p.concentration),
    Gumbel: lambda p, t: (lgamma(1 + t * p.scale) - t * p.loc).exp(),
    Normal: lambda p, t: ((t * p.scale).square() / 2 - t * p.loc).exp(),
    Uniform: lambda p, t: ((-t * p.low).exp() - (-t * p.high).exp()) / (t * (p.high - p.low)),
}


def _mean_distance_of_normal(p: Normal, place: Tensor) -> Tensor:
    away = (p.loc - place) / p.scale
    near = math.sqrt(2 / math.pi) * (-away.square() / 2).exp()
    return p.scale * (near + away * (away / math.sqrt(2)).erf())


# The expectation of |x - place|.
_DISTANCE: dict[type, _Row] = {Normal: _mean_distance_of_normal}


def _expected(rows: dict[type, _Row], p: Distribution, *arguments: Any) -> Tensor:
    for kind in type(p).__mro__:
        if kind in rows:
            return rows[kind](p, *arguments)
    raise NotImplementedError(type(p).__name__)


def _square_from(p: Distribution, place: Tensor) -> Tensor:
    """The expectation of (x - place)²."""
    return (p.mean - place).square() + p.variance


# Minus the expectation under p of the log-density of q, by the type of q.
_CROSS: dict[type, Callable[[Any, Any], Tensor]] = {
    Beta: lambda p, q: (
        q._log_normaliser()
        - (q.concentration1 - 1) * _expected(_LOG, p)
        - (q.concentration0 - 1) * _expected(_LOG_REST, p)
    ),
    ContinuousBernoulli: lambda p, q: -p.mean * q.logits - (-q.probs).log1p() - q._log_norm(),
    Exponential: lambda p, q: q.rate * p.mean - q.rate.log(),
    Gamma: lambda p, q: (
        lgamma(q.concentration)
        - q.concentration * q.rate.log()
        - (q.concentration - 1) * _expected(_LOG, p)
        + q.rate * p.mean
    ),
    Geometric: lambda p, q: -p.mean * (-q.probs).log1p() - q.probs.log(),
    Gumbel: lambda p, q: (
        q.scale.log()
        + (p.mean - q.loc) / q.scale
        + (q.loc / q.scale).exp() * _expected(_EXP, p, 1 / q.scale)
    ),
    Laplace: lambda p, q: (2 * q.scale).log() + _expected(_DISTANCE, p, q.loc) / q.scale,
    Normal: lambda p, q: (
        math.log(2 * math.pi) / 2 + q.scale.log() + _square_from(p, q.loc) / (2 * q.scale.square())
    ),
    Pareto: lambda p, q: (
        (q.alpha + 1) * _expected(_LOG, p) - q.alpha.log() - q.alpha * q.scale.log()
    ),
    # Samples are 0 and 1, whose factorials are 1.
    Poisson: lambda p, q: q.rate - p.mean * q.rate.log(),
    Uniform: lambda p, q: (q.high - q.low).log(),
}


def cross_entropy(p: Distribution, q: Distribution) -> Tensor:
    """Minus the expectation under `p` of the log-density of `q`."""
    for kind in type(q).__mro__:
        if kind in _CROSS:
            return _CROSS[kind](p, q)
    raise NotImplementedError(type(q).__name__)


def _bounds(p: Distribution) -> tuple[Any, Any]:
    support = p.support
    return (
        getattr(support, "lower_bound", -math.inf),
        getattr(support, "upper_bound", math.inf),
    )


def outside(p: Distribution, q: Distribution) -> Any:
    """Whether samples of `p` may lie outside the support of `q`; None if the types exclude it."""
    (low, high), (lowest, highest) = _bounds(p), _bounds(q)
    tests = [lowest > low, highest < high]
    found = [test for test in tests if isinstance(test, Tensor)]
    return found[0] | found[-1] if found else None


_BELOW_1 = (Beta, ContinuousBernoulli, Uniform)
_ABOVE_0 = (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)

# Pairs whose first has samples outside the support of the second, whatever their parameters.
INFINITE: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (*_BELOW_1, Pareto),
    Gamma: (*_BELOW_1, Pareto),
    Gumbel: _ABOVE_0,
    Laplace: _ABOVE_0,
    Normal: _ABOVE_0,
    Pareto: _BELOW_1,
    Poisson: (Bernoulli, Binomial),
}

# The pairs of PyTorch, for which the tables above have every expectation that the second needs.
WITH_FORMULAS: dict[type, tuple[type, ...]] = {
    Bernoulli: (Poisson,),
    Beta: (ContinuousBernoulli, Exponential, Gamma, Normal, Uniform),
    ContinuousBernoulli: (ContinuousBernoulli, Exponential, Normal, Uniform),
    Exponential: (Gamma, Gumbel, Normal),
    Gamma: (Exponential, Gumbel, Normal),
    Geometric: (Geometric,),
    Gumbel: (Gumbel, Normal),
    Laplace: (Normal,),
    Normal: (Gumbel, Laplace),
    Pareto: (Exponential, Gamma, Normal, Pareto),
    Uniform: (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Normal, Pareto),
}
