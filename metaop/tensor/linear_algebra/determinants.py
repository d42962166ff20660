"""Determinants, their signs and logarithms; derivatives hold for singular matrices too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metaop.errors import UnsupportedError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.ranges import eye
from metaop.tensor.functions.selection import where
from metaop.tensor.functions.shaping import adjoint
from metaop.tensor.host.host_function import host_function
from metaop.tensor.linear_algebra.decompositions import (
    Cotangents,
    host_matrix,
    inv,
)
from metaop.tensor.linear_algebra.lapack import LinAlgError, on_host
from metaop.tensor.surface import public


class SignAndLogarithm(NamedTuple):
    """The sign of a determinant and the logarithm of its magnitude."""

    sign: Tensor
    logabsdet: Tensor


@public(method=True)
def det(A: Tensor) -> Tensor:
    """The determinant of a square matrix, or of each one of a batch: (…, N, N) -> (…).

    Its gradient is the transposed adjugate, which singular matrices have too.

    >>> metaop.linalg.det(metaop.tensor([[2.0, 1.0], [1.0, 3.0]]))
    tensor(5.)
    """

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        cotangent = cotangents[0]
        assert cotangent is not None
        return [_as_matrices(cotangent) * _cofactors(inputs[0], results[0])]

    found = np.asarray(on_host("det", np.linalg.det, host_matrix("det", A)), A.dtype.numpy)
    return host_function([A], [found], backward)[0]


def _as_matrices(numbers: Tensor) -> Tensor:
    return numbers.unsqueeze(-1).unsqueeze(-1)


def _cofactors(A: Tensor, determinant: Tensor) -> Tensor:
    """The conjugate derivatives of the determinant by the elements: by the inverse where exact."""
    try:
        inverse = inv(A)
    except LinAlgError:
        return _singular_cofactors(A)
    if _is_near_singular(A, inverse):
        return _singular_cofactors(A)
    return _as_matrices(determinant.conj()) * adjoint(inverse)


def _is_near_singular(A: Tensor, inverse: Tensor) -> bool:
    """Whether the condition number of any matrix leaves no digits to its inverse."""
    sizes = (np.abs(x.detach()._array()).sum(-2).max(-1, initial=0) for x in (A, inverse))
    condition = next(sizes) * next(sizes)
    return bool((~(condition < 1 / np.finfo(A.dtype.numpy).eps)).any())


def _singular_cofactors(A: Tensor) -> Tensor:
    """The conjugate cofactors of any square matrices, from their singular value decomposition.

    With `A = U diag(s) Vh` they are `conj(det(U Vh)) U diag(p) Vh`, where p leaves one singular
    value out of the product of all. So nothing is divided by 0.
    """
    U, values, Vh = on_host("det", np.linalg.svd, host_matrix("det", A))
    phase = np.conj(np.linalg.det(U) * np.linalg.det(Vh))[..., None, None]
    phase = phase / np.abs(phase)
    signed = U * phase
    products = _products_without_two(values)
    others = np.diagonal(products, axis1=-2, axis2=-1)

    def second(cotangent: Tensor) -> Tensor:
        """The derivatives of the sum of the cofactors times `cotangent`."""
        given = cotangent.detach()._array().conj()
        turned = phase * (np.swapaxes(U, -2, -1) @ given @ np.swapaxes(Vh, -2, -1))
        diagonal = np.diagonal(turned, axis1=-2, axis2=-1)
        inner = -products * np.swapaxes(turned, -2, -1)
        apart = products * (1 - np.eye(values.shape[-1], dtype=values.dtype))
        np.einsum("...ii->...i", inner)[...] = (apart @ diagonal[..., None])[..., 0]
        return host_function([A, cotangent], [U @ inner @ Vh], _no_third)[0]

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        assert cotangents[0] is not None
        return [second(cotangents[0])]

    return host_function([A], [(signed * others[..., None, :]) @ Vh], backward)[0]


def _products_without_two(values: np.ndarray) -> np.ndarray:
    """[…, i, j]: the product of all values but the i-th and the j-th, without a division."""
    count = values.shape[-1]
    ones = np.ones((*values.shape[:-1], 1), values.dtype)
    before = np.concatenate([ones, np.cumprod(values, -1)[..., : count - 1]], -1)
    after = np.concatenate([ones, np.cumprod(values[..., ::-1], -1)[..., : count - 1]], -1)
    after = after[..., ::-1]
    # between[i, j] multiplies the values after i and before j.
    later = np.triu(np.ones((count, count), bool), 1)
    factors = np.where(later, values[..., None, :], 1)
    shifted = np.concatenate([np.ones_like(factors[..., :1]), factors[..., : count - 1]], -1)
    between = np.cumprod(shifted, -1)
    upper = before[..., :, None] * between * after[..., None, :]
    upper = np.where(later, upper, 0)
    result = upper + np.swapaxes(upper, -2, -1)
    np.einsum("...ii->...i", result)[...] = before * after
    return result


def _no_third(
    inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
) -> Cotangents:
    raise UnsupportedError(
        "det: a determinant of singular matrices has no third derivative",
        fix="differentiate it twice at most, or move the matrices away from singular ones",
    )


@public(method=True)
def slogdet(A: Tensor) -> SignAndLogarithm:
    """Sign and logarithm of the magnitude of the determinant: (…, N, N) -> (…), (…).

    Determinants of large matrices leave the range of floats; their logarithms do not. At a singular
    matrix the logarithm is -inf and its gradient NaN.

    >>> sign, logarithm = metaop.linalg.slogdet(100 * metaop.eye(100))
    >>> sign, logarithm
    (tensor(1.), tensor(460.5170))
    """

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        factor = cotangents[1]
        if cotangents[0] is not None and A.dtype.is_complex:
            angle = (cotangents[0] * results[0].conj()).imag * 1j
            factor = angle if factor is None else factor + angle
        if factor is None:
            return [None]
        singular = _as_matrices(results[0].detach() == 0)
        matrices = inputs[0]
        identity = eye(A.shape[-1], dtype=A.dtype, device=A.device)
        inverse = where(singular, float("nan"), inv(where(singular, identity, matrices)))
        return [_as_matrices(factor) * adjoint(inverse)]

    sign, logarithm = on_host("slogdet", np.linalg.slogdet, host_matrix("slogdet", A))
    found = [np.asarray(sign, A.dtype.numpy), np.asarray(logarithm, A.dtype.part.numpy)]
    return SignAndLogarithm(*host_function([A], found, backward))


@public(method=True)
def logdet(A: Tensor) -> Tensor:
    """The logarithm of the determinant, NaN where that is negative and real: (…, N, N) -> (…).

    >>> metaop.logdet(2 * metaop.eye(2)).exp().round()
    tensor(4.)
    """
    sign, logarithm = slogdet(A)
    if A.dtype.is_complex:
        return sign.log() + logarithm
    return where(sign < 0, float("nan"), logarithm)
