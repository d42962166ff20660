"""Continuous distributions of one variable that are no location-scale families."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.distribution import Distribution, ExponentialFamily, broadcast_all
from metaop.distributions.gamma_samples import standard_gamma
from metaop.distributions.location_scale import Normal
from metaop.tensor.core import Tensor
from metaop.tensor.functions.pointwise import digamma, lgamma
from metaop.tensor.functions.random import rand, randn
from metaop.tensor.functions.selection import where
from metaop.tensor.type_info import finfo


def _uniform(shape: Sequence[int], like: Tensor) -> Tensor:
    return rand(tuple(shape), dtype=like.dtype, device=like.device)


class LogNormal(Distribution):
    """The exponential of a normal variable with mean `loc` and deviation `scale`.

    Both broadcast to its shape; they are the mean and deviation of the logarithm.

    >>> metaop.distributions.LogNormal(0.0, 1.0).mean
    tensor(1.6487)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        self.base_dist = Normal(self.loc, self.scale, validate_args)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        squared = self.scale.square()
        return squared.expm1() * (2 * self.loc + squared).exp()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logarithm = value.log()
        return self.base_dist.log_prob(logarithm) - logarithm

    def cdf(self, value: Tensor) -> Tensor:
        return self.base_dist.cdf(value.log())

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf(value).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class HalfNormal(Distribution):
    """The absolute value of a normal variable with deviation `scale`, whose shape it has.

    >>> metaop.distributions.HalfNormal(1.0).mean
    tensor(0.7979)
    """

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        (self.scale,) = broadcast_all(scale)
        self.base_dist = Normal(0 * self.scale, self.scale, validate_args)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return 0 * self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self.base_dist.log_prob(value) + math.log(2)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class Uniform(Distribution):
    """Evenly distributed numbers in [low, high); both limits broadcast to its shape.

    >>> x = metaop.distributions.Uniform(0.0, 2.0)
    >>> x.log_prob(metaop.tensor(1.0)), x.cdf(metaop.tensor(0.5))
    (tensor(-0.6931), tensor(0.2500))
    """

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args:
            self._check("high", constraints.greater_than(self.low.detach()), self.high)

    arg_constraints = {"low": constraints.real, "high": constraints.real}

    @property
    def support(self) -> constraints.Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = _uniform(self._extended_shape(sample_shape), self.low)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = (self.low <= value) & (self.high > value)
        return inside.type_as(self.low).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Exponential(ExponentialFamily):
    """Waiting times between events of the given `rate`, whose shape it has.

    The rate is the number of events in a unit of time.

    >>> metaop.distributions.Exponential(2.0).cdf(metaop.tensor([0.0, 0.5]))
    tensor([0.0000, 0.6321])
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return 0 * self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = _uniform(self._extended_shape(sample_shape), self.rate)
        return -(-drawn).log1p() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        return 1 - (-self.rate * value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()


class Gamma(ExponentialFamily):
    """The gamma distribution with shape `concentration` and `rate`.

    Samples come from the method of Marsaglia and Tsang; their gradients with respect to the
    concentration follow from implicit differentiation of the cumulative distribution.

    >>> x = metaop.distributions.Gamma(3.0, 2.0)
    >>> x.mean, x.variance
    (tensor(1.5000), tensor(0.7500))
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = standard_gamma(self.concentration.expand(*shape))
        return (drawn / self.rate).clamp(min=finfo(drawn.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (
            self.concentration * self.rate.log()
            + (self.concentration - 1) * value.log()
            - self.rate * value
            - lgamma(self.concentration)
        )

    def entropy(self) -> Tensor:
        shape = self.concentration
        return shape - self.rate.log() + lgamma(shape) + (1 - shape) * digamma(shape)


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal variables; `df`, above 0, has its shape.

    >>> metaop.distributions.Chi2(metaop.tensor([1.0, 3.0])).mean
    tensor([1., 3.])
    """

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (degrees,) = broadcast_all(df)
        self.df = degrees
        super().__init__(degrees / 2, degrees * 0 + 0.5, validate_args=validate_args)


class Beta(ExponentialFamily):
    """The beta distribution on 0 … 1; both concentrations, above 0, broadcast to its shape.

    >>> x = metaop.distributions.Beta(2.0, 1.0)
    >>> x.mean, x.variance
    (tensor(0.6667), tensor(0.0556))
    """

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return (self.concentration1 - 1) / (self.concentration1 + self.concentration0 - 2)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        ones = self.concentration1.detach() * 0 + 1
        first = Gamma(self.concentration1, ones, False).rsample(sample_shape)
        second = Gamma(self.concentration0, ones, False).rsample(sample_shape)
        return first / (first + second)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (
            (self.concentration1 - 1) * value.log()
            + (self.concentration0 - 1) * (-value).log1p()
            - self._log_normaliser()
        )

    def _log_normaliser(self) -> Tensor:
        first, second = self.concentration1, self.concentration0
        return lgamma(first) + lgamma(second) - lgamma(first + second)

    def entropy(self) -> Tensor:
        first, second = self.concentration1, self.concentration0
        return (
            self._log_normaliser()
            - (first - 1) * digamma(first)
            - (second - 1) * digamma(second)
            + (first + second - 2) * digamma(first + second)
        )


class StudentT(Distribution):
    """Student's t distribution with `df` degrees of freedom, moved and scaled.

    The arguments broadcast to its shape. The mean is NaN up to one degree of freedom.

    >>> metaop.distributions.StudentT(3.0).variance
    tensor(3.)
    """

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return where(self.df > 1, self.loc, float("nan"))

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.scale.square() * self.df / (self.df - 2)
        infinite = where(self.df > 1, float("inf"), float("nan"))
        return where(self.df > 2, finite, infinite)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = randn(
            self._extended_shape(sample_shape), dtype=self.df.dtype, device=self.df.device
        )
        drawn = Chi2(self.df, False).rsample(sample_shape)
        return self.loc + self.scale * noise * (drawn / self.df).rsqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        deviation = (value - self.loc) / self.scale
        normaliser = (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + lgamma(0.5 * self.df)
            - lgamma(0.5 * (self.df + 1))
        )
        return -0.5 * (self.df + 1) * (deviation.square() / self.df).log1p() - normaliser

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        beta = lgamma(half) + math.lgamma(0.5) - lgamma(half + 0.5)
        spread = (half + 0.5) * (digamma(half + 0.5) - digamma(half))
        return self.scale.log() + spread + 0.5 * self.df.log() + beta
