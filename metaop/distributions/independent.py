"""Batch dimensions reinterpreted as dimensions of an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.distribution import Distribution
from metaop.distributions.utils import sum_rightmost
from metaop.errors import ArgumentError, UnsupportedError
from metaop.tensor.core import Tensor

__all__ = ["Independent"]


class Independent(Distribution):
    """A distribution with its last batch dimensions reinterpreted as part of the event.

    Log-densities are summed over these dimensions.

    >>> x = metaop.distributions.Normal(metaop.zeros(3), 1.0)
    >>> metaop.distributions.Independent(x, 1).log_prob(metaop.zeros(3))
    tensor(-2.7568)
    """

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        count = reinterpreted_batch_ndims
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        batch = len(base_distribution.batch_shape) - count
        if batch < 0:
            raise ArgumentError(
                f"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {count} vs {len(base_distribution.batch_shape)}",
                fix="pass a smaller number",
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = count
        super().__init__(shape[:batch], shape[batch:], validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        return not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        support, count = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(support, count) if count else support

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise UnsupportedError(
                "Enumeration over cartesian product is not implemented",
                fix="enumerate the base distribution, and combine its values",
            )
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
