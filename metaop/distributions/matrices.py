"""Distributions of matrices."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.distribution import Distribution, ExponentialFamily, broadcast_all
from metaop.distributions.gamma_family import Beta, Chi2
from metaop.distributions.multivariate import OfFactor, given_matrix
from metaop.distributions.utils import vec_to_tril_matrix
from metaop.errors import ArgumentError
from metaop.nn.functional import pad
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import as_tensor
from metaop.tensor.functions.joining import broadcast_shapes
from metaop.tensor.functions.pointwise import digamma, lgamma
from metaop.tensor.functions.random import randn
from metaop.tensor.functions.ranges import arange
from metaop.tensor.functions.selection import where
from metaop.tensor.functions.special_functions import mvlgamma
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.linear_algebra.determinants import slogdet
from metaop.tensor.linear_algebra.solutions import cholesky_solve
from metaop.tensor.type_info import finfo


class LKJCholesky(Distribution):
    """Lower Cholesky factors, `dim` x `dim`, of random correlation matrices.

    The density of a correlation matrix is its determinant to the power `concentration` - 1; the
    concentration has the shape of the batch. Raises ArgumentError for `dim` below 2.

    >>> factor = metaop.distributions.LKJCholesky(3, 1.0).sample()
    >>> factor.shape
    metaop.Size([3, 3])
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ArgumentError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.",
                fix="pass a larger dim",
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def _rows(self) -> Tensor:
        """0 … dim - 2: for rows from 1 on, the number of elements left of the diagonal, less 1."""
        like = self.concentration
        return arange(self.dim - 1, dtype=like.dtype, device=like.device)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Samples each row as a random direction and the share of its length 1 along it."""
        with no_grad():
            rows = self._rows()
            top = (self.concentration + 0.5 * (self.dim - 2)).unsqueeze(-1)
            # A row with k elements left of the diagonal is a direction in k dimensions: k / 2 here.
            share = Beta((rows + 1) / 2, top - rows / 2, False).sample(sample_shape)
            share = share.unsqueeze(-1)
            shape = self._extended_shape(sample_shape)[:-2]
            noise = randn(
                (*shape, self.dim - 1, self.dim), dtype=share.dtype, device=share.device
            ).tril()
            rest = share.sqrt() * noise / noise.square().sum(-1, True).sqrt()
            left = pad(rest, (0, 0, 1, 0))
            diagonal = (1 - left.square().sum(-1)).clamp(min=finfo(share.dtype).tiny).sqrt()
            return left + diagonal.diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        count = self.dim - 1
        order = 2 * (self.concentration - 1).unsqueeze(-1) + (self.dim - 2) - self._rows()
        density = (order * value.diagonal(0, -2, -1)[..., 1:].log()).sum(-1)
        alpha = self.concentration + 0.5 * count
        normaliser = (
            0.5 * count * math.log(math.pi) + mvlgamma(alpha - 0.5, count) - lgamma(alpha) * count
        )
        return density - normaliser


class Wishart(OfFactor, ExponentialFamily):
    """The distribution of the sum of `df` products x xᵀ of normal vectors x of size D.

    `df`, above D - 1, need not be an integer and has the shape of the batch; one of three matrices
    (…, D, D) gives the covariance of the vectors.

    >>> metaop.distributions.Wishart(metaop.tensor(3.0), metaop.eye(2)).mean
    tensor([[3., 0.],
            [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = given_matrix(
            {
                "covariance_matrix": covariance_matrix,
                "precision_matrix": precision_matrix,
                "scale_tril": scale_tril,
            }
        )
        like = given[1]
        df = df if isinstance(df, Tensor) else as_tensor(df, like.dtype, like.device)
        batch, size = broadcast_shapes(like.shape[:-2], df.shape), like.shape[-1]
        self.df = df.expand(*batch)
        lowest = float(self.df.detach().min()) if self.df.numel() else math.inf
        if lowest <= size - 1:
            raise ArgumentError(
                f"Value of df={df} expected to be greater than ndim - 1 = {size - 1}.",
                fix="pass a larger df",
            )
        if lowest < size:
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        self._start(batch, like.shape[-2:], given, validate_args)

    @property
    def arg_constraints(self) -> Any:  # type: ignore[override]
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    def _df_of_matrices(self) -> Tensor:
        return self.df.unsqueeze(-1).unsqueeze(-1)

    @property
    def mean(self) -> Tensor:
        return self._df_of_matrices() * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self._df_of_matrices() - self._event_shape[-1] - 1
        return where(factor > 0, factor, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(0, -2, -1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._df_of_matrices() * (covariance.square() + products)

    def rsample(
        self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None
    ) -> Tensor:
        """Samples by Bartlett's decomposition; singular ones are redrawn, up to 10 times."""
        sample = self._bartlett(sample_shape)
        for attempt in range(10 if max_try_correction is None else max_try_correction):
            singular = ~self.support.check(sample.detach())
            if not bool(singular.any()):
                break
            if attempt == 0:
                warnings.warn("Singular sample detected.", stacklevel=2)
            again = self._bartlett(sample_shape)
            sample = where(singular.unsqueeze(-1).unsqueeze(-1), again, sample)
        return sample

    def _bartlett(self, sample_shape: Sequence[int]) -> Tensor:
        size, like = self._event_shape[-1], self.scale_tril
        degrees = self.df.unsqueeze(-1) - arange(size, dtype=like.dtype, device=like.device)
        roots = Chi2(degrees, False).rsample(sample_shape).sqrt().clamp(min=finfo(like.dtype).eps)
        below = (*sample_shape, *self._batch_shape, size * (size - 1) // 2)
        noise = randn(below, dtype=like.dtype, device=like.device)
        factor = like @ (roots.diag_embed() + vec_to_tril_matrix(noise, -1))
        return factor @ factor.mT

    def _log_scale(self) -> Tensor:
        size = self._event_shape[-1]
        return size * math.log(2) / 2 + self._log_determinant()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        size, like = self._event_shape[-1], self.scale_tril
        factor = like.expand(*broadcast_shapes(like.shape, value.shape))
        trace = cholesky_solve(value.expand(*factor.shape), factor).diagonal(0, -2, -1).sum(-1)
        return (
            -self.df * self._log_scale()
            - mvlgamma(self.df / 2, size)
            + (self.df - size - 1) / 2 * slogdet(value)[1]
            - trace / 2
        )

    def entropy(self) -> Tensor:
        size, half = self._event_shape[-1], self.df / 2
        rows = arange(size, dtype=half.dtype, device=half.device)
        spread = digamma(half.unsqueeze(-1) - rows / 2).sum(-1)
        return (
            (size + 1) * self._log_scale()
            + mvlgamma(half, size)
            - (self.df - size - 1) / 2 * spread
            + self.df * size / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        first, second = natural_params
        size = self._event_shape[-1]
        half = second + (size + 1) / 2
        return half * (size * math.log(2) - slogdet(-2 * first)[1]) + mvlgamma(half, size)
