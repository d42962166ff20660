"""Distributions that are transforms of simpler ones."""

from __future__ import annotations

import math
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.continuous import Exponential, Uniform
from metaop.distributions.distribution import Distribution, broadcast_all
from metaop.distributions.gamma_family import Gamma
from metaop.distributions.location_scale import EULER, Cauchy, Normal
from metaop.distributions.transformed_distribution import TransformedDistribution
from metaop.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ExpTransform,
    PowerTransform,
    StickBreakingTransform,
)
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import full_like, ones_like, zeros_like
from metaop.tensor.functions.pointwise import digamma, lgamma
from metaop.tensor.functions.selection import where


class _OfLocationScale(TransformedDistribution):
    """A distribution whose parameters are those of its base."""

    @property
    def loc(self) -> Tensor:
        """The location of the base."""
        return self.base_dist.loc  # type: ignore[attr-defined]

    @property
    def scale(self) -> Tensor:
        """The scale of the base."""
        return self.base_dist.scale  # type: ignore[attr-defined]


class LogNormal(_OfLocationScale):
    """The exponential of a normal variable with mean `loc` and deviation `scale`.

    Both broadcast to its shape; they are the mean and deviation of the logarithm.

    >>> metaop.distributions.LogNormal(0.0, 1.0).mean
    tensor(1.6487)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args)
        super().__init__(base, [ExpTransform()], validate_args)

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

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class _Half(_OfLocationScale):
    """The absolute value of a variable with an even density."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, base: Distribution, validate_args: bool | None) -> None:
        super().__init__(base, [AbsTransform()], validate_args)

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """The absolute value of a normal variable with deviation `scale`, whose shape it has.

    >>> metaop.distributions.HalfNormal(1.0).mean
    tensor(0.7979)
    """

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0.0, scale, False), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """The absolute value of a Cauchy variable around 0 with `scale`, whose shape it has.

    Its mean is infinite.

    >>> metaop.distributions.HalfCauchy(1.0).cdf(metaop.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5000])
    """

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0.0, scale, False), validate_args)

    @property
    def mean(self) -> Tensor:
        return full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance


class InverseGamma(TransformedDistribution):
    """The reciprocal of a gamma variable with `concentration` and `rate`.

    Both broadcast to its shape. The mean is infinite up to a concentration of 1.

    >>> metaop.distributions.InverseGamma(3.0, 2.0).mean
    tensor(1.)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    base_dist: Gamma

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args)
        super().__init__(base, [PowerTransform(base.rate.new_tensor(-1.0))], validate_args)

    @property
    def concentration(self) -> Tensor:
        """The shape of the gamma variable."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """The rate of the gamma variable, which scales this one."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        return where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        below = (self.concentration - 1).square() * (self.concentration - 2)
        return where(self.concentration > 2, self.rate.square() / below, math.inf)

    def entropy(self) -> Tensor:
        one = self.concentration
        return one + self.rate.log() + lgamma(one) - (1 + one) * digamma(one)


class Kumaraswamy(TransformedDistribution):
    """A distribution on 0 … 1 like `Beta`, with a cumulative probability in closed form.

    Both concentrations, above 0, broadcast to its shape.

    >>> metaop.distributions.Kumaraswamy(2.0, 1.0).cdf(metaop.tensor(0.5))
    tensor(0.2500)
    """

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(zeros_like(self.concentration0), ones_like(self.concentration0), False)
        flip = AffineTransform(1.0, -1.0)
        first = PowerTransform(1 / self.concentration0)
        super().__init__(
            base, [first, flip, PowerTransform(1 / self.concentration1)], validate_args
        )

    def _moment(self, order: int) -> Tensor:
        one, other = 1 + order / self.concentration1, self.concentration0
        return other * (lgamma(one) + lgamma(other) - lgamma(one + other)).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        one, other = self.concentration1, self.concentration0
        inside = (other >= 1) & (one >= 1)
        logarithm = (-other).log1p() / other - (-other * one).log1p()
        return where(inside, logarithm, math.nan).exp()

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean.square()

    def entropy(self) -> Tensor:
        one, other = self.concentration1, self.concentration0
        harmonic = digamma(other + 1) + EULER
        return 1 - 1 / other + (1 - 1 / one) * harmonic - one.log() - other.log()


class Pareto(TransformedDistribution):
    """Numbers above `scale` with a power-law tail of index `alpha`; both broadcast to its shape.

    The mean is infinite up to an `alpha` of 1, the variance up to 2.

    >>> metaop.distributions.Pareto(1.0, 2.0).mean
    tensor(2.)
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        power = self.alpha.clamp(min=1)
        return power * self.scale / (power - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        power = self.alpha.clamp(min=2)
        return self.scale.square() * power / ((power - 1).square() * (power - 2))

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + 1 / self.alpha


class Weibull(TransformedDistribution):
    """Lifetimes with a hazard that grows with the power `concentration - 1`, scaled by `scale`.

    Both broadcast to its shape.

    >>> metaop.distributions.Weibull(2.0, 1.0).mean
    tensor(2.)
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = 1 / self.concentration
        base = Exponential(ones_like(self.scale), validate_args)
        power = PowerTransform(self.concentration_reciprocal)
        super().__init__(base, [power, AffineTransform(0, self.scale)], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * lgamma(1 + self.concentration_reciprocal).exp()

    @property
    def mode(self) -> Tensor:
        one = self.concentration
        return self.scale * ((one - 1) / one).pow(self.concentration_reciprocal)

    @property
    def variance(self) -> Tensor:
        one = self.concentration_reciprocal
        moments = lgamma(1 + 2 * one).exp() - (2 * lgamma(1 + one)).exp()
        return self.scale.square() * moments

    def entropy(self) -> Tensor:
        one = self.concentration_reciprocal
        return EULER * (1 - one) + (self.scale * one).log() + 1


class LogisticNormal(TransformedDistribution):
    """Probabilities (…, K) that stick breaking makes from normal variables (…, K - 1).

    `loc` and `scale` are those of the normal variables.

    >>> x = metaop.distributions.LogisticNormal(metaop.zeros(2), metaop.ones(2))
    >>> x.event_shape
    metaop.Size([3])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args)
        base = base if base.batch_shape else base.expand((1,))
        super().__init__(base, [StickBreakingTransform()], validate_args)

    @property
    def loc(self) -> Tensor:
        """The means of the normal variables."""
        return self.base_dist.base_dist.loc  # type: ignore[attr-defined]

    @property
    def scale(self) -> Tensor:
        """The deviations of the normal variables."""
        return self.base_dist.base_dist.scale  # type: ignore[attr-defined]
