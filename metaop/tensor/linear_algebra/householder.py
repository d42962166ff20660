"""Products of reflections `I - tau * v @ v.H` (A. Householder): the form in which QR keeps Q."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from metaop.tensor.casting import casts_on_cpu, in_float32
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.functions.ranges import eye
from metaop.tensor.functions.rearranging import tril, triu
from metaop.tensor.functions.shaping import adjoint
from metaop.tensor.linear_algebra.decompositions import host_matrix, solve_triangular
from metaop.tensor.linear_algebra.lapack import on_host
from metaop.tensor.surface import public, synonym


class Reflections(NamedTuple):
    """R in the upper triangle and the reflection vectors below it, and their factors."""

    a: Tensor
    tau: Tensor


@public(method=True, out=True, precision=in_float32)
def geqrf(input: Tensor) -> Reflections:
    """The QR decomposition as LAPACK keeps it, without a gradient: R and reflections, and factors.

    A is (…, M, N); below the diagonal of the result stand the reflections, tau is (…, K).

    >>> packed, tau = metaop.geqrf(metaop.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> packed.triu().abs()
    tensor([[5.0000, 2.2000],
            [0.0000, 0.4000]])
    """
    matrices = host_matrix("geqrf", input, square=False)
    packed, factors = on_host("geqrf", np.linalg.qr, matrices, "raw")
    made = (np.swapaxes(packed, -1, -2), factors)
    arrays = [np.ascontiguousarray(x, input.dtype.numpy) for x in made]
    return Reflections(*(from_array(x, input.dtype).to(device=input.device) for x in arrays))


def _reflected(vectors: Tensor, tau: Tensor, other: Tensor, transpose: bool) -> Tensor:
    """Q @ other (or Q.H @ other) for the product Q of all reflections.

    `Q = I - V (I + D S)^-1 D V.H` with the vectors as columns of V, `D = diag(tau)` and S the
    part of `V.H @ V` above the diagonal (R. Schreiber and C. Van Loan, "A storage-efficient WY
    representation for products of Householder transformations", 1989).
    """
    count = tau.shape[-1]
    ones = eye(vectors.shape[-2], count, dtype=vectors.dtype, device=vectors.device)
    V = tril(vectors[..., :count], -1) + ones
    D = tau.unsqueeze(-1)
    inner = D * triu(adjoint(V) @ V, 1)
    if not transpose:
        weights = solve_triangular(inner, D * (adjoint(V) @ other), upper=True, unitriangular=True)
    else:
        # Q.H has D.H (I + S.H D.H)^-1 in the middle.
        weights = D.conj() * solve_triangular(
            adjoint(inner), adjoint(V) @ other, upper=False, unitriangular=True
        )
    return other - V @ weights


@casts_on_cpu(in_float32)
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of the reflections that `geqrf` gives: Q of the QR.

    A is (…, M, N) with a reflection in each column below the diagonal, tau (…, K) their factors.

    >>> A, tau = metaop.geqrf(metaop.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> metaop.linalg.householder_product(A, tau).abs()
    tensor([[0.6000, 0.8000],
            [0.8000, 0.6000]])
    """
    identity = eye(*A.shape[-2:], dtype=A.dtype, device=A.device)
    return _reflected(A, tau, identity, False)


orgqr = synonym("orgqr", householder_product, method=True, out=True)


@public(method=True, out=True, precision=in_float32)
def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """`Q @ other`, or `other @ Q`, with Q (or its transpose) from the reflections of `geqrf`.

    `input` is (…, M, K), and Q (M, M) is never made.

    >>> x = metaop.tensor([[3.0, 1.0], [4.0, 2.0]])
    >>> metaop.ormqr(*metaop.geqrf(x), x, transpose=True).abs().round(decimals=4)
    tensor([[5.0000, 2.2000],
            [0.0000, 0.4000]])
    """
    if left:
        return _reflected(input, tau, other, transpose)
    return adjoint(_reflected(input, tau, adjoint(other), not transpose))
