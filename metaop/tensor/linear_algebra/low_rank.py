"""Singular value decompositions of a few values, from random samples of the range.

N. Halko, P. Martinsson and J. Tropp, "Finding structure with randomness: probabilistic algorithms
for constructing approximate matrix decompositions" (2009), algorithms 4.4 and 5.1.
"""

from __future__ import annotations

from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.random import randn
from metaop.tensor.functions.shaping import adjoint
from metaop.tensor.linear_algebra.decompositions import SingularColumns, qr, svd
from metaop.tensor.surface import public


@public()
def svd_lowrank(A: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None) -> SingularColumns:
    """The `q` largest singular values of `A - M` with their vectors, approximately.

    A is (…, M, N), the values (…, q). `niter` is the number of power iterations; more make slowly
    falling values more accurate. From Halko et al., "Finding structure with randomness" (2011).

    >>> U, S, V = metaop.svd_lowrank(metaop.diag(metaop.tensor([3.0, 2.0, 0.0])), q=2)
    >>> S.round(decimals=3)
    tensor([3., 2.])
    """
    if M is not None:
        A = A - M
    if A.shape[-2] < A.shape[-1]:
        U, S, V = svd_lowrank(adjoint(A), q, niter)
        return SingularColumns(V, S, U)
    Q = qr(A @ randn(A.shape[-1], q, dtype=A.dtype, device=A.device)).Q
    for _ in range(niter):
        Q = qr(adjoint(A) @ Q).Q
        Q = qr(A @ Q).Q
    U, S, Vh = svd(adjoint(Q) @ A, full_matrices=False)
    return SingularColumns(Q @ U, S, adjoint(Vh))


@public()
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> SingularColumns:
    """The `q` (6 or less if not given) main directions of the rows of A: the columns of V.

    A is (…, M, N), V (…, N, q). With `center`, the mean of the rows is taken away first.

    >>> U, S, V = metaop.pca_lowrank(metaop.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]), q=1)
    >>> (V[1] / V[0]).round(decimals=3)
    tensor([2.])
    """
    smallest = min(A.shape[-2:])
    q = min(6, smallest) if q is None else q
    if not 0 <= q <= smallest:
        raise ArgumentError(
            f"pca_lowrank: q(={q}) must be non-negative integer and not greater than "
            f"min(m, n)={smallest}"
        )
    return svd_lowrank(A - A.mean(-2, True) if center else A, q, niter)
