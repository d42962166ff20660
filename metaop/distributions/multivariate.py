"""Distributions of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from metaop.distributions import constraints
from metaop.distributions.distribution import Distribution, ExponentialFamily
from metaop.distributions.gamma_samples import standard_gamma
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.pointwise import digamma, lgamma
from metaop.tensor.functions.random import randn
from metaop.tensor.linear_algebra.decompositions import cholesky, inv, solve_triangular


class Dirichlet(ExponentialFamily):
    """Vectors of probabilities, with the given concentrations along the last dimension.

    >>> metaop.distributions.Dirichlet(metaop.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.positive}
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
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        parts = self.concentration * (total - self.concentration)
        return parts / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = standard_gamma(self.concentration.expand(*self._extended_shape(sample_shape)))
        return drawn / drawn.sum(-1, True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (
            ((self.concentration - 1) * value.log()).sum(-1)
            + lgamma(self.concentration.sum(-1))
            - lgamma(self.concentration).sum(-1)
        )

    def entropy(self) -> Tensor:
        count, total = self.concentration.shape[-1], self.concentration.sum(-1)
        return (
            lgamma(self.concentration).sum(-1)
            - lgamma(total)
            - (count - total) * digamma(total)
            - ((self.concentration - 1) * digamma(self.concentration)).sum(-1)
        )


class MultivariateNormal(Distribution):
    """The normal distribution of vectors, by one of three matrices.

    `loc` is (…, D), the covariance, its inverse or its Cholesky factor (…, D, D).

    >>> x = metaop.distributions.MultivariateNormal(metaop.zeros(2), metaop.eye(2))
    >>> x.log_prob(metaop.zeros(2))
    tensor(-1.8379)
    """

    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ArgumentError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified.",
                fix="pass one of them",
            )
        if scale_tril is None:
            covariance = inv(given[0]) if covariance_matrix is None else given[0]
            scale_tril = cholesky(covariance)
        self.scale_tril = scale_tril
        shape = (loc + scale_tril[..., 0]).shape
        self.loc = loc.expand(*shape)
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariances of the components."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        return inv(self.covariance_matrix)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self.scale_tril.square().sum(-1).expand(*self._extended_shape())

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def _log_determinant(self) -> Tensor:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        difference = (value - self.loc).unsqueeze(-1)
        scale = self.scale_tril.expand(*difference.shape[:-1], self.scale_tril.shape[-1])
        distance = solve_triangular(scale, difference, upper=False).square().sum((-2, -1))
        count = self._event_shape[0]
        return -0.5 * (count * math.log(2 * math.pi) + distance) - self._log_determinant()

    def entropy(self) -> Tensor:
        count = self._event_shape[0]
        entropy = 0.5 * count * (1 + math.log(2 * math.pi)) + self._log_determinant()
        return entropy.expand(*self._batch_shape)
