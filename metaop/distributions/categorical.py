"""Distributions over categories: as indices, one-hot vectors, or counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.counts import Binomial
from metaop.distributions.distribution import Distribution, broadcast_all
from metaop.distributions.probabilities import OfProbability, given_form
from metaop.distributions.utils import values_of_support
from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.tensor.core import Tensor
from metaop.tensor.functions.pointwise import lgamma
from metaop.tensor.functions.random import multinomial
from metaop.tensor.functions.ranges import eye
from metaop.tensor.functions.selection import where
from metaop.tensor.grad_mode import no_grad

_PROBS_OR_LOGITS = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Categorical(OfProbability):
    """Integers 0 … K - 1, with probabilities along the last dimension.

    Probabilities need not sum to 1; they are normalised.

    >>> metaop.distributions.Categorical(metaop.tensor([1.0, 3.0])).probs
    tensor([0.2500, 0.7500])
    """

    arg_constraints = _PROBS_OR_LOGITS
    has_enumerate_support = True
    _is_binary = False

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        name = given_form("Categorical", probs, logits)
        given = probs if logits is None else logits
        if given.ndim < 1:
            raise ArgumentError(
                f"`{name}` parameter must be at least one-dimensional.",
                fix="pass one number for each category",
            )
        total = given.sum(-1, True) if logits is None else given.logsumexp(-1, True)
        setattr(self, name, given / total if logits is None else given - total)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
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
        whole = self._param.argmax(-1)
        return values_of_support(self._num_events, whole, self._batch_shape, expand)


class OfCategorical(Distribution):
    """A distribution whose parameters are those of a `Categorical`."""

    _categorical: Categorical

    @property
    def probs(self) -> Tensor:
        """The probabilities, which sum to 1."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the probabilities."""
        return self._categorical.param_shape


class OneHotCategorical(OfCategorical):
    """`Categorical` with one-hot samples along a last dimension of size K.

    >>> metaop.distributions.OneHotCategorical(metaop.tensor([0.0, 1.0])).sample()
    tensor([0., 1.])
    """

    arg_constraints = _PROBS_OR_LOGITS
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def mean(self) -> Tensor:
        return self.probs

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

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count, like = self._event_shape[0], self.probs
        values = eye(count, dtype=like.dtype, device=like.device)
        values = values.reshape(count, *[1] * len(self._batch_shape), count)
        return values.expand(count, *self._batch_shape, count) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` with straight-through gradients from samples to probabilities.

    Samples have a last dimension of size K.

    >>> probs = metaop.tensor([0.0, 1.0]).requires_grad_()
    >>> x = metaop.distributions.OneHotCategoricalStraightThrough(probs)
    >>> x.rsample().detach()
    tensor([0., 1.])
    """

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OfCategorical):
    """The counts of the categories in `total_count` draws, along the last dimension.

    >>> metaop.distributions.Multinomial(4, metaop.tensor([0.25, 0.75])).mean
    tensor([1., 3.])
    """

    arg_constraints = _PROBS_OR_LOGITS

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

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
        self._validate_sample(value)
        ways = lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1)
        # A category of probability 0 that never appears adds 0, not 0 * -inf. One of another
        # probability keeps its part in the gradient of the counts.
        absent = (value == 0) & (self.logits == -math.inf)
        return ways + (value * where(absent, 0.0, self.logits)).sum(-1)

    def entropy(self) -> Tensor:
        count = self.total_count
        counts = Binomial(count, probs=self.probs, validate_args=False)
        values = counts.enumerate_support(expand=False)[1:]
        repeated = (counts.log_prob(values).exp() * lgamma(values + 1)).sum((0, -1))
        return (
            count * self._categorical.entropy()
            - lgamma(repeated.new_tensor(count + 1.0))
            + (repeated)
        )
