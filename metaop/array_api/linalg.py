"""The extension for linear algebra."""

from __future__ import annotations

from typing import Any, NamedTuple

import metaop
from metaop.array_api.shaping import matrix_transpose as matrix_transpose
from metaop.array_api.types import promoted
from metaop.linalg import det as det
from metaop.linalg import eigvalsh as eigvalsh
from metaop.linalg import inv as inv
from metaop.linalg import matrix_power as matrix_power
from metaop.linalg import solve as solve
from metaop.linalg import svdvals as svdvals
from metaop.tensor.core import Tensor


class EighResult(NamedTuple):
    """What `eigh` gives."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """What `qr` gives."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """What `slogdet` gives."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """What `svd` gives."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product."""
    return metaop.matmul(*promoted(x1, x2))


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """The sum of products over the last axes of one and the first of the other, or over `axes`."""
    first, second = promoted(x1, x2)
    return metaop.tensordot(first, second, dims=axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The inner products of vectors along an axis, of which the first is conjugated."""
    first, second = promoted(x1, x2)
    if first.shape[axis] != second.shape[axis]:
        raise ValueError(
            f"vecdot: vectors of {first.shape[axis]} and {second.shape[axis]} elements"
        )
    left, right = metaop.broadcast_tensors(first, second)
    return metaop.sum(left.conj() * right, axis, dtype=first.dtype)  # type: ignore[operator]


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of a positive definite matrix."""
    return metaop.linalg.cholesky(x, upper=upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross products of vectors of three elements."""
    return metaop.linalg.cross(*promoted(x1, x2), dim=axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices."""
    return metaop.diagonal(x, offset, -2, -1)


def eigh(x: Tensor, /) -> EighResult:
    """The eigenvalues and eigenvectors of symmetric matrices."""
    return EighResult(*metaop.linalg.eigh(x))


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """A norm of matrices: "fro", "nuc", 1, 2, inf, or the negative ones."""
    return metaop.linalg.matrix_norm(x, ord, keepdim=keepdims)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The number of singular values above `rtol` times the largest."""
    return metaop.linalg.matrix_rank(x, rtol=rtol)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products of all pairs of elements of two vectors."""
    return metaop.outer(*promoted(x1, x2))


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverse."""
    return metaop.linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """An orthogonal and a triangular factor."""
    return QRResult(*metaop.linalg.qr(x, mode))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign and the logarithm of the determinant."""
    return SlogdetResult(*metaop.linalg.slogdet(x))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular value decomposition."""
    return SVDResult(*metaop.linalg.svd(x, full_matrices))


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of the diagonals of matrices."""
    return metaop.sum(diagonal(x, offset=offset), -1, dtype=dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """A norm of vectors: 2, 1, inf or another power."""
    return metaop.linalg.vector_norm(x, ord, axis, keepdims)
