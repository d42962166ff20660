"""Continuous relaxations of discrete distributions, whose samples have gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.categorical import Categorical, OfCategorical
from metaop.distributions.distribution import broadcast_all
from metaop.distributions.location_scale import Gumbel
from metaop.distributions.probabilities import OfProbability
from metaop.distributions.transformed_distribution import TransformedDistribution
from metaop.distributions.transforms import ExpTransform, SigmoidTransform
from metaop.distributions.utils import clamp_probs, probs_to_logits
from metaop.nn.functional import softplus
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import as_tensor
from metaop.tensor.functions.random import rand

__all__ = ["RelaxedBernoulli", "RelaxedOneHotCategorical"]


class LogitRelaxedBernoulli(OfProbability):
    """The logits of samples of `RelaxedBernoulli`."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._take_parameter(probs, logits)
        self.temperature = as_tensor(temperature, self._param.dtype, self._param.device)
        super().__init__(self.param_shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape, like = self._extended_shape(sample_shape), self._param
        noise = probs_to_logits(rand(tuple(shape), dtype=like.dtype, device=like.device), True)
        return (noise + probs_to_logits(self.probs, True)) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        away = logits - value * self.temperature
        return self.temperature.log() + away - 2 * softplus(away)


class _Relaxed(TransformedDistribution):
    """A relaxation whose parameters are those of its base."""

    @property
    def temperature(self) -> Tensor:
        """The temperature: the lower, the closer samples are to discrete ones."""
        return self.base_dist.temperature  # type: ignore[attr-defined]

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self.base_dist.probs  # type: ignore[attr-defined]

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities, or of the odds."""
        return self.base_dist.logits  # type: ignore[attr-defined]


class RelaxedBernoulli(_Relaxed):
    """Numbers between 0 and 1 that tend to those of `Bernoulli` as the temperature falls to 0.

    It has the shape of `probs` or `logits`.

    >>> x = metaop.distributions.RelaxedBernoulli(metaop.tensor(0.5), logits=metaop.zeros(3))
    >>> x.rsample((2,)).shape
    metaop.Size([2, 3])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, [SigmoidTransform()], validate_args)


class ExpRelaxedCategorical(OfCategorical):
    """The logarithms of samples of `RelaxedOneHotCategorical`."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    # The true support is narrower: vectors whose exponentials sum to 1.
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        like = self._categorical._param
        self.temperature = as_tensor(temperature, like.dtype, like.device)
        super().__init__(like.shape[:-1], like.shape[-1:], validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape, like = self._extended_shape(sample_shape), self.logits
        uniform = clamp_probs(rand(tuple(shape), dtype=like.dtype, device=like.device))
        noise = Gumbel(like.new_zeros(()), like.new_ones(()), False).icdf(uniform)
        return ((self.logits + noise) / self.temperature).log_softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        count = self._event_shape[0]
        logits, value = broadcast_all(self.logits, value)
        score = (logits - value * self.temperature).log_softmax(-1).sum(-1)
        scale = (count - 1) * self.temperature.log()
        return score + scale + self.temperature.new_tensor(float(count)).lgamma()


class RelaxedOneHotCategorical(_Relaxed):
    """Probabilities that tend to one-hot vectors as the temperature falls to 0.

    The last dimension, of size K, holds the categories.

    >>> logits = metaop.zeros(3)
    >>> x = metaop.distributions.RelaxedOneHotCategorical(metaop.tensor(0.5), logits=logits)
    >>> x.rsample((2,)).shape
    metaop.Size([2, 3])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args)
        super().__init__(base, [ExpTransform()], validate_args)
