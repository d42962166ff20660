"""Univariate continuous distributions that sample by inversion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.distributions import constraints
from metaop.distributions.distribution import Distribution, ExponentialFamily, broadcast_all
from metaop.distributions.probabilities import OfProbability
from metaop.distributions.utils import clamp_probs
from metaop.nn.functional import binary_cross_entropy_with_logits
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.functions.comparison import isclose
from metaop.tensor.functions.random import rand
from metaop.tensor.functions.selection import where
from metaop.tensor.functions.special_functions import i0e, i1e
from metaop.tensor.generator import host_random


class _ByQuantile(Distribution):
    """A distribution that samples by inversion: quantiles of uniform numbers."""

    has_rsample = True

    @property
    def _like(self) -> Tensor:
        """A parameter, whose dtype and device samples share."""
        raise NotImplementedError

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape, like = self._extended_shape(sample_shape), self._like
        return self.icdf(rand(tuple(shape), dtype=like.dtype, device=like.device))


class Uniform(_ByQuantile):
    """The uniform distribution on [low, high); both limits broadcast to its shape.

    >>> x = metaop.distributions.Uniform(0.0, 2.0)
    >>> x.log_prob(metaop.tensor(1.0)), x.cdf(metaop.tensor(0.5))
    (tensor(-0.6931), tensor(0.2500))
    """

    arg_constraints = {
        "low": constraints.dependent(is_discrete=False, event_dim=0),
        "high": constraints.dependent(is_discrete=False, event_dim=0),
    }

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args:
            self._check("high", constraints.greater_than(self.low.detach()), self.high)

    @property
    def _like(self) -> Tensor:
        return self.low

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return self.high * float("nan")

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = (self.low <= value) & (self.high > value)
        return inside.type_as(self.low).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Exponential(_ByQuantile, ExponentialFamily):
    """Waiting times between events of the given `rate`, whose shape it has.

    The rate is the number of events in a unit of time.

    >>> metaop.distributions.Exponential(2.0).cdf(metaop.tensor([0.0, 0.5]))
    tensor([0.0000, 0.6321])
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def _like(self) -> Tensor:
        return self.rate

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return 0 * self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - (-self.rate * value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()


class GeneralizedPareto(_ByQuantile):
    """Excesses over a threshold: exponential for `concentration` 0, else with a power-law tail.

    `loc`, `scale` and `concentration` broadcast to its shape. The mean is NaN from a concentration
    of 1 on, the variance from 0.5.

    >>> x = metaop.distributions.GeneralizedPareto(0.0, 1.0, 0.5)
    >>> x.mean, x.cdf(metaop.tensor([0.0, 2.0]))
    (tensor(2.), tensor([0.0000, 0.7500]))
    """

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def _like(self) -> Tensor:
        return self.loc

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, where(self.concentration < 0, end, math.inf))

    def _by_tail(self, exponential: Tensor, power: Any) -> Tensor:
        """One value if the concentration is 0, else a function of the concentration."""
        is_zero = isclose(self.concentration, self.concentration.new_zeros(()))
        # The branch that is not taken must be finite, or its gradient is NaN.
        return where(is_zero, exponential, power(where(is_zero, 1.0, self.concentration)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        away = (value - self.loc) / self.scale

        def tail(concentration: Tensor) -> Tensor:
            factor = 1 / concentration + 1
            # At concentration -1 the distribution is uniform; log1p(-1) is its upper end.
            return where(factor == 0, 0.0, factor * (concentration * away).log1p())

        return -self.scale.log() - self._by_tail(away, tail)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of exceeding `value`."""
        self._validate_sample(value)
        away = (value - self.loc) / self.scale
        return -self._by_tail(away, lambda one: (one * away).log1p() / one)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of at most `value`."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        left = (-value).log1p()
        return self.loc + self.scale * self._by_tail(-left, lambda one: (-one * left).expm1() / one)

    @property
    def mean(self) -> Tensor:
        finite = self.concentration < 1
        mean = self.loc + self.scale / (1 - where(finite, self.concentration, 0.5))
        return where(finite, mean, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.concentration < 0.5
        one = where(finite, self.concentration, 0.25)
        variance = self.scale.square() / ((1 - one).square() * (1 - 2 * one))
        return where(finite, variance, math.nan)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1


class ContinuousBernoulli(_ByQuantile, OfProbability, ExponentialFamily):
    """Numbers in 0 … 1 with a density proportional to `probs**x * (1 - probs)**(1 - x)`.

    It has the shape of `probs`, or of the `logits` whose sigmoid they are. Within `lims`, series
    around `probs` 0.5 replace formulas that would divide 0 by 0.

    >>> x = metaop.distributions.ContinuousBernoulli(metaop.tensor([0.5, 0.9]))
    >>> x.mean, x.cdf(metaop.tensor(0.5))
    (tensor([0.5000, 0.6699]), tensor([0.5000, 0.2500]))
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._take_parameter(probs, logits)
        self._lims = lims
        super().__init__(self.param_shape, validate_args=validate_args)
        self.probs = clamp_probs(self.probs)

    @property
    def _like(self) -> Tensor:
        return self.probs

    def _near_half(self) -> Tensor:
        return (self.probs > self._lims[0]) & (self.probs <= self._lims[1])

    def _by_slope(self, near: Any, away: Any) -> Tensor:
        """A series in `probs - 0.5` within `lims`, else a function of `probs` and their logits."""
        near_half = self._near_half()
        # The branch that is not taken must be finite, or its gradient is NaN.
        probs = where(near_half, self._lims[0], self.probs)
        formula = away(probs, probs.log() - (-probs).log1p())
        return where(near_half, near(self.probs - 0.5), formula)

    def _log_norm(self) -> Tensor:
        """The logarithm of the normalising constant."""
        return self._by_slope(
            lambda x: math.log(2) + (4 / 3 + 104 / 45 * x.square()) * x.square(),
            lambda probs, logits: (logits / (2 * probs - 1)).log(),
        )

    @property
    def mean(self) -> Tensor:
        return self._by_slope(
            lambda x: 0.5 + (1 / 3 + 16 / 45 * x.square()) * x,
            lambda probs, logits: probs / (2 * probs - 1) - 1 / logits,
        )

    @property
    def variance(self) -> Tensor:
        return self._by_slope(
            lambda x: 1 / 12 - (1 / 15 - 128 / 945 * x.square()) * x.square(),
            lambda probs, logits: (
                probs * (probs - 1) / (1 - 2 * probs).square() + 1 / logits.square()
            ),
        )

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        likelihood = -binary_cross_entropy_with_logits(logits, value, reduction="none")
        return likelihood + self._log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = self._by_slope(
            lambda _: value,
            lambda probs, _: (
                (probs.pow(value) * (1 - probs).pow(1 - value) + probs - 1) / (2 * probs - 1)
            ),
        )
        return where(value <= 0, 0.0, where(value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        return self._by_slope(
            lambda _: value,
            lambda probs, logits: (
                ((-probs + value * (2 * probs - 1)).log1p() - (-probs).log1p()) / logits
            ),
        )

    def entropy(self) -> Tensor:
        rest = (-self.probs).log1p()
        return self.mean * (rest - self.probs.log()) - self._log_norm() - rest


class VonMises(Distribution):
    """The normal distribution on a circle, in radians, around `loc` with a `concentration` above 0.

    Both broadcast to its shape; angles are modulo 2 pi. Mean and variance are circular.

    >>> metaop.distributions.VonMises(0.0, 1.0).log_prob(metaop.tensor([0.0, 3.1416]))
    tensor([-1.0738, -3.0738])
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = tuple(self._extended_shape(sample_shape))
        loc, concentration = self.loc.detach()._array(), self.concentration.detach()._array()
        drawn = host_random(None).vonmises(
            loc.astype(np.float64), concentration.astype(np.float64), shape
        )
        kind = self.loc.dtype
        return from_array(np.asarray(drawn, kind.numpy), kind).to(device=self.loc.device)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        # i0e is the Bessel function over exp(concentration), so nothing overflows.
        away = self.concentration * ((value - self.loc).cos() - 1)
        return away - math.log(2 * math.pi) - i0e(self.concentration).log()
