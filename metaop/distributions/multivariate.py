"""Normal distributions of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.distribution import Distribution
from metaop.distributions.utils import lazy_property, standard_normal
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import broadcast_shapes
from metaop.tensor.functions.ranges import eye
from metaop.tensor.linear_algebra.decompositions import cholesky, inv, solve_triangular


def given_matrix(matrices: dict[str, Tensor | None]) -> tuple[str, Tensor]:
    """The one of three matrices that was given, and its name."""
    given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
    if len(given) != 1:
        raise ArgumentError(
            "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.",
            fix="pass one of them",
        )
    if given[0][1].ndim < 2:
        raise ArgumentError(
            f"{given[0][0]} must be at least two-dimensional, with optional leading batch "
            "dimensions",
            fix="pass a matrix",
        )
    return given[0]


class OfFactor(Distribution):
    """A distribution that keeps the lower Cholesky factor of its covariance."""

    def _start(
        self, batch: Sequence[int], event: Sequence[int], given: tuple[str, Tensor], check: Any
    ) -> None:
        """Keeps the matrix that was given, checks the parameters, then computes the factor."""
        name, matrix = given
        shape = (*batch, *matrix.shape[-2:])
        setattr(self, name, matrix.expand(*shape))
        Distribution.__init__(self, batch, event, check)
        if name != "scale_tril":
            matrix = cholesky(inv(matrix) if name == "precision_matrix" else matrix)
        # Subclasses of users may read this name, or make it a property of their own.
        self._unbroadcasted_scale_tril = matrix.expand(*shape)

    def _is_derived(self, name: str) -> bool:
        return name not in vars(self)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        factor = self._unbroadcasted_scale_tril
        return factor.expand(*self._batch_shape, *factor.shape[-2:])

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariances of the components."""
        return self.scale_tril @ self.scale_tril.mT

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        return inv(self.covariance_matrix)

    def _log_determinant(self) -> Tensor:
        """The logarithm of the determinant of the factor, half that of the covariance."""
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)


