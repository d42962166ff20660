"""Distributions of `loc + scale * z`, where z is a standard variable of one family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from metaop.distributions import constraints
from metaop.distributions.distribution import Distribution, ExponentialFamily, broadcast_all
from metaop.tensor.core import Tensor
from metaop.tensor.functions.random import rand, randn
from metaop.tensor.type_info import finfo

EULER = 0.57721566490153286060


class LocationScale(Distribution):
    """The base of location-scale families; a subclass defines the standard variable.

    It gives the mean, variance and entropy as numbers, and the samples, density, cumulative
    distribution and quantiles as functions. The mode is 0.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    _standard_mean: ClassVar[float] = 0.0
    _standard_variance: ClassVar[float]
    _standard_entropy: ClassVar[float]

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _draw(self, shape: Sequence[int]) -> Tensor:
        """Samples of the standard variable."""
        return self._quantile(rand(tuple(shape), dtype=self.loc.dtype, device=self.loc.device))

    def _log_density(self, standard: Tensor) -> Tensor:
        raise NotImplementedError

    def _cumulative(self, standard: Tensor) -> Tensor:
        raise NotImplementedError

    def _quantile(self, probability: Tensor) -> Tensor:
        raise NotImplementedError

    def _standardised(self, value: Tensor) -> Tensor:
        return (value - self.loc) / self.scale

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * self._standard_mean

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * self._standard_variance

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.loc + self.scale * self._draw(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._log_density(self._standardised(value)) - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return self._cumulative(self._standardised(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * self._quantile(value)

    def entropy(self) -> Tensor:
        return self.scale.log() + self._standard_entropy


class Normal(LocationScale, ExponentialFamily):
    """The normal distribution with mean `loc` and standard deviation `scale`.

    Both broadcast to its shape.

    >>> metaop.distributions.Normal(0.0, 1.0).log_prob(metaop.tensor([0.0, 1.0]))
    tensor([-0.9189, -1.4189])
    """

    _standard_variance = 1.0
    _standard_entropy = 0.5 + 0.5 * math.log(2 * math.pi)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    def _draw(self, shape: Sequence[int]) -> Tensor:
        return randn(tuple(shape), dtype=self.loc.dtype, device=self.loc.device)

    def _log_density(self, standard: Tensor) -> Tensor:
        return -standard.square() / 2 - math.log(2 * math.pi) / 2

    def _cumulative(self, standard: Tensor) -> Tensor:
        return 0.5 * (1 + (standard / math.sqrt(2)).erf())

    def _quantile(self, probability: Tensor) -> Tensor:
        return (2 * probability - 1).erfinv() * math.sqrt(2)


class Laplace(LocationScale):
    """The double exponential distribution around `loc`; `loc` and `scale` broadcast to its shape.

    >>> metaop.distributions.Laplace(0.0, 1.0).log_prob(metaop.tensor([0.0, 1.0]))
    tensor([-0.6931, -1.6931])
    """

    _standard_variance = 2.0
    _standard_entropy = 1 + math.log(2)

    @property
    def mean(self) -> Tensor:
        return self.loc

    def _draw(self, shape: Sequence[int]) -> Tensor:
        drawn = rand(tuple(shape), dtype=self.loc.dtype, device=self.loc.device)
        # Never 0, because its quantile is infinite.
        return self._quantile(drawn.clamp(min=2.0**-25))

    def _log_density(self, standard: Tensor) -> Tensor:
        return -standard.abs() - math.log(2)

    def _cumulative(self, standard: Tensor) -> Tensor:
        return 0.5 - 0.5 * standard.sign() * (-standard.abs()).expm1()

    def _quantile(self, probability: Tensor) -> Tensor:
        away = probability - 0.5
        return -away.sign() * (-2 * away.abs()).log1p()


class Cauchy(LocationScale):
    """The distribution of the ratio of two centred normal variables, shifted and scaled.

    `loc` and `scale` broadcast to its shape. It has no mean.

    >>> metaop.distributions.Cauchy(0.0, 1.0).cdf(metaop.tensor([0.0, 1.0]))
    tensor([0.5000, 0.7500])
    """

    _standard_mean = math.nan
    _standard_variance = math.inf
    _standard_entropy = math.log(4 * math.pi)

    def _log_density(self, standard: Tensor) -> Tensor:
        return -math.log(math.pi) - standard.square().log1p()

    def _cumulative(self, standard: Tensor) -> Tensor:
        return standard.atan() / math.pi + 0.5

    def _quantile(self, probability: Tensor) -> Tensor:
        return (math.pi * (probability - 0.5)).tan()


class Gumbel(LocationScale):
    """The distribution of the largest of many samples; `loc` and `scale` broadcast to its shape.

    >>> metaop.distributions.Gumbel(0.0, 1.0).mean
    tensor(0.5772)
    """

    _standard_mean = EULER
    _standard_variance = math.pi**2 / 6
    _standard_entropy = 1 + EULER

    def _draw(self, shape: Sequence[int]) -> Tensor:
        kind = self.loc.dtype
        drawn = rand(tuple(shape), dtype=kind, device=self.loc.device)
        # Neither 0 nor 1, because their quantiles are infinite.
        return self._quantile(drawn.clamp(finfo(kind).tiny, 1 - finfo(kind).eps / 2))

    def _log_density(self, standard: Tensor) -> Tensor:
        return -standard - (-standard).exp()

    def _cumulative(self, standard: Tensor) -> Tensor:
        return (-(-standard).exp()).exp()

    def _quantile(self, probability: Tensor) -> Tensor:
        return -(-probability.log()).log()
