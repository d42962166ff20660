"""Solutions of linear systems: from factors, for rectangular matrices, by least squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metaop.elementwise.meta_op import broadcast_shapes
from metaop.errors import ArgumentError, ShapeError
from metaop.tensor.casting import casts_on_cpu, in_float32
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.functions.shaping import adjoint
from metaop.tensor.host.host_function import host_function
from metaop.tensor.linear_algebra.decompositions import (
    Cotangents,
    cholesky,
    eigh,
    host_matrix,
    inv,
    is_vector_batch,
    solve,
    solve_triangular,
    svdvals,
)
from metaop.tensor.linear_algebra.lapack import LinAlgError, on_host
from metaop.tensor.linear_algebra.lu import first_zero, lu_factor_ex
from metaop.tensor.surface import public
from metaop.unified_graph import dtype as dtypes

Tolerance = float | Tensor | None


class Lower(NamedTuple):
    """The Cholesky factor, and the order (from 1) of the first minor that is not positive, or 0."""

    L: Tensor
    info: Tensor


class Inverse(NamedTuple):
    """The inverse, and the number (from 1) of the first pivot that is 0, or 0."""

    inverse: Tensor
    info: Tensor


class Solved(NamedTuple):
    """The solution, and the number (from 1) of the first pivot that is 0, or 0."""

    result: Tensor
    info: Tensor


class LeastSquares(NamedTuple):
    """What `lstsq` finds; what its driver does not compute is empty."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class TriangularSolution(NamedTuple):
    """The solution and the triangular matrix that was read."""

    solution: Tensor
    cloned_coefficient: Tensor


def _info(values: np.ndarray, like: Tensor) -> Tensor:
    return from_array(np.asarray(values, np.int32), dtypes.int32).to(device=like.device)


@casts_on_cpu(in_float32)
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Lower:
    """`cholesky` that reports a matrix that is not positive definite instead of raising.

    `info` (…) is 0 where all went well. The other shapes are those of `cholesky`.

    >>> metaop.linalg.cholesky_ex(metaop.tensor([[-1.0]])).info
    tensor(1, dtype=metaop.int32)
    """
    found = np.zeros(A.shape[:-2], np.int32)
    try:
        return Lower(cholesky(A, upper=upper), _info(found, A))
    except LinAlgError:
        if check_errors:
            raise
    matrices = host_matrix("cholesky_ex", A)
    for place in np.ndindex(*A.shape[:-2]):
        found[place] = _failing_minor(matrices[place])
    return Lower(A * math.nan, _info(found, A))


def _failing_minor(matrix: np.ndarray) -> int:
    for order in range(1, len(matrix) + 1):
        try:
            np.linalg.cholesky(matrix[:order, :order])
        except np.linalg.LinAlgError:
            return order
    return 0


def _singular(A: Tensor) -> np.ndarray:
    packed = lu_factor_ex(A.detach()).LU._array()
    return first_zero(np.diagonal(packed, axis1=-2, axis2=-1))


@casts_on_cpu(in_float32)
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Inverse:
    """`inv` that reports a singular matrix instead of raising.

    `info` (…) is 0 where all went well. The other shapes are those of `inv`.

    >>> metaop.linalg.inv_ex(metaop.tensor([[2.0]]))
    Inverse(inverse=tensor([[0.5000]]), info=tensor(0, dtype=metaop.int32))
    """
    try:
        return Inverse(inv(A), _info(np.zeros(A.shape[:-2]), A))
    except LinAlgError:
        if check_errors:
            raise
    return Inverse(A * math.nan, _info(_singular(A), A))


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Solved:
    """`solve` that reports a singular matrix instead of raising.

    `info` (…) is 0 where all went well. The other shapes are those of `solve`.

    >>> metaop.linalg.solve_ex(metaop.tensor([[2.0]]), metaop.tensor([[6.0]]))
    Solved(result=tensor([[3.]]), info=tensor(0, dtype=metaop.int32))
    """
    try:
        return Solved(solve(A, B, left=left), _info(np.zeros(A.shape[:-2]), A))
    except LinAlgError:
        if check_errors:
            raise
    return Solved(B * math.nan, _info(_singular(A), A))


