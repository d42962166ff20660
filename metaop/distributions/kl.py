"""Kullback-Leibler divergences of pairs of distributions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from metaop.distributions.categorical import Categorical, OneHotCategorical
from metaop.distributions.continuous import Exponential, Uniform
from metaop.distributions.counts import Bernoulli, Binomial, Poisson
from metaop.distributions.distribution import Distribution, ExponentialFamily
from metaop.distributions.expectations import INFINITE, WITH_FORMULAS, cross_entropy, outside
from metaop.distributions.gamma_family import Beta, Dirichlet, Gamma
from metaop.distributions.independent import Independent
from metaop.distributions.location_scale import Cauchy, Laplace, Normal
from metaop.distributions.multivariate import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    normal_divergence,
)
from metaop.distributions.transformed_distribution import TransformedDistribution
from metaop.distributions.utils import sum_rightmost
from metaop.errors import ArgumentTypeError, UnsupportedError
from metaop.nn.functional import softplus
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import full
from metaop.tensor.functions.joining import broadcast_shapes
from metaop.tensor.functions.pointwise import digamma, lgamma
from metaop.tensor.functions.selection import where

__all__ = ["kl_divergence", "register_kl"]

_FORMULAS: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable], Callable]:
    """Registers the function that computes the divergence between two types; a decorator.

    Its result has the shape of the batch. A base class of distributions serves for all of its
    subclasses; `kl_divergence` selects the function of the most specific types.

    >>> class Fixed(metaop.distributions.Normal):
    ...     pass
    >>> @metaop.distributions.register_kl(Fixed, Fixed)
    ... def _zero(p, q):
    ...     return p.loc * 0
    >>> metaop.distributions.kl_divergence(Fixed(0.0, 1.0), Fixed(3.0, 1.0))
    tensor(0.)
    """
    for one in (type_p, type_q):
        # A class that distributions derive from besides need not be a distribution itself.
        if not isinstance(one, type):
            raise ArgumentTypeError(
                f"Expected a Distribution subclass but got {one}", fix="pass classes"
            )

    def decorator(formula: Callable) -> Callable:
        _FORMULAS[type_p, type_q] = formula
        return formula

    return decorator


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The expectation under `p` of `log p - log q`.

    Raises UnsupportedError for a pair without a formula. Warns if two are equally specific.

    >>> one, other = metaop.distributions.Normal(0.0, 1.0), metaop.distributions.Normal(2.0, 1.0)
    >>> metaop.distributions.kl_divergence(one, other)
    tensor(2.)
    """
    first, second = type(p).__mro__, type(q).__mro__
    by_p = [(one, other) for one in first for other in second if (one, other) in _FORMULAS]
    by_q = [(one, other) for other in second for one in first if (one, other) in _FORMULAS]
    if not by_p:
        raise UnsupportedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
            f"{type(q).__name__}",
            fix="estimate it from samples, or add a formula with register_kl",
        )
    if _FORMULAS[by_p[0]] is not _FORMULAS[by_q[0]]:
        warnings.warn(
            f"Ambiguous kl_divergence({type(p).__name__}, {type(q).__name__}). Please "
            f"register_kl({by_p[0][0].__name__}, {by_q[0][1].__name__})",
            RuntimeWarning,
            stacklevel=2,
        )
    return _FORMULAS[by_p[0]](p, q)


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    like = p.mean
    shape = broadcast_shapes(p.batch_shape, q.batch_shape)
    return full(shape, math.inf, dtype=like.dtype, device=like.device)


def _by_expectations(p: Distribution, q: Distribution) -> Tensor:
    divergence = cross_entropy(p, q) - p.entropy()
    beyond = outside(p, q)
    return divergence if beyond is None else where(beyond, math.inf, divergence)


for _pairs, _formula in ((INFINITE, _infinite), (WITH_FORMULAS, _by_expectations)):
    for _first, _seconds in _pairs.items():
        for _second in _seconds:
            register_kl(_first, _second)(_formula)


# Below are pairs of one type; their formulas give exactly 0 for equal parameters.


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    distance = ((p.loc - q.loc) / q.scale).square()
    return 0.5 * (ratio + distance - 1 - ratio.log())


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    distance = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return (distance / (4 * p.scale * q.scale)).log()


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
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    mean = digamma(p.concentration) - digamma(p.concentration.sum(-1, True))
    apart = ((p.concentration - q.concentration) * mean).sum(-1)
    return q._log_beta() - p._log_beta() + apart


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Tensor:
    hit = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    hit = where(p.probs == 0, 0.0, where(q.probs == 0, math.inf, hit))
    miss = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    return hit + where(p.probs == 1, 0.0, where(q.probs == 1, math.inf, miss))


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise UnsupportedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented",
            fix="estimate it from samples",
        )
    divergence = p.total_count * _bernoulli(p, q)
    return where(p.total_count > q.total_count, math.inf, divergence)


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


for _first in (MultivariateNormal, LowRankMultivariateNormal):
    for _second in (MultivariateNormal, LowRankMultivariateNormal):
        register_kl(_first, _second)(normal_divergence)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    if type(p) is not type(q):
        raise UnsupportedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
            f"{type(q).__name__}: the cross KL-divergence between different exponential families "
            "cannot be computed using Bregman divergences",
            fix="estimate it from samples, or add a formula with register_kl",
        )
    parameters, normaliser, statistics = p._mean_statistics()
    result = q._log_normalizer(*q._natural_params) - normaliser
    for own, other, statistic in zip(parameters, q._natural_params, statistics):
        term = (other - own) * statistic
        result = result - sum_rightmost(term, term.ndim - len(q.batch_shape))
    return result


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise UnsupportedError(
            "KL(p || q) of transformed distributions needs equal transforms and event shapes",
            fix="estimate it from samples",
        )
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    count = p.reinterpreted_batch_ndims
    if count != q.reinterpreted_batch_ndims:
        raise UnsupportedError(
            f"KL(p || q) of {count} and {q.reinterpreted_batch_ndims} dimensions that count as one "
            "event",
            fix="let both count the same",
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), count)
