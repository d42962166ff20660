"""Distributions of transformed samples of another distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.distribution import Distribution
from metaop.distributions.independent import Independent
from metaop.distributions.transforms import ComposeTransform, Transform
from metaop.distributions.utils import sum_rightmost
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.size import Size

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of another one's samples after one transform, or several in order.

    Its densities follow from the Jacobians. Its event has as many dimensions as the largest event
    of the base and the transforms.

    >>> base = metaop.distributions.Normal(0.0, 1.0)
    >>> exp = metaop.distributions.ExpTransform()
    >>> x = metaop.distributions.TransformedDistribution(base, [exp])
    >>> x.log_prob(metaop.tensor(1.0))
    tensor(-0.9189)
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list) or not all(
            isinstance(one, Transform) for one in self.transforms
        ):
            raise ArgumentError(
                f"transforms must be a Transform or a list of Transforms, but was {transforms}",
                fix="pass transforms of metaop.distributions",
            )
        chain = ComposeTransform(self.transforms)
        before, after = chain.domain.event_dim, chain.codomain.event_dim
        base = base_distribution
        shape = Size((*base.batch_shape, *base.event_shape))
        if len(shape) < before:
            raise ArgumentError(
                "base_distribution needs to have shape with size at least "
                f"{before}, but got {shape}.",
                fix="give the base as many dimensions as the transforms take",
            )
        shape, events = chain.forward_shape(shape), len(base.event_shape)
        wide = chain.inverse_shape(shape)
        if wide != (*base.batch_shape, *base.event_shape):
            base = base.expand(wide[: len(wide) - events])
        self.base_dist = Independent(base, before - events) if before > events else base
        cut = len(shape) - max(after, events + after - before)
        super().__init__(shape[:cut], shape[cut:], validate_args)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        missing = len(self._event_shape) - support.event_dim
        return constraints.independent(support, missing) if missing > 0 else support

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    def _forward(self, value: Tensor) -> Tensor:
        for transform in self.transforms:
            value = transform(value)
        return value

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        count, total = len(self._event_shape), None
        for transform in reversed(self.transforms):
            before = transform.inv(value)
            count += transform.domain.event_dim - transform.codomain.event_dim
            term = transform.log_abs_det_jacobian(before, value)
            term = sum_rightmost(term, count - transform.domain.event_dim)
            total = term if total is None else total + term
            value = before
        density = self.base_dist.log_prob(value)
        density = sum_rightmost(density, count - len(self.base_dist.event_shape))
        return density if total is None else density - total

    def _rising(self, probability: Tensor) -> Tensor:
        """A cumulative probability, complemented if the transforms are decreasing together."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._rising(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._rising(value)))