@public(method=True, out=True, precision=in_float32)
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of the matrix of which L is the Cholesky factor: (…, N, N) -> (…, N, N).

    >>> metaop.cholesky_inverse(metaop.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.2500, 0.0000],
            [0.0000, 0.0625]])
    """
    return inv(adjoint(L) @ L if upper else L @ adjoint(L))


@public(method=True, out=True, precision=in_float32)
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with `A @ X = B`, where L is the Cholesky factor of A: B is (…, N, K).

    >>> L = metaop.tensor([[2.0, 0.0], [0.0, 4.0]])
    >>> metaop.cholesky_solve(metaop.tensor([[8.0], [16.0]]), L)
    tensor([[2.],
            [1.]])
    """
    lower = adjoint(L) if upper else L
    inner = solve_triangular(lower, B, upper=False)
    return solve_triangular(adjoint(lower), inner, upper=True)


@public(method=True, out=True, precision=in_float32)
def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolution:
    """`linalg.solve_triangular` in its older form: b is (…, N, K) and comes first.

    >>> metaop.triangular_solve(metaop.tensor([[4.0]]), metaop.tensor([[2.0]])).solution
    tensor([[2.]])
    """
    turned = A.mT if transpose else A
    batch = broadcast_shapes("triangular_solve", A.shape[:-2], b.shape[:-2])
    solution = solve_triangular(turned, b, upper=upper != transpose, unitriangular=unitriangular)
    return TriangularSolution(solution, A.expand(*batch, *A.shape[-2:]).clone())


@casts_on_cpu(in_float32)
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of `tensordot(A, ·, A.ndim - ind)`: a square matrix of several dimensions.

    The first `ind` dimensions are the rows, whose sizes have the product of those of the others.

    >>> metaop.linalg.tensorinv(2 * metaop.eye(4).reshape(2, 2, 4)).shape
    metaop.Size([4, 2, 2])
    """
    if ind <= 0:
        raise ArgumentError("Expected a strictly positive integer for 'ind'", fix="pass ind >= 1")
    rows, columns = A.shape[:ind], A.shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise ShapeError(f"linalg.tensorinv: {list(rows)} and {list(columns)} differ in size")
    flat = inv(A.reshape(math.prod(rows), math.prod(columns)))
    return flat.reshape(*columns, *rows)


@casts_on_cpu(in_float32)
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """X with `tensordot(A, X, X.ndim) = B`; `dims` of A are moved to its end first.

    A has the shape of B and then that of X.

    >>> A = 2 * metaop.eye(4).reshape(2, 2, 4)
    >>> metaop.linalg.tensorsolve(A, metaop.ones(2, 2))
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    unknown = A.shape[B.ndim :]
    if math.prod(unknown) != B.numel():
        raise ShapeError(f"linalg.tensorsolve: A is {list(A.shape)} and B {list(B.shape)}")
    return solve(A.reshape(B.numel(), B.numel()), B.flatten()).reshape(unknown)


def smallest_kept(A: Tensor, values: Tensor, atol: Tolerance, rtol: Tolerance) -> Tensor:
    """The bound under which singular `values` of A count as 0, with a last dimension of 1."""
    if rtol is None:
        default = max(A.shape[-2:]) * (2.0**-52 if A.dtype.part.itemsize == 8 else 2.0**-23)
        rtol = default if atol is None else _where_zero(atol, default)
    if values.shape[-1]:
        largest = values.amax(-1, True)
    else:
        largest = values.new_zeros((*values.shape[:-1], 1))
    bound = largest * _column(rtol)
    return bound if atol is None else bound.clamp_min(_column(atol))


def _where_zero(atol: float | Tensor, default: float) -> float | Tensor:
    """The relative tolerance beside an absolute one: none, unless that is 0."""
    return atol.le(0) * default if isinstance(atol, Tensor) else default * (atol <= 0)


def _column(tolerance: float | Tensor) -> float | Tensor:
    return tolerance.unsqueeze(-1) if isinstance(tolerance, Tensor) else tolerance


@public(precision=in_float32)
def matrix_rank(
    A: Tensor,
    tol: Tolerance = None,
    hermitian: bool = False,
    *,
    atol: Tolerance = None,
    rtol: Tolerance = None,
) -> Tensor:
    """The number of singular values above `max(atol, rtol * largest)`; `tol` is both at once.

    A is (…, M, N), the result (…). Without tolerances, rtol is max(M, N) times the machine epsilon.

    >>> metaop.linalg.matrix_rank(metaop.tensor([[1.0, 2.0], [2.0, 4.0]]))
    tensor(1)
    """
    A = A.detach()
    if tol is not None:
        atol, rtol = tol, 0.0
    values = eigh(A).eigenvalues.abs() if hermitian else svdvals(A)
    return smallest_kept(A, values, atol, rtol).lt(values).sum(-1)


