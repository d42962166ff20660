"""Inverses, solutions and decompositions of matrices: LAPACK on the host, gradients in tensors.

The gradient formulas follow M. Giles, "An extended collection of matrix derivative results for
forward and reverse mode algorithmic differentiation" (2008), and J. Townsend, "Differentiating the
singular value decomposition" (2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from metaop.elementwise.meta_op import broadcast_shapes
from metaop.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from metaop.tensor.casting import casts_on_cpu, in_float32
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import zeros_like
from metaop.tensor.functions.joining import cat
from metaop.tensor.functions.ranges import eye
from metaop.tensor.functions.rearranging import diag_embed, tril, triu
from metaop.tensor.functions.shaping import adjoint
from metaop.tensor.host.host_function import host_function
from metaop.tensor.linear_algebra.lapack import blas, on_host
from metaop.tensor.surface import public

Cotangents = Sequence["Tensor | None"]


class Eigen(NamedTuple):
    """Eigenvalues in ascending order and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class Singular(NamedTuple):
    """`U @ diag(S) @ Vh`, singular values in descending order."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class SingularColumns(NamedTuple):
    """`U @ diag(S) @ V.T`, singular values in descending order."""

    U: Tensor
    S: Tensor
    V: Tensor


class Orthogonal(NamedTuple):
    """`Q @ R` with orthonormal columns in Q and an upper triangular R."""

    Q: Tensor
    R: Tensor


def host_matrix(name: str, A: Tensor, square: bool = True) -> np.ndarray:
    """The values of A for the host; an error unless they are (square) matrices of floats.

    Floats may be complex.
    """
    if not A.dtype.is_differentiable or A.dtype.itemsize == 2:
        raise DTypeError(
            f"linalg.{name}: Low precision and integer dtypes not supported. Got {A.dtype.name}",
            fix="convert with .float() or .double()",
        )
    if A.ndim < 2 or (square and A.shape[-1] != A.shape[-2]):
        kind = "batches of square matrices" if square else "matrices"
        raise ShapeError(f"linalg.{name}: A must be {kind}, but it is {list(A.shape)}")
    return A.detach()._array()


@casts_on_cpu(in_float32)
def inv(A: Tensor) -> Tensor:
    """The inverse of a square matrix, or of each one of a batch (…, N, N).

    Raises LinAlgError for a singular matrix. To solve equations, `solve` is faster and more exact.

    >>> metaop.linalg.inv(metaop.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        inverse = adjoint(results[0])
        return [-(inverse @ cotangents[0] @ inverse)]

    return host_function([A], [on_host("inv", np.linalg.inv, host_matrix("inv", A))], backward)[0]


@casts_on_cpu(in_float32)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with `A @ X = B` (or `X @ A = B`); B is a vector, a matrix, or a batch of either.

    A is (…, N, N) and B (…, N, K) or (…, N). Raises LinAlgError for a singular matrix.

    >>> A = metaop.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> metaop.linalg.solve(A, metaop.tensor([3.0, 4.0]))
    tensor([1., 1.])
    """
    if not left:
        return adjoint(solve(adjoint(A), adjoint(B)))
    if is_vector_batch(A, B):
        return solve(A, B.unsqueeze(-1)).squeeze(-1)
    of_A, of_B = A.shape, B.shape

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        cotangent = cotangents[0]
        assert cotangent is not None
        of_right = solve(adjoint(inputs[0]), cotangent)
        of_matrix = -(of_right @ adjoint(results[0]))
        return [_fitted(of_matrix, of_A), _fitted(of_right, of_B)]

    right = host_matrix("solve", B, square=False)
    found = on_host("solve", np.linalg.solve, host_matrix("solve", A), right)
    return host_function([A, B], [found], backward)[0]


def is_vector_batch(A: Tensor, B: Tensor) -> bool:
    """Whether B is a vector, or one for each matrix of A, and not matrices."""
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape)


def _fitted(gradient: Tensor, shape: Sequence[int]) -> Tensor:
    """The gradient summed over the batch dimensions that were broadcast."""
    extra = gradient.ndim - len(shape)
    dims = [k for k in range(gradient.ndim) if k < extra or shape[k - extra] == 1]
    dims = [k for k in dims if k < extra or gradient.shape[k] != 1]
    return gradient.sum(dims, True).reshape(shape) if dims else gradient


@casts_on_cpu(in_float32)
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """`solve` that reads one triangle of A only: A is (…, N, N), B (…, N, K).

    With `unitriangular`, the diagonal is not read either and counts as ones.

    >>> A = metaop.tensor([[1.0, 0.0], [2.0, 1.0]])
    >>> metaop.linalg.solve_triangular(A, metaop.tensor([[1.0], [4.0]]), upper=False)
    tensor([[1.],
            [2.]])
    """
    solved = partial(solve_triangular, unitriangular=unitriangular)
    if not left:
        return adjoint(solved(adjoint(A), adjoint(B), upper=not upper))
    if is_vector_batch(A, B):
        return solved(A, B.unsqueeze(-1), upper=upper).squeeze(-1)
    of_A, of_B = A.shape, B.shape
    off = int(unitriangular)

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        cotangent = cotangents[0]
        assert cotangent is not None
        of_right = solved(adjoint(inputs[0]), cotangent, upper=not upper)
        of_matrix = _fitted(-(of_right @ adjoint(results[0])), of_A)
        of_triangle = triu(of_matrix, off) if upper else tril(of_matrix, -off)
        return [of_triangle, _fitted(of_right, of_B)]

    matrix = host_matrix("solve_triangular", A)
    right = host_matrix("solve_triangular", B, square=False)
    found = on_host("solve_triangular", _substituted, matrix, right, upper, unitriangular)
    return host_function([A, B], [found], backward)[0]


def _substituted(
    matrix: np.ndarray, right: np.ndarray, upper: bool, unitriangular: bool
) -> np.ndarray:
    """The solutions of a batch of triangular systems; infinite ones where the diagonal is 0."""
    batch = broadcast_shapes("solve_triangular", matrix.shape[:-2], right.shape[:-2])
    found = np.array(
        np.broadcast_to(right, (*batch, *right.shape[-2:])), np.result_type(matrix, right)
    )
    if not found.size:
        return found
    matrix = np.broadcast_to(matrix, (*batch, *matrix.shape[-2:]))
    solve = blas("trsm", found)
    for place in np.ndindex(*batch):
        # BLAS sees the transposes of matrices whose rows are contiguous.
        flags = {"side": 1, "lower": int(upper), "diag": int(unitriangular)}
        found[place] = solve(1, matrix[place].T, found[place].T, **flags).T
    return found


@casts_on_cpu(in_float32)
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangular L with `L @ L.T = A` (or its transpose): (…, N, N) -> (…, N, N).

    Transposes of complex matrices are conjugated. Only one triangle of A is read. Raises
    LinAlgError unless A is positive definite.

    >>> metaop.linalg.cholesky(metaop.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        lower = results[0]
        inner = tril(adjoint(lower) @ cotangents[0])
        inner = inner - diag_embed(inner.diagonal(0, -2, -1)) / 2
        inner = solve_triangular(lower, inner, upper=False, left=False)
        half = solve_triangular(adjoint(lower), inner, upper=True)
        return [(half + adjoint(half)) / 2]

    found = on_host("cholesky", np.linalg.cholesky, host_matrix("cholesky", A))
    lower = host_function([A], [found], backward)[0]
    return adjoint(lower) if upper else lower


@casts_on_cpu(in_float32)
def eigh(A: Tensor, UPLO: str = "L") -> Eigen:
    """Eigenvalues and eigenvectors of a symmetric matrix, of which one triangle is read.

    The shape (…, N, N) gives values (…, N), which ascend, and vectors (…, N, N) as columns, whose
    signs are any. `UPLO` names the triangle, "L" or "U".

    >>> values, vectors = metaop.linalg.eigh(metaop.tensor([[2.0, 1.0], [1.0, 2.0]]))
    >>> values.round()
    tensor([1., 3.])
    """

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        values, vectors = results
        of_values, of_vectors = cotangents
        inner = None if of_values is None else diag_embed(of_values).to(vectors.dtype)
        if of_vectors is not None:
            gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
            turned = adjoint(vectors) @ of_vectors
            rotation = (turned - adjoint(turned)) / 2 * _reciprocal_off_diagonal(gaps)
            inner = rotation if inner is None else inner + rotation
        return [None if inner is None else vectors @ inner @ adjoint(vectors)]

    found = on_host("eigh", np.linalg.eigh, host_matrix("eigh", A), UPLO)
    return Eigen(*host_function([A], found, backward))


def _reciprocal_off_diagonal(gaps: Tensor) -> Tensor:
    """1 / gap between different values, 0 on the diagonal."""
    diagonal = eye(gaps.shape[-1], dtype=gaps.dtype, device=gaps.device)
    return (1 - diagonal) / (gaps + diagonal)


@casts_on_cpu(in_float32)
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of a symmetric matrix in ascending order: (…, N, N) -> (…, N).

    >>> metaop.linalg.eigvalsh(metaop.tensor([[2.0, 1.0], [1.0, 2.0]])).round()
    tensor([1., 3.])
    """
    return eigh(A, UPLO).eigenvalues


@casts_on_cpu(in_float32)
def svd(A: Tensor, full_matrices: bool = True) -> Singular:
    """The singular value decomposition; `full_matrices` adds vectors that make the bases square.

    A (…, M, N) is `U @ diag(S) @ Vh`, with singular values S (…, min(M, N)) that descend. The added
    vectors are any that are orthogonal to the others: they get no gradient.

    >>> U, S, Vh = metaop.linalg.svd(metaop.tensor([[0.0, 2.0], [3.0, 0.0]]))
    >>> S
    tensor([3., 2.])
    """

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        if not A.numel():
            return [zeros_like(A)]
        return [_svd_gradient(*results, *cotangents)]

    arrays = on_host(
        "svd", lambda a: np.linalg.svd(a, full_matrices), host_matrix("svd", A, square=False)
    )
    return Singular(*host_function([A], arrays, backward))


def _svd_gradient(
    U: Tensor,
    S: Tensor,
    Vh: Tensor,
    of_U: Tensor | None,
    of_S: Tensor | None,
    of_Vh: Tensor | None,
) -> Tensor:
    count = S.shape[-1]
    U, Vh = U[..., :, :count], Vh[..., :count, :]
    of_U = None if of_U is None else of_U[..., :, :count]
    of_Vh = None if of_Vh is None else of_Vh[..., :count, :]
    squares = S * S
    gaps = _reciprocal_off_diagonal(squares.unsqueeze(-2) - squares.unsqueeze(-1))
    inner = diag_embed(zeros_like(S) if of_S is None else of_S).to(U.dtype)
    outside = None
    if of_U is not None:
        turned = adjoint(U) @ of_U
        inner = inner + (turned - adjoint(turned)) * gaps * S.unsqueeze(-2)
        if turned.is_complex():
            # The phases of vectors: of both U and V, only what they have in common is fixed.
            inner = inner + diag_embed(turned.diagonal(0, -2, -1).imag / S) * 1j
        if U.shape[-2] > count:
            outside = ((of_U - U @ turned) / S.unsqueeze(-2)) @ Vh
    if of_Vh is not None:
        turned = Vh @ adjoint(of_Vh)
        inner = inner + S.unsqueeze(-1) * (turned - adjoint(turned)) * gaps
        if Vh.shape[-1] > count:
            rest = U @ ((of_Vh - adjoint(turned) @ Vh) / S.unsqueeze(-1))
            outside = rest if outside is None else outside + rest
    gradient = U @ inner @ Vh
    return gradient if outside is None else gradient + outside


@casts_on_cpu(in_float32)
def svdvals(A: Tensor) -> Tensor:
    """The singular values in descending order: (…, M, N) -> (…, min(M, N)).

    >>> metaop.linalg.svdvals(metaop.tensor([[0.0, 2.0], [3.0, 0.0]]))
    tensor([3., 2.])
    """
    return svd(A, False).S


@casts_on_cpu(in_float32)
def qr(A: Tensor, mode: str = "reduced") -> Orthogonal:
    """The QR decomposition; `mode` is "reduced", "complete" or "r" (an empty Q).

    A (…, M, N) is `Q @ R`, with orthonormal columns of Q and an upper triangular R. With "r", and
    with "complete" for more rows than columns, there is no gradient.

    >>> Q, R = metaop.linalg.qr(metaop.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> R.abs()
    tensor([[5.0000, 2.2000],
            [0.0000, 0.4000]])
    """
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(
            f"linalg.qr: unknown mode {mode!r}", fix="use 'reduced', 'complete' or 'r'"
        )
    values = host_matrix("qr", A, square=False)
    rows, columns = A.shape[-2:]
    if mode == "complete" and rows <= columns:
        mode = "reduced"
    if rows < columns and mode == "reduced":
        left, right = A[..., :, :rows], A[..., :, rows:]
        Q, R = qr(left)
        return Orthogonal(Q, cat([R, adjoint(Q) @ right], -1))

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        if mode != "reduced":
            raise UnsupportedError(
                f"linalg.qr: mode={mode!r} has no gradient for a shape of {list(A.shape)}",
                fix="use mode='reduced'",
            )
        Q, R = results
        of_Q, of_R = (zeros_like(x) if g is None else g for x, g in zip(results, cotangents))
        inner = R @ adjoint(of_R) - adjoint(of_Q) @ Q
        below = tril(inner, -1)
        inner = below + adjoint(below) + diag_embed(inner.diagonal(0, -2, -1).real)
        return [adjoint(solve_triangular(R, adjoint(of_Q + Q @ inner), upper=True))]

    found = on_host("qr", np.linalg.qr, values, mode)
    arrays = (np.empty(0, values.dtype), found) if mode == "r" else found
    return Orthogonal(*host_function([A], arrays, backward))


@public(method=True, out=True, precision=in_float32)
def inverse(input: Tensor) -> Tensor:
    """The inverse of a square matrix: `linalg.inv` under its older name.

    Raises LinAlgError for a singular matrix.

    >>> metaop.inverse(metaop.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    return inv(input)


@public("svd", method=True, out=True)
def legacy_svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> SingularColumns:
    """`U @ diag(S) @ V.T`, with V by columns; zeros for U and V unless `compute_uv`.

    The input is (…, M, N), the singular values S (…, min(M, N)) descend. Unless `some`, U and V are
    made square.

    >>> U, S, V = metaop.svd(metaop.tensor([[0.0, 2.0], [3.0, 0.0]]))
    >>> S
    tensor([3., 2.])
    """
    U, S, Vh = svd(input, full_matrices=not some and compute_uv)
    if not compute_uv:
        rows, columns = input.shape[-2:]
        batch = input.shape[:-2]
        blank = (input.detach().new_zeros((*batch, n, n)) for n in (rows, columns))
        return SingularColumns(next(blank), S, next(blank))
    return SingularColumns(U, S, adjoint(Vh))


@public("cholesky", method=True, out=True)
def legacy_cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The Cholesky factor: `linalg.cholesky` in its older form.

    Raises LinAlgError unless the matrix is positive definite.

    >>> metaop.cholesky(metaop.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    return cholesky(input, upper=upper)


@public("qr", method=True, out=True)
def legacy_qr(input: Tensor, some: bool = True) -> Orthogonal:
    """`linalg.qr`, complete unless `some`: (…, M, N) is Q times R.

    >>> Q, R = metaop.qr(metaop.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> R.abs()
    tensor([[5.0000, 2.2000],
            [0.0000, 0.4000]])
    """
    return qr(input, "reduced" if some else "complete")
