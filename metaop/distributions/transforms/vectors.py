"""Transforms of vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.transforms.elementwise import _Fixed, clipped_sigmoid
from metaop.distributions.transforms.transform import Transform, require_dimensions
from metaop.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix
from metaop.errors import ArgumentError
from metaop.nn.functional import logsigmoid, pad, softplus
from metaop.tensor.core import Tensor
from metaop.tensor.functions.ranges import arange, eye
from metaop.tensor.linear_algebra.decompositions import cholesky
from metaop.tensor.size import Size
from metaop.tensor.type_info import finfo


class ReshapeTransform(Transform):
    """Another shape for the last dimensions: `in_shape` becomes `out_shape`.

    Raises ArgumentError if they have different numbers of elements.

    >>> to_rows = metaop.distributions.ReshapeTransform((6,), (2, 3))
    >>> to_rows(metaop.zeros(4, 6)).shape
    metaop.Size([4, 2, 3])
    """

    bijective = True

    def __init__(
        self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ArgumentError(
                f"in_shape, out_shape have different numbers of elements: {tuple(in_shape)}, "
                f"{tuple(out_shape)}",
                fix="give shapes with equal numbers of elements",
            )

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Size) -> Size:
        return _with_another_end(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Size) -> Size:
        return _with_another_end(shape, self.out_shape, self.in_shape)


def _with_another_end(shape: Size, old: Size, new: Size) -> Size:
    require_dimensions(shape, len(old))
    cut = len(shape) - len(old)
    if shape[cut:] != old:
        raise ArgumentError(
            f"Shape mismatch: expected {old} but got {Size(shape[cut:])}",
            fix="give values whose last dimensions have the shape of the transform",
        )
    return Size((*shape[:cut], *new))


class _Vectors(_Fixed):
    """A transform of vectors; shapes have at least one dimension."""

    domain = constraints.real_vector

    # By how many elements a result is longer than its argument.
    _longer = 0

    def forward_shape(self, shape: Size) -> Size:
        require_dimensions(shape, 1)
        return Size((*shape[:-1], shape[-1] + self._longer))

    def inverse_shape(self, shape: Size) -> Size:
        require_dimensions(shape, 1)
        return Size((*shape[:-1], shape[-1] - self._longer))


class SoftmaxTransform(_Vectors):
    """The softmax along the last dimension, from vectors to probabilities.

    It is not bijective: its inverse is the logarithm.

    >>> metaop.distributions.SoftmaxTransform()(metaop.zeros(2, 4)[0])
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


def _shifts(x: Tensor, count: int) -> Tensor:
    """The logarithms of count, count - 1 … 1, with which a vector of zeros gives equal parts."""
    return arange(count, 0, -1, dtype=x.dtype, device=x.device).log()


class StickBreakingTransform(_Vectors):
    """Vectors (…, K - 1) to probabilities (…, K): each element breaks its share off the rest.

    >>> metaop.distributions.StickBreakingTransform()(metaop.zeros(3))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    codomain = constraints.simplex
    bijective = True
    _longer = 1

    def _call(self, x: Tensor) -> Tensor:
        share = clipped_sigmoid(x - _shifts(x, x.shape[-1]))
        left = (1 - share).cumprod(-1)
        return pad(share, (0, 1), value=1.0) * pad(left, (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        first = y[..., :-1]
        # Rounding may leave nothing, or less, where the last probability is about 0.
        left = (1 - first.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return first.log() - left.log() + _shifts(y, first.shape[-1])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - _shifts(x, x.shape[-1])
        # 1 - sigmoid(x) is exp(-x) sigmoid(x).
        return (logsigmoid(x) - x + y[..., :-1].log()).sum(-1)


class CorrCholeskyTransform(_Vectors):
    """Vectors (…, D (D - 1) / 2) to Cholesky factors (…, D, D) of correlation matrices.

    Every row has length 1: each element takes its share, with a sign, of the rest. The Jacobian is
    that of the elements below the diagonal.

    >>> metaop.distributions.CorrCholeskyTransform()(metaop.tensor([0.0]))
    tensor([[1., 0.],
            [0., 1.]])
    """

    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        small = finfo(x.dtype).eps
        share = vec_to_tril_matrix(x.tanh().clamp(-1 + small, 1 - small), -1)
        left = (1 - share.square()).sqrt().cumprod(-1)
        share = share + eye(share.shape[-1], dtype=x.dtype, device=x.device)
        return share * pad(left[..., :-1], (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = pad((1 - y.square().cumsum(-1))[..., :-1], (1, 0), value=1.0)
        share = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(left, -1).sqrt()
        return (share.log1p() - (-share).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = tril_matrix_to_vec(1 - y.square().cumsum(-1), -2)
        of_tanh = -2 * (x + softplus(-2 * x) - math.log(2)).sum(-1)
        return 0.5 * left.log().sum(-1) + of_tanh

    def forward_shape(self, shape: Size) -> Size:
        require_dimensions(shape, 1)
        count = shape[-1]
        extent = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if extent * (extent - 1) // 2 != count:
            raise ArgumentError(
                f"Input is not a flattened lower-diagonal number: {count}",
                fix="give vectors of D * (D - 1) / 2 elements",
            )
        return Size((*shape[:-1], extent, extent))

    def inverse_shape(self, shape: Size) -> Size:
        require_dimensions(shape, 2)
        if shape[-2] != shape[-1]:
            raise ArgumentError(f"Input is not square: {tuple(shape)}", fix="give square matrices")
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class LowerCholeskyTransform(_Fixed):
    """Matrices (…, D, D) to lower-triangular ones whose diagonal is the exponential of theirs.

    >>> metaop.distributions.LowerCholeskyTransform()(metaop.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed()


class PositiveDefiniteTransform(_Fixed):
    """Matrices (…, D, D) to positive-definite ones, whose factors `LowerCholeskyTransform` makes.

    >>> metaop.distributions.PositiveDefiniteTransform()(metaop.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(cholesky(y))