class _Normal(Distribution):
    """A normal distribution of vectors; subclasses represent the covariance."""

    loc: Tensor
    support = constraints.real_vector
    has_rsample = True

    def _log_determinant(self) -> Tensor:
        """Half the logarithm of the determinant of the covariance."""
        raise NotImplementedError

    def _distance(self, difference: Tensor) -> Tensor:
        """The squared Mahalanobis distance of vectors from 0."""
        raise NotImplementedError

    def _spread(self, factor: Tensor) -> Tensor:
        """The trace of the inverse of the covariance times `factor @ factor.mT`."""
        raise NotImplementedError

    def _factors(self) -> list[Tensor]:
        """Matrices (…, D, K) whose products with their transposes sum to the covariance."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    def _noise(self, shape: Sequence[int]) -> Tensor:
        return standard_normal(shape, self.loc.dtype, self.loc.device)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        distance = self._distance(value - self.loc)
        return -0.5 * (constant + distance) - self._log_determinant()

    def entropy(self) -> Tensor:
        constant = 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi))
        return constant + self._log_determinant()


class MultivariateNormal(_Normal, OfFactor):
    """The normal distribution of vectors, with one of three matrices.

    `loc` is (…, D); the covariance, its inverse or its Cholesky factor is (…, D, D).

    >>> x = metaop.distributions.MultivariateNormal(metaop.zeros(2), metaop.eye(2))
    >>> x.log_prob(metaop.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise ArgumentError("loc must be at least one-dimensional.", fix="pass a vector")
        given = given_matrix(
            {
                "covariance_matrix": covariance_matrix,
                "precision_matrix": precision_matrix,
                "scale_tril": scale_tril,
            }
        )
        shape = broadcast_shapes(loc.shape, given[1].shape[:-1])
        self.loc = loc.expand(*shape)
        self._start(shape[:-1], shape[-1:], given, validate_args)

    @property
    def variance(self) -> Tensor:
        return self.scale_tril.square().sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = self._noise(self._extended_shape(sample_shape))
        return self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def _log_determinant(self) -> Tensor:
        return OfFactor._log_determinant(self)

    def _distance(self, difference: Tensor) -> Tensor:
        return self._spread(difference.unsqueeze(-1))

    def _spread(self, factor: Tensor) -> Tensor:
        shape = broadcast_shapes(factor.shape[:-2], self.scale_tril.shape[:-2])
        own = self.scale_tril.expand(*shape, *self.scale_tril.shape[-2:])
        factor = factor.expand(*shape, *factor.shape[-2:])
        return solve_triangular(own, factor, upper=False).square().sum((-2, -1))

    def _factors(self) -> list[Tensor]:
        return [self.scale_tril]


class LowRankMultivariateNormal(_Normal):
    """The normal distribution of vectors with the covariance `W @ W.mT + diag(cov_diag)`.

    `loc` and `cov_diag` are (…, D), the factor W `cov_factor` is (…, D, K). Determinants and
    inverses are those of matrices K x K, by the lemmas of Woodbury and Sylvester.

    >>> x = metaop.distributions.LowRankMultivariateNormal(
    ...     metaop.zeros(2), metaop.tensor([[1.0], [0.0]]), metaop.ones(2)
    ... )
    >>> x.covariance_matrix
    tensor([[2., 0.],
            [0., 1.]])
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }

    def __init__(
        self,
        loc: Tensor,
        cov_factor: Tensor,
        cov_diag: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        self._require_shapes(loc, cov_factor, cov_diag)
        shape = broadcast_shapes(loc.shape, cov_factor.shape[:-1], cov_diag.shape)
        weighted = cov_factor.mT / cov_diag.unsqueeze(-2)
        rank = eye(cov_factor.shape[-1], dtype=loc.dtype, device=loc.device)
        small = cholesky(rank + weighted @ cov_factor)
        # A with A.mT @ A = weighted.mT @ inverse of the small matrix @ weighted.
        reduced = solve_triangular(small, weighted, upper=False)
        self.loc = loc.expand(*shape)
        self.cov_diag = cov_diag.expand(*shape)
        self.cov_factor = cov_factor.expand(*shape, cov_factor.shape[-1])
        self._small = small.expand(*shape[:-1], *small.shape[-2:])
        self._reduced = reduced.expand(*shape[:-1], *reduced.shape[-2:])
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @staticmethod
    def _require_shapes(loc: Tensor, cov_factor: Tensor, cov_diag: Tensor) -> None:
        fault = None
        if loc.ndim < 1:
            fault = "loc must be at least one-dimensional."
        elif cov_factor.ndim < 2:
            fault = "cov_factor must be at least two-dimensional"
        elif cov_factor.shape[-2] != loc.shape[-1]:
            fault = f"cov_factor must be a batch of matrices with shape {loc.shape[-1]} x m"
        elif cov_diag.shape[-1:] != loc.shape[-1:]:
            fault = f"cov_diag must be a batch of vectors with shape {loc.shape[-1:]}"
        if fault:
            raise ArgumentError(fault, fix="pass loc (…, D), cov_factor (…, D, K), cov_diag (…, D)")

    @property
    def variance(self) -> Tensor:
        return self.cov_factor.square().sum(-1) + self.cov_diag

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariances of the components."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        return (1 / self.cov_diag).diag_embed() - self._reduced.mT @ self._reduced

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        # With the root of the diagonal factored out, no eigenvalue is below 1.
        root = self.cov_diag.sqrt().unsqueeze(-1)
        own = self.cov_factor / root
        whole = eye(self._event_shape[0], dtype=own.dtype, device=own.device)
        return root * cholesky(whole + own @ own.mT)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        common = self._noise((*shape[:-1], self.cov_factor.shape[-1])).unsqueeze(-1)
        own = self.cov_diag.sqrt() * self._noise(shape)
        return self.loc + (self.cov_factor @ common).squeeze(-1) + own

    def _log_determinant(self) -> Tensor:
        diagonal = self._small.diagonal(0, -2, -1)
        return diagonal.log().sum(-1) + 0.5 * self.cov_diag.log().sum(-1)

    def _distance(self, difference: Tensor) -> Tensor:
        return self._spread(difference.unsqueeze(-1))

    def _spread(self, factor: Tensor) -> Tensor:
        whole = (factor.square() / self.cov_diag.unsqueeze(-1)).sum((-2, -1))
        return whole - (self._reduced @ factor).square().sum((-2, -1))

    def _factors(self) -> list[Tensor]:
        return [self.cov_factor, self.cov_diag.sqrt().diag_embed()]


def normal_divergence(p: Any, q: Any) -> Tensor:
    """The divergence of two normal distributions of vectors, in any representation."""
    if p.event_shape != q.event_shape:
        raise ArgumentError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be "
            "computed",
            fix="compare distributions of vectors of one size",
        )
    determinants = q._log_determinant() - p._log_determinant()
    total = q._distance(q.loc - p.loc)
    for factor in p._factors():
        total = total + q._spread(factor)
    return determinants + 0.5 * (total - p.event_shape[0])
