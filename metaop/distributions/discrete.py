"""Discrete distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.distribution import Distribution, ExponentialFamily, broadcast_all
from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.tensor.core import Tensor
from metaop.tensor.functions.pointwise import lgamma, logit, xlogy
from metaop.tensor.functions.random import bernoulli as draw_bernoulli
from metaop.tensor.functions.random import multinomial, poisson, rand
from metaop.tensor.functions.ranges import arange
from metaop.tensor.gradients import no_grad


def _given(name: str, probs: Any, logits: Any) -> str:
    """Which of the two forms of the parameter was given."""
    if (probs is None) == (logits is None):
        raise ArgumentError(
            f"{name}: Either `probs` or `logits` must be specified, but not both.",
            fix="pass one of them",
        )
    return "probs" if logits is None else "logits"


def _clamped(probs: Tensor) -> Tensor:
    small = 2.0**-52 if probs.dtype.itemsize == 8 else 2.0**-23
    return probs.clamp(small, 1 - small)


class _Binary(ExponentialFamily):
    """A distribution of one probability, given as `probs` or as `logits`."""

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._given = _given(type(self).__name__, probs, logits)
        self._parameter = broadcast_all(probs if logits is None else logits)[0]
        super().__init__(self._parameter.shape, validate_args=validate_args)
        if self._validate_args and self._given == "probs":
            self._check("probs", constraints.unit_interval, self._parameter)

    @property
    def probs(self) -> Tensor:
        """The probability."""
        return self._parameter if self._given == "probs" else self._parameter.sigmoid()

    @property
    def logits(self) -> Tensor:
        """The logarithm of the odds."""
        return self._parameter if self._given == "logits" else logit(_clamped(self._parameter))

    def expand(self, batch_shape: Sequence[int]) -> Any:
        expanded = {self._given: self._parameter.expand(*batch_shape)}
        return type(self)(**expanded, validate_args=False)

    def __repr__(self) -> str:
        value = self._parameter
        shown = value if value.numel() == 1 else value.shape
        return f"{type(self).__name__}({self._given}: {shown})"


class Bernoulli(_Binary):
    """1 with a probability, else 0; by probabilities or their logits, whose shape it has.

    >>> metaop.distributions.Bernoulli(metaop.tensor([0.0, 1.0])).sample()
    tensor([0., 1.])
    """

    support = constraints.boolean
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return (self.probs >= 0.5).to(self.probs.dtype)

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
        values = arange(2, dtype=self.probs.dtype, device=self.probs.device)
        values = values.reshape(2, *[1] * len(self._batch_shape))
        return values.expand(2, *self._batch_shape) if expand else values


class Geometric(_Binary):
    """The number of failures before the first success, by its probability or logit.

    It has the shape of the argument.

    >>> metaop.distributions.Geometric(metaop.tensor([0.5, 0.25])).mean
    tensor([1., 3.])
    """

    support = constraints.nonnegative_integer

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


class Binomial(Distribution):
    """The number of successes in `total_count` trials; the arguments broadcast to its shape.

    >>> x = metaop.distributions.Binomial(3, probs=metaop.tensor(0.5))
    >>> x.log_prob(metaop.tensor([0.0, 1.0])).exp()
    tensor([0.1250, 0.3750])
    """

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        given = probs if logits is None else logits
        is_probability = _given("Binomial", probs, logits) == "probs"
        self.total_count, parameter = broadcast_all(total_count, given)
        self.probs = parameter if is_probability else parameter.sigmoid()
        self.logits = logit(_clamped(parameter)) if is_probability else parameter
        super().__init__(parameter.shape, validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
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
        with no_grad():
            count = int(self.total_count.max())
            shape = self._extended_shape(sample_shape)
            drawn = rand((count, *shape), dtype=self.probs.dtype, device=self.probs.device)
            order = arange(count, device=self.probs.device).reshape(-1, *[1] * len(shape))
            hits = (drawn < self.probs) & (order < self.total_count)
            return hits.sum(0).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        count = self.total_count
        ways = lgamma(count + 1) - lgamma(value + 1) - lgamma(count - value + 1)
        return ways + value * self.logits - count * F.softplus(self.logits)


class Poisson(ExponentialFamily):
    """The number of events of a given `rate`, whose shape it has.

    The rate is the number that is expected.

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


class Categorical(Distribution):
    """Whole numbers 0 … K - 1 with probabilities along the last dimension.

    Probabilities need not sum to 1: they are divided by their sum.

    >>> metaop.distributions.Categorical(metaop.tensor([1.0, 3.0])).probs
    tensor([0.2500, 0.7500])
    """

    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._given = _given("Categorical", probs, logits)
        given = probs if logits is None else logits
        if given.ndim < 1:
            raise ArgumentError(
                "Categorical: the parameter must be at least one-dimensional.",
                fix="pass one number for each category",
            )
        total = given.sum(-1, True) if logits is None else given.logsumexp(-1, True)
        self._parameter: Tensor = given / total if logits is None else given - total
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)
        if self._validate_args and self._given == "probs":
            self._check("probs", constraints.simplex, self._parameter)

    @property
    def probs(self) -> Tensor:
        """The probabilities, which sum to 1."""
        return self._parameter if self._given == "probs" else self._parameter.exp()

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._parameter if self._given == "logits" else _clamped(self._parameter).log()

    @property
    def param_shape(self) -> Any:
        """The shape of the probabilities."""
        return self._parameter.shape

    @property
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return self.probs[..., 0] * float("nan")

    variance = mean

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        count = 1
        for extent in sample_shape:
            count *= extent
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = multinomial(rows, count, True).t()
            return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        index = value.long().unsqueeze(-1)
        shape = broadcast_all(index[..., :1], self.logits[..., :1])[0].shape[:-1]
        logits = self.logits.expand(*shape, self._num_events)
        return logits.gather(-1, index.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        lowest = -(2.0**127)
        return -(self.logits.clamp(min=lowest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(self._num_events, device=self.probs.device)
        values = values.reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def expand(self, batch_shape: Sequence[int]) -> Any:
        shape = (*batch_shape, self._num_events)
        return Categorical(**{self._given: self._parameter.expand(*shape)}, validate_args=False)

    def __repr__(self) -> str:
        return f"Categorical({self._given}: {self.param_shape})"


class OneHotCategorical(Distribution):
    """`Categorical` with samples as vectors of one 1, along a last dimension of size K.

    >>> metaop.distributions.OneHotCategorical(metaop.tensor([0.0, 1.0])).sample()
    tensor([0., 1.])
    """

    support = constraints.simplex

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def probs(self) -> Tensor:
        """The probabilities, which sum to 1."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    mean = probs

    @property
    def mode(self) -> Tensor:
        return self._as_vectors(self._categorical.mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _as_vectors(self, index: Tensor) -> Tensor:
        return F.one_hot(index, self._event_shape[0]).to(self.probs.dtype)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._as_vectors(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def expand(self, batch_shape: Sequence[int]) -> Any:
        wide = self._categorical.expand(batch_shape)
        return OneHotCategorical(probs=wide.probs, validate_args=False)


class Multinomial(Distribution):
    """How often each category appears in `total_count` draws; the last dimension holds categories.

    >>> metaop.distributions.Multinomial(4, metaop.tensor([0.25, 0.75])).mean
    tensor([1., 3.])
    """

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], False)

    @property
    def probs(self) -> Tensor:
        """The probabilities, which sum to 1."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        return F.one_hot(drawn, self._event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        ways = lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1)
        return ways + xlogy(value, self.probs).sum(-1)
