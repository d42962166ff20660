"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.categorical import Categorical
from metaop.distributions.distribution import Distribution
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import no_grad

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture of the K distributions along the last batch dimension of `component_distribution`.

    `mixture_distribution` is a Categorical over the components; its batch broadcasts with the
    remaining batch dimensions. Raises ArgumentError if numbers or shapes do not match.

    >>> weights = metaop.distributions.Categorical(metaop.ones(2))
    >>> parts = metaop.distributions.Normal(metaop.tensor([-1.0, 1.0]), 1.0)
    >>> metaop.distributions.MixtureSameFamily(weights, parts).variance
    tensor(2.)
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        mixture, component = mixture_distribution, component_distribution
        self._require_distributions(mixture, component)
        batch = component.batch_shape[:-1]
        for own, other in zip(reversed(mixture.batch_shape), reversed(batch)):
            if 1 not in (own, other) and own != other:
                raise ArgumentError(
                    f"`mixture_distribution.batch_shape` ({mixture.batch_shape}) is not compatible "
                    f"with `component_distribution.batch_shape`({batch})",
                    fix="give a mixture that broadcasts with the batch",
                )
        if mixture.param_shape[-1] != component.batch_shape[-1]:
            raise ArgumentError(
                f"`mixture_distribution component` ({mixture.param_shape[-1]}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({component.batch_shape[-1]})",
                fix="give as many components as categories",
            )
        self._mixture_distribution = mixture
        self._component_distribution = component
        super().__init__(batch, component.event_shape, validate_args)

    @staticmethod
    def _require_distributions(mixture: Any, component: Any) -> None:
        if not isinstance(mixture, Categorical):
            raise ArgumentError(
                "The Mixture distribution needs to be an instance of distributions.Categorical",
                fix="pass a Categorical",
            )
        if not isinstance(component, Distribution):
            raise ArgumentError(
                "The Component distribution needs to be an instance of distributions.Distribution",
                fix="pass a distribution whose last batch dimension holds the components",
            )

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        # The mixture's batch may have fewer dimensions, so its shapes may begin differently.
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        return super().expand(batch_shape, new)

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution of components."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components, along the last batch dimension."""
        return self._component_distribution

    def _average(self, value: Tensor) -> Tensor:
        """The mean over the components, weighted by their probabilities."""
        events = len(self._event_shape)
        probs = self._mixture_distribution.probs
        probs = probs.reshape(*probs.shape, *[1] * events)
        return (probs * value).sum(-1 - events)

    def _beside_components(self, value: Tensor) -> Tensor:
        return value.unsqueeze(-1 - len(self._event_shape))

    @property
    def mean(self) -> Tensor:
        return self._average(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        away = self._component_distribution.mean - self._beside_components(self.mean)
        return self._average(self._component_distribution.variance + away.square())

    def cdf(self, x: Tensor) -> Tensor:
        probability = self._component_distribution.cdf(self._beside_components(x))
        return (probability * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        self._validate_sample(x)
        density = self._component_distribution.log_prob(self._beside_components(x))
        weight = self._mixture_distribution.logits.log_softmax(-1)
        return (density + weight).logsumexp(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            shape = self._extended_shape(sample_shape)
            events, batch = len(self._event_shape), len(shape) - len(self._event_shape)
            wide = self._mixture_distribution.expand(self._batch_shape)
            index = wide.sample(sample_shape).reshape(*shape[:batch], 1, *[1] * events)
            index = index.expand(*shape[:batch], 1, *self._event_shape)
            drawn = self._component_distribution.sample(sample_shape)
            return drawn.gather(batch, index).squeeze(batch)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(\n  {self._mixture_distribution},\n  "
            f"{self._component_distribution})"
        )
