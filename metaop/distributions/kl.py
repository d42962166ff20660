"""Kullback-Leibler divergences of pairs of distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from metaop.distributions.categorical import Categorical, OneHotCategorical
from metaop.distributions.continuous import Exponential, Uniform
from metaop.distributions.counts import Bernoulli, Poisson
from metaop.distributions.distribution import Distribution
from metaop.distributions.gamma_family import Beta, Dirichlet, Gamma
from metaop.distributions.independent import Independent
from metaop.distributions.location_scale import Laplace, Normal
from metaop.distributions.multivariate import MultivariateNormal
from metaop.distributions.utils import sum_rightmost
from metaop.errors import UnsupportedError
from metaop.nn.functional import softplus
from metaop.tensor.core import Tensor
from metaop.tensor.functions.pointwise import digamma, lgamma
from metaop.tensor.functions.selection import where
from metaop.tensor.linear_algebra.decompositions import solve_triangular

_FORMULAS: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable], Callable]:
    """Decorates the function that computes the divergence of two types of distributions.

    Its result has the shape of the batch. `kl_divergence` takes the function of the nearest types.

    >>> class Fixed(metaop.distributions.Normal):
    ...     pass
    >>> @metaop.distributions.register_kl(Fixed, Fixed)
    ... def _zero(p, q):
    ...     return p.loc * 0
    >>> metaop.distributions.kl_divergence(Fixed(0.0, 1.0), Fixed(3.0, 1.0))
    tensor(0.)
    """

    def decorator(formula: Callable) -> Callable:
        _FORMULAS[type_p, type_q] = formula
        return formula

    return decorator


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The expectation under `p` of `log p - log q`.

    Raises UnsupportedError for a pair without a formula.

    >>> one, other = metaop.distributions.Normal(0.0, 1.0), metaop.distributions.Normal(2.0, 1.0)
    >>> metaop.distributions.kl_divergence(one, other)
    tensor(2.)
    """
    for first in type(p).__mro__:
        for second in type(q).__mro__:
            formula = _FORMULAS.get((first, second))
            if formula is not None:
                return formula(p, q)
    raise UnsupportedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}",
        fix="estimate it from samples, or add a formula with register_kl",
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    distance = ((p.loc - q.loc) / q.scale).square()
    return 0.5 * (ratio + distance - 1 - ratio.log())


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return where((q.low > p.low) | (q.high < p.high), math.inf, result)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    return (
        q.concentration * (p.rate / q.rate).log()
        + lgamma(q.concentration)
        - lgamma(p.concentration)
        + (p.concentration - q.concentration) * digamma(p.concentration)
        + (q.rate - p.rate) * (p.concentration / p.rate)
    )


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    total_p = p.concentration1 + p.concentration0
    total_q = q.concentration1 + q.concentration0
    return (
        q._log_normaliser()
        - p._log_normaliser()
        + (p.concentration1 - q.concentration1) * digamma(p.concentration1)
        + (p.concentration0 - q.concentration0) * digamma(p.concentration0)
        + (total_q - total_p) * digamma(total_p)
    )


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    total_p, total_q = p.concentration.sum(-1), q.concentration.sum(-1)
    difference = digamma(p.concentration) - digamma(total_p).unsqueeze(-1)
    return (
        lgamma(total_p)
        - lgamma(total_q)
        - (lgamma(p.concentration) - lgamma(q.concentration)).sum(-1)
        + ((p.concentration - q.concentration) * difference).sum(-1)
    )


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    hit = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    return hit + (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = where(q.probs == 0, math.inf, terms)
    return where(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    determinants = q._log_determinant() - p._log_determinant()
    spread = solve_triangular(q.scale_tril, p.scale_tril, upper=False).square().sum((-2, -1))
    apart = (q.loc - p.loc).unsqueeze(-1)
    distance = solve_triangular(q.scale_tril, apart, upper=False).square().sum((-2, -1))
    return determinants + 0.5 * (spread + distance - p.event_shape[0])


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
