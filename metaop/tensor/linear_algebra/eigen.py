"""Eigenvalues and eigenvectors of matrices that need not be symmetric: complex numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metaop.errors import GradientError
from metaop.tensor.casting import casts_on_cpu, in_float32
from metaop.tensor.core import Tensor
from metaop.tensor.functions.ranges import eye
from metaop.tensor.host.host_function import host_function
from metaop.tensor.linear_algebra.decompositions import Cotangents, host_matrix, solve
from metaop.tensor.linear_algebra.lapack import on_host


class ComplexEigen(NamedTuple):
    """Eigenvalues in no particular order, and eigenvectors of length 1 as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@casts_on_cpu(in_float32)
def eig(A: Tensor) -> ComplexEigen:
    """Eigenvalues and eigenvectors of a square matrix, or of each one of a batch (…, N, N).

    Both are complex: values (…, N) in no particular order, vectors as columns (…, N, N). Gradients
    through the vectors hold for what does not depend on their phases.

    >>> values, vectors = metaop.linalg.eig(metaop.tensor([[0.0, -1.0], [1.0, 0.0]]))
    >>> values.imag.sort().values
    tensor([-1.,  1.])
    """
    values, vectors = on_host("eig", np.linalg.eig, host_matrix("eig", A))
    arrays = [x.astype(A.dtype.whole.numpy) for x in (values, vectors)]
    is_real = not A.dtype.is_complex

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        found = _gradient(*results, *cotangents)
        return [found.real if is_real else found]

    return ComplexEigen(*host_function([A], arrays, backward))


@casts_on_cpu(in_float32)
def eigvals(A: Tensor) -> Tensor:
    """The complex eigenvalues of a square matrix, in no particular order: (…, N, N) -> (…, N).

    >>> metaop.linalg.eigvals(metaop.tensor([[2.0, 0.0], [1.0, 3.0]])).real.sort().values
    tensor([2., 3.])
    """
    return eig(A).eigenvalues


def _gradient(L: Tensor, V: Tensor, of_L: Tensor | None, of_V: Tensor | None) -> Tensor:
    """`V^-H (diag(gL) + (V^H gV - V^H V diag(Re(V^H gV))) / conj(gaps)) V^H`."""
    identity = eye(L.shape[-1], dtype=V.dtype.part, device=V.device)
    inner: Tensor | None = None
    if of_L is not None:
        inner = of_L.unsqueeze(-1) * identity
    if of_V is not None:
        turned = V.mH @ of_V
        lengths = (turned.real * identity).sum(-2, True)
        turned = turned - (V.mH @ V) * lengths
        gaps = L.unsqueeze(-2) - L.unsqueeze(-1)
        rotation = turned / (gaps.conj() + identity) * (1 - identity)
        inner = rotation if inner is None else inner + rotation
    if inner is None:
        raise GradientError("eig: a backward pass without cotangents")
    return solve(V.mH, inner @ V.mH)