def pinv(
    A: Tensor,
    rcond: Tolerance = None,
    hermitian: bool = False,
    *,
    atol: Tolerance = None,
    rtol: Tolerance = None,
) -> Tensor:
    """The pseudoinverse; singular values below `max(atol, rtol * largest)` count as 0.

    The shape (…, M, N) becomes (…, N, M). The gradient (G. Golub and V. Pereyra, "The
    differentiation of pseudo-inverses and nonlinear least squares problems", 1973) holds for
    matrices of any rank that stays the same.

    >>> metaop.linalg.pinv(metaop.tensor([[2.0, 0.0], [0.0, 0.0]])).abs()
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    return _pseudoinverse(A, atol, rcond if rtol is None else rtol, hermitian)[0]


def _pseudoinverse(
    A: Tensor, atol: Tolerance, rtol: Tolerance, hermitian: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The pseudoinverse, the magnitudes of the singular values, and which of them count."""
    if 0 in A.shape[-2:]:
        none = A.detach().real.new_zeros((*A.shape[:-2], 0))
        return adjoint(A) * 1, none, none.gt(0)
    if hermitian:
        values, vectors = eigh(A.detach())
        left, right = vectors, adjoint(vectors)
    else:
        decomposed = on_host("pinv", np.linalg.svd, host_matrix("pinv", A, square=False), False)
        left, values, right = (
            from_array(np.ascontiguousarray(x), dtype).to(device=A.device)
            for x, dtype in zip(decomposed, (A.dtype, A.dtype.part, A.dtype))
        )
    magnitude = values.abs()
    kept = smallest_kept(A.detach(), magnitude, atol, rtol).lt(magnitude)
    inverse = kept * values.masked_fill(kept.logical_not(), 1).reciprocal()
    found = (adjoint(right) * inverse.unsqueeze(-2)) @ adjoint(left)

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        A, X, g = inputs[0], results[0], cotangents[0]
        assert g is not None
        turned, across = adjoint(X), adjoint(g)
        gradient = -(turned @ g @ turned)
        outer = across @ X @ turned
        gradient = gradient + outer - A @ (X @ outer)
        outer = turned @ X @ across
        return [gradient + outer - (outer @ X) @ A]

    return host_function([A], [found._array()], backward)[0], magnitude, kept


@public(method=True, precision=in_float32)
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`linalg.pinv` in its older form: (…, M, N) -> (…, N, M).

    >>> metaop.pinverse(metaop.tensor([[2.0, 0.0], [0.0, 0.0]])).abs()
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    return pinv(input, rcond)


@casts_on_cpu(in_float32)
def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> LeastSquares:
    """The X that makes the norm of `A @ X - B` least: (solution, residuals, rank, singular values).

    A is (…, M, N), B (…, M, K) and X (…, N, K). `driver` is "gels", "gelsy", "gelsd" or "gelss" and
    says what is computed besides the solution: the rank (all but "gels"), the singular values (the
    last two), the residuals (not "gelsy").

    >>> A, B = metaop.tensor([[1.0], [1.0]]), metaop.tensor([[1.0], [3.0]])
    >>> metaop.linalg.lstsq(A, B).solution.round()
    tensor([[2.]])
    """
    driver = driver or "gelsy"
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise ArgumentError(
            f"linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), "
            f"not {driver!r}"
        )
    vector = is_vector_batch(A, B)
    right = B.unsqueeze(-1) if vector else B
    inverse, singular, kept = _pseudoinverse(A, None, rcond)
    solution = inverse @ right
    rank = A.new_empty(0, dtype=dtypes.int64)
    values = A.detach().real.new_empty(0)
    residuals = solution.real.flatten()[:0]
    rows, columns = A.shape[-2:]
    if driver != "gels":
        rank = kept.sum(-1)
    if driver in ("gelsd", "gelss"):
        values = singular
    whole = driver == "gels" or bool((rank == columns).all())
    if rows > columns and driver != "gelsy" and whole:
        residuals = (A @ solution - right).abs().square().sum(-2)
    return LeastSquares(solution.squeeze(-1) if vector else solution, residuals, rank, values)
