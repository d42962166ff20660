"""Distributions derived from gamma variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.distribution import Distribution, ExponentialFamily, broadcast_all
from metaop.distributions.gamma_samples import standard_gamma
from metaop.errors import ArgumentError
from metaop.nn.functional import one_hot
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import stack
from metaop.tensor.functions.pointwise import digamma, lgamma, xlogy
from metaop.tensor.functions.random import randn
from metaop.tensor.functions.selection import where
from metaop.tensor.functions.special_functions import xlog1py
from metaop.tensor.host.host_pointwise import igamma
from metaop.tensor.type_info import finfo


class Gamma(ExponentialFamily):
    """The gamma distribution with shape `concentration` and `rate`.

    Samples come from the method of Marsaglia and Tsang; their gradients with respect to the
    concentration follow from implicit differentiation of the cumulative distribution.

    >>> x = metaop.distributions.Gamma(3.0, 2.0)
    >>> x.mean, x.variance
    (tensor(1.5000), tensor(0.7500))
    """

    arg_constraints: Any = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
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
            xlogy(self.concentration, self.rate)
            + xlogy(self.concentration - 1, value)
            - self.rate * value
            - lgamma(self.concentration)
        )

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return igamma(self.concentration, self.rate * value)

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
        super().__init__(degrees / 2, degrees * 0 + 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2


class Dirichlet(ExponentialFamily):
    """Vectors of probabilities, with `concentration` along the last dimension.

    >>> metaop.distributions.Dirichlet(metaop.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ArgumentError(
                "`concentration` parameter must be at least one-dimensional.",
                fix="pass one number for each category",
            )
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        # If the density is infinite at every corner, PyTorch returns the first.
        corners = (self.concentration < 1).all(-1, True)
        first = one_hot(self.concentration[..., 0].long() * 0, self._event_shape[0])
        return where(corners, first.to(mode.dtype), mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        parts = self.concentration * (total - self.concentration)
        return parts / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = standard_gamma(self.concentration.expand(*self._extended_shape(sample_shape)))
        return drawn / drawn.sum(-1, True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return xlogy(self.concentration - 1, value).sum(-1) - self._log_beta()

    def _log_beta(self) -> Tensor:
        return lgamma(self.concentration).sum(-1) - lgamma(self.concentration.sum(-1))

    def entropy(self) -> Tensor:
        count, total = self.concentration.shape[-1], self.concentration.sum(-1)
        return (
            self._log_beta()
            - (count - total) * digamma(total)
            - ((self.concentration - 1) * digamma(self.concentration)).sum(-1)
        )


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
        # The distribution of x and 1 - x; subclasses replace its concentration, as in PyTorch.
        both = stack(broadcast_all(concentration1, concentration0), -1)
        self._dirichlet = Dirichlet(both, False)
        super().__init__(both.shape[:-1], validate_args=validate_args)

    @property
    def concentration1(self) -> Tensor:
        """How strongly samples are drawn to 1."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Tensor:
        """How strongly samples are drawn to 0."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (
            xlogy(self.concentration1 - 1, value)
            + xlog1py(self.concentration0 - 1, -value)
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
    """Student's t distribution with `df` degrees of freedom, shifted and scaled.

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
        self._chi2 = Chi2(self.df, False)
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
        drawn = self._chi2.rsample(sample_shape)
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


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared variables, each divided by its degrees of freedom.

    `df1` and `df2` broadcast to its shape. The mean is NaN for `df2` up to 2, the variance up to 4.

    >>> metaop.distributions.FisherSnedecor(1.0, 4.0).mean
    tensor(2.)
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1, False)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2, False)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return where(self.df2 > 2, self.df2 / (self.df2 - 2), float("nan"))

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 > 2, mode, float("nan"))

    @property
    def variance(self) -> Tensor:
        first, second = self.df1, self.df2
        below = first * (second - 2).square() * (second - 4)
        variance = 2 * second.square() * (first + second - 2) / below
        return where(second > 4, variance, float("nan"))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        first, second = self._gamma1.rsample(sample_shape), self._gamma2.rsample(sample_shape)
        return (first / second).clamp(min=finfo(first.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        first, second, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        return (
            lgamma(first + second)
            - lgamma(first)
            - lgamma(second)
            + first * ratio.log()
            + xlogy(first - 1, value)
            - (first + second) * (ratio * value).log1p()
        )
