"""Distributions of booleans and of counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.distribution import ExponentialFamily, broadcast_all
from metaop.distributions.gamma_family import Gamma
from metaop.distributions.gamma_samples import standard_gamma
from metaop.distributions.probabilities import OfProbability
from metaop.distributions.utils import values_of_support
from metaop.errors import UnsupportedError
from metaop.nn import functional as F
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import zeros_like
from metaop.tensor.functions.pointwise import lgamma, xlogy
from metaop.tensor.functions.random import bernoulli as draw_bernoulli
from metaop.tensor.functions.random import poisson, rand
from metaop.tensor.functions.ranges import arange
from metaop.tensor.functions.selection import where
from metaop.tensor.grad_mode import no_grad

# So many trials are drawn one by one.
_FEW_TRIALS = 32
_PROBS_OR_LOGITS = {"probs": constraints.unit_interval, "logits": constraints.real}


@no_grad()
def binomial(count: Tensor, prob: Tensor) -> Tensor:
    """The number of successes in `count` trials of probability `prob`, in the type of `prob`.

    The shapes broadcast. Many trials are halved first: the middle one of so many uniform numbers
    follows a beta distribution, and all numbers on one side of it lie on one side of `prob`. From
    Devroye, "Non-uniform random variate generation" (1986), section X.4.

    >>> metaop.binomial(metaop.tensor([3.0, 1e6]), metaop.tensor([1.0, 0.0]))
    tensor([3., 0.])
    """
    left, chance = (x.double() for x in broadcast_all(count, prob))
    found = zeros_like(left)
    largest = int(left.max()) if left.numel() else 0
    while largest > _FEW_TRIALS:
        middle = ((left + 1) / 2).floor()
        below, above = (standard_gamma(x.clamp(min=1)) for x in (middle, left + 1 - middle))
        place = below / (below + above)
        is_hit = (place <= chance) & (left > 0)
        found = where(is_hit, found + middle, found)
        left = where(is_hit, left - middle, middle - 1).clamp(min=0)
        chance = where(is_hit, (chance - place) / (1 - place), chance / place).clamp(0, 1)
        largest //= 2
    drawn = rand((largest, *left.shape), dtype=left.dtype, device=left.device)
    order = arange(largest, device=left.device).reshape(-1, *[1] * left.ndim)
    return (found + ((drawn < chance) & (order < left)).sum(0)).to(prob.dtype)


class Bernoulli(OfProbability, ExponentialFamily):
    """1 with probability `probs`, else 0; it has the shape of `probs` or `logits`.

    >>> metaop.distributions.Bernoulli(metaop.tensor([0.0, 1.0])).sample()
    tensor([0., 1.])
    """

    arg_constraints = _PROBS_OR_LOGITS
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take_parameter(probs, logits)
        super().__init__(self.param_shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        probs = self.probs
        return where(probs == 0.5, float("nan"), (probs >= 0.5).to(probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return draw_bernoulli(self.probs.expand(*self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return values_of_support(2, self._param, self._batch_shape, expand)


class Geometric(OfProbability):
    """The number of failures before the first success, which has the given probability or logit.

    It has the shape of the argument.

    >>> metaop.distributions.Geometric(metaop.tensor([0.5, 0.25])).mean
    tensor([1., 3.])
    """

    arg_constraints = _PROBS_OR_LOGITS
    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take_parameter(probs, logits)
        super().__init__(self.param_shape, validate_args=validate_args)
        if self._validate_args and probs is not None:
            self._check("probs", constraints.greater_than(0), self.probs)

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return 0 * self.probs

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            shape = self._extended_shape(sample_shape)
            drawn = rand(shape, dtype=self.probs.dtype, device=self.probs.device)
            return ((-drawn).log1p() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return xlogy(value, 1 - self.probs) + self.probs.log()

    def entropy(self) -> Tensor:
        return (
            F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
            / self.probs
        )


class Binomial(OfProbability):
    """The number of successes in `total_count` trials; the arguments broadcast to its shape.

    >>> x = metaop.distributions.Binomial(3, probs=metaop.tensor(0.5))
    >>> x.log_prob(metaop.tensor([0.0, 1.0])).exp()
    tensor([0.1250, 0.3750])
    """

    arg_constraints = {"total_count": constraints.nonnegative_integer, **_PROBS_OR_LOGITS}
    has_enumerate_support = True

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        (self.total_count,) = self._take_parameter(probs, logits, total_count)
        super().__init__(self.param_shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return binomial(self.total_count.expand(*shape), self.probs.expand(*shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        count = self.total_count
        ways = lgamma(count + 1) - lgamma(value + 1) - lgamma(count - value + 1)
        return ways + value * self.logits - count * F.softplus(self.logits)

    def entropy(self) -> Tensor:
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = int(self.total_count.max())
        if int(self.total_count.min()) != count:
            raise UnsupportedError(
                "Inhomogeneous total count not supported by `enumerate_support` and `entropy`.",
                fix="give one total_count for the whole batch",
            )
        return values_of_support(count + 1, self._param, self._batch_shape, expand)


class NegativeBinomial(OfProbability):
    """The number of successes before `total_count` failures; the arguments broadcast to its shape.

    `total_count` need not be an integer: the distribution is a gamma mixture of Poisson ones.

    >>> x = metaop.distributions.NegativeBinomial(2.0, probs=metaop.tensor(0.5))
    >>> x.mean, x.log_prob(metaop.tensor(0.0)).exp()
    (tensor(2.), tensor(0.2500))
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        (self.total_count,) = self._take_parameter(probs, logits, total_count)
        super().__init__(self.param_shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    @property
    def _gamma(self) -> Gamma:
        # A total_count of 0 gives the rate 0, which is allowed here.
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        count, total = self.total_count, self.total_count + value
        ways = lgamma(total) - lgamma(value + 1) - lgamma(count)
        # No successes in no trials have probability 1, but lgamma(0) is infinite.
        ways = where(total == 0, 0.0, ways)
        return count * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits) + ways


class Poisson(ExponentialFamily):
    """The number of events of a given `rate`, whose shape it has.

    The rate is the expected number.

    >>> metaop.distributions.Poisson(2.0).log_prob(metaop.tensor(1.0)).exp()
    tensor(0.2707)
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    variance = mean

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(*self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return xlogy(value, rate) - rate - lgamma(value + 1)
