"""Eigenvalues and eigenvectors of matrices that need not be symmetric: complex numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metaop.errors import GradientError
from metaop.tensor.casting import casts_on_cpu, in_float32
from metaop.tensor.complex_numbers.complex_tensor import (
    ComplexTensor,
    as_complex,
    complex,
    from_complex_array,
    view_as_complex,
)
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat
from metaop.tensor.functions.ranges import eye
from metaop.tensor.host.host_function import host_function
from metaop.tensor.linear_algebra.decompositions import Cotangents, host_matrix, on_host, solve


class ComplexEigen(NamedTuple):
    """Eigenvalues in no particular order, and eigenvectors of length 1 as columns."""

    eigenvalues: ComplexTensor
    eigenvectors: ComplexTensor


@casts_on_cpu(in_float32)
def eig(A: Tensor) -> ComplexEigen:
    """Eigenvalues and eigenvectors of a real square matrix, or of each one of a batch (…, N, N).

    Both are complex: values (…, N) in no particular order, vectors as columns (…, N, N). Gradients
    through the vectors hold for what does not depend on their phases.

    >>> values, vectors = metaop.linalg.eig(metaop.tensor([[0.0, -1.0], [1.0, 0.0]]))
    >>> values.imag.sort().values
    tensor([-1.,  1.])
    """
    values, vectors = on_host("eig", np.linalg.eig, host_matrix("eig", A))
    kind = np.complex128 if A.dtype.itemsize == 8 else np.complex64
    pairs = [from_complex_array(x.astype(kind))._pair._array() for x in (values, vectors)]

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        L, V = (view_as_complex(x) for x in results)
        of_L, of_V = (None if g is None else view_as_complex(g) for g in cotangents)
        return [_gradient(L, V, of_L, of_V)]

    return ComplexEigen(*map(view_as_complex, host_function([A], pairs, backward)))


@casts_on_cpu(in_float32)
def eigvals(A: Tensor) -> ComplexTensor:
    """The complex eigenvalues of a real square matrix, in no particular order: (…, N, N) -> (…, N).

    >>> metaop.linalg.eigvals(metaop.tensor([[2.0, 0.0], [1.0, 3.0]])).real.sort().values
    tensor([2., 3.])
    """
    return eig(A).eigenvalues


def _gradient(
    L: ComplexTensor, V: ComplexTensor, of_L: ComplexTensor | None, of_V: ComplexTensor | None
) -> Tensor:
    """`V^-H (diag(gL) + (V^H gV - V^H V diag(Re(V^H gV))) / conj(gaps)) V^H`, its real part."""
    adjoint = V.conj().transpose(-2, -1)
    identity = eye(L.shape[-1], dtype=V.real.dtype, device=V.device)
    inner: Tensor | None = None
    if of_L is not None:
        inner = of_L.unsqueeze(-1) * identity
    if of_V is not None:
        turned = adjoint @ of_V
        lengths = (turned.real * identity).sum(-2, True)
        turned = turned - (adjoint @ V) * lengths
        gaps = L.unsqueeze(-2) - L.unsqueeze(-1)
        rotation = turned / (gaps.conj() + identity) * (1 - identity)
        inner = rotation if inner is None else inner + rotation
    if inner is None:
        raise GradientError("eig: a backward pass without cotangents")
    return _solved(adjoint, inner @ adjoint).real


def _solved(A: Tensor, B: Tensor) -> ComplexTensor:
    """X with `A @ X = B`, as a real system of twice the size."""
    A, B = as_complex(A), as_complex(B)
    top, bottom = cat([A.real, -A.imag], -1), cat([A.imag, A.real], -1)
    found = solve(cat([top, bottom], -2), cat([B.real, B.imag], -2))
    size = A.shape[-1]
    return complex(found[..., :size, :], found[..., size:, :])
