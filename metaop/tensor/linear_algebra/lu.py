"""Triangular factors with row exchanges: `P @ L @ U`, what solves with them, and their gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metaop.elementwise.meta_op import broadcast_shapes
from metaop.errors import ArgumentError
from metaop.tensor.casting import in_float32
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.functions.joining import cat
from metaop.tensor.functions.ranges import eye
from metaop.tensor.functions.rearranging import tril, triu
from metaop.tensor.functions.scattering import take_along_dim
from metaop.tensor.functions.shaping import adjoint
from metaop.tensor.host.host_function import host_function
from metaop.tensor.linear_algebra.decompositions import (
    Cotangents,
    host_matrix,
    solve_triangular,
)
from metaop.tensor.linear_algebra.lapack import LinAlgError, lapack, on_host
from metaop.tensor.surface import public
from metaop.unified_graph import dtype as dtypes


class Factors(NamedTuple):
    """`P @ L @ U`: a permutation, a unit lower and an upper triangular matrix."""

    P: Tensor
    L: Tensor
    U: Tensor


class Packed(NamedTuple):
    """Both triangles in one matrix, and the row (from 1) that each row was exchanged with."""

    LU: Tensor
    pivots: Tensor


class PackedWithInfo(NamedTuple):
    """`Packed`, and the number (from 1) of the first pivot that is 0, else 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


def _eliminated(matrix: np.ndarray, pivot: bool) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian elimination of a batch: the packed triangles and the exchanges, from 0."""
    packed = matrix.reshape(math.prod(matrix.shape[:-2]), *matrix.shape[-2:]).copy()
    count = min(packed.shape[1:])
    exchanges = np.tile(np.arange(count), (len(packed), 1))
    if pivot and count:
        eliminate = lapack("getrf", packed)
        for one, exchanged in zip(packed, exchanges):
            one[...], exchanged[...], _ = eliminate(one)
    elif count:
        _eliminate(packed, count)
    return packed.reshape(matrix.shape), exchanges.reshape(*matrix.shape[:-2], count)


def _eliminate(packed: np.ndarray, count: int) -> None:
    """Elimination in place without exchanges, which LAPACK does not have."""
    for k in range(count):
        divisor, below = packed[:, k, k, None], packed[:, k + 1 :, k]
        with np.errstate(all="ignore"):
            np.divide(below, divisor, out=below, where=divisor != 0)
        packed[:, k + 1 :, k + 1 :] -= below[..., None] * packed[:, k, None, k + 1 :]


def _permutation(exchanges: np.ndarray, rows: int) -> np.ndarray:
    """Where each row of `L @ U` comes from, after all exchanges."""
    batch = exchanges.shape[:-1]
    found = []
    for exchanged in exchanges.reshape(math.prod(batch), exchanges.shape[-1]).tolist():
        order = list(range(rows))
        for k, other in enumerate(exchanged):
            order[k], order[other] = order[other], order[k]
        found.append(order)
    return np.array(found, np.int64).reshape(*batch, rows)


def _rows(matrix: Tensor, order: np.ndarray) -> Tensor:
    """The rows of a matrix in another order."""
    index = from_array(np.ascontiguousarray(order[..., None]), dtypes.int64)
    return take_along_dim(matrix, index.to(device=matrix.device), -2)


def _factorized(A: Tensor, pivot: bool) -> tuple[Tensor, Tensor, np.ndarray, np.ndarray]:
    """L, U, the exchanges and the order of the rows."""
    packed, exchanges = on_host("lu", _eliminated, host_matrix("lu", A, square=False), pivot)
    rows, columns = packed.shape[-2:]
    count = min(rows, columns)
    order = _permutation(exchanges, rows)
    lower = np.tril(packed[..., :count], -1) + np.eye(rows, count, dtype=packed.dtype)
    upper = np.triu(packed[..., :count, :])

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        of_permuted = _gradient(*results, *cotangents)
        return [_rows(of_permuted, np.argsort(order, -1))]

    L, U = host_function([A], [lower, upper], backward)
    return L, U, exchanges, order


def _gradient(L: Tensor, U: Tensor, of_L: Tensor | None, of_U: Tensor | None) -> Tensor:
    """The gradient of the matrix `L @ U`, of any shape, from those of its factors."""
    of_L = L * 0 if of_L is None else of_L
    of_U = U * 0 if of_U is None else of_U
    count = L.shape[-1]
    left, low = L[..., :count, :], L[..., count:, :]
    right, wide = U[..., :, :count], U[..., :, count:]
    of_low, of_wide = of_L[..., count:, :], of_U[..., :, count:]
    below = adjoint(left) @ of_L[..., :count, :] - of_wide @ adjoint(wide)
    above = of_U[..., :, :count] @ adjoint(right) - adjoint(low) @ of_low
    inner = solve_triangular(adjoint(left), tril(below, -1) + triu(above), upper=True)
    corner = solve_triangular(adjoint(right), inner, upper=False, left=False)
    if L.shape[-2] > count:
        rest = solve_triangular(adjoint(right), of_low, upper=False, left=False)
        return cat([corner, rest], -2)
    if U.shape[-1] > count:
        return cat([corner, solve_triangular(adjoint(left), of_wide, upper=True)], -1)
    return corner


def _as_pivots(exchanges: np.ndarray, like: Tensor) -> Tensor:
    return from_array((exchanges + 1).astype(np.int32), dtypes.int32).to(device=like.device)


def _permutation_matrix(order: np.ndarray, like: Tensor) -> Tensor:
    matrix = np.swapaxes(np.eye(order.shape[-1], dtype=like.dtype.numpy)[order], -1, -2)
    return from_array(np.ascontiguousarray(matrix), like.dtype).to(device=like.device)


def lu(A: Tensor, *, pivot: bool = True) -> Factors:
    """`P @ L @ U == A`; without `pivot` P is empty and rows stay where they are.

    A is (…, M, N), L lower triangular with ones on the diagonal, U upper triangular, P a
    permutation.

    >>> P, L, U = metaop.linalg.lu(metaop.tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> U
    tensor([[4., 4.],
            [0., 1.]])
    """
    L, U, _, order = _factorized(A, pivot)
    return Factors(_permutation_matrix(order, A) if pivot else A.new_empty(0), L, U)


def lu_factor(A: Tensor, *, pivot: bool = True) -> Packed:
    """The triangles L (without its ones) and U in one matrix, and the exchanges of rows.

    A and the matrix are (…, M, N). Pivots (…, min(M, N)) are rows, counted from 1, with which each
    row was exchanged in turn. Raises LinAlgError when U has a zero on its diagonal.

    >>> LU, pivots = metaop.linalg.lu_factor(metaop.tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> LU, pivots
    (tensor([[4.0000, 4.0000],
            [0.2500, 1.0000]]), tensor([2, 2], dtype=metaop.int32))
    """
    return Packed(*lu_factor_ex(A, pivot=pivot, check_errors=True)[:2])


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> PackedWithInfo:
    """`lu_factor` that reports a zero pivot in `info`, or raises with `check_errors`.

    `info` (…) is 0 where all went well, else the number of the row, counted from 1. The other
    shapes are those of `lu_factor`.

    >>> metaop.linalg.lu_factor_ex(metaop.tensor([[1.0, 2.0], [2.0, 4.0]])).info
    tensor(2, dtype=metaop.int32)
    """
    L, U, exchanges, _ = _factorized(A, pivot)
    rows, columns = A.shape[-2:]
    packed = tril(L, -1)
    if columns > rows:
        packed = cat([packed, packed.new_zeros((*A.shape[:-1], columns - rows))], -1)
    elif rows > columns:
        U = cat([U, U.new_zeros((*A.shape[:-2], rows - columns, columns))], -2)
    diagonal = np.diagonal(U.detach()._array(), axis1=-2, axis2=-1)
    info = first_zero(diagonal)
    if check_errors and info.any():
        raise LinAlgError(
            f"linalg.lu_factor: U[{int(info.max())},{int(info.max())}] is zero and using it on "
            "lu_solve would result in a division by zero",
            fix="use lu_factor_ex, and check its info",
        )
    return PackedWithInfo(packed + U, _as_pivots(exchanges, A), _as_info(info, A))


def first_zero(diagonal: np.ndarray) -> np.ndarray:
    """The number (from 1) of the first zero in each row, 0 where there is none."""
    zero = diagonal == 0
    if not zero.shape[-1]:
        return np.zeros(zero.shape[:-1], np.int32)
    return np.where(zero.any(-1), zero.argmax(-1) + 1, 0).astype(np.int32)


def _as_info(info: np.ndarray, like: Tensor) -> Tensor:
    return from_array(np.asarray(info, np.int32), dtypes.int32).to(device=like.device)


@public(out=True)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Factors:
    """P, L and U from the packed form; what is not asked for is empty.

    The packed matrix is (…, M, N), as `linalg.lu_factor` makes it.

    >>> factors = metaop.linalg.lu_factor(metaop.tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> P, L, U = metaop.lu_unpack(*factors)
    >>> L
    tensor([[1.0000, 0.0000],
            [0.2500, 1.0000]])
    """
    rows, columns = LU_data.shape[-2:]
    count = min(rows, columns)
    P = L = U = LU_data.detach().new_empty(0)
    if unpack_data:
        ones = eye(rows, count, dtype=LU_data.dtype, device=LU_data.device)
        L = tril(LU_data[..., :, :count], -1) + ones
        U = triu(LU_data[..., :count, :])
    if unpack_pivots:
        P = _permutation_matrix(_order(LU_pivots, rows), LU_data)
    return Factors(P, L, U)


def _order(pivots: Tensor, rows: int) -> np.ndarray:
    return _permutation(pivots.detach()._array().astype(np.int64) - 1, rows)


def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X with `A @ X = B` (`X @ A = B` unless `left`) from the factors of A (transposed).

    B is (…, N, K). `adjoint` solves with the transposed A, conjugated.

    >>> factors = metaop.linalg.lu_factor(metaop.tensor([[2.0, 1.0], [1.0, 3.0]]))
    >>> metaop.linalg.lu_solve(*factors, metaop.tensor([[3.0], [4.0]]))
    tensor([[1.],
            [1.]])
    """
    if not left:
        solution = lu_solve(LU, pivots, B.mH, adjoint=not adjoint)
        return solution.mH
    if LU.shape[-1] != LU.shape[-2]:
        raise ArgumentError("lu_solve: LU must hold square matrices")
    batch = broadcast_shapes("lu_solve", LU.shape[:-2], B.shape[:-2])
    order = np.broadcast_to(_order(pivots, LU.shape[-1]), (*batch, LU.shape[-1]))
    B = B.expand(*batch, *B.shape[-2:])
    if adjoint:
        inner = solve_triangular(triu(LU).mH, B, upper=False)
        outer = solve_triangular(LU.mH, inner, upper=True, unitriangular=True)
        return _rows(outer, np.argsort(order, -1))
    inner = solve_triangular(LU, _rows(B, order), upper=False, unitriangular=True)
    return solve_triangular(LU, inner, upper=True)


@public("lu", method=True, out=True, precision=in_float32)
def legacy_lu(
    A: Tensor, pivot: bool = True, get_infos: bool = False
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
    """The packed factors and the pivots (and `info` if asked for): `torch.lu`.

    The factors are (…, M, N), the pivots (…, K); see `linalg.lu_factor`.

    >>> LU, pivots = metaop.lu(metaop.tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> LU
    tensor([[4.0000, 4.0000],
            [0.2500, 1.0000]])
    """
    found = lu_factor_ex(A, pivot=pivot, check_errors=not get_infos)
    return (*found,) if get_infos else (found.LU, found.pivots)


@public("lu_solve", method=True, out=True, precision=in_float32)
def legacy_lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """`linalg.lu_solve` with the right side first: `torch.lu_solve`, with b (…, N, K).

    >>> factors = metaop.lu(metaop.tensor([[2.0, 1.0], [1.0, 3.0]]))
    >>> metaop.lu_solve(metaop.tensor([[3.0], [4.0]]), *factors)
    tensor([[1.],
            [1.]])
    """
    return lu_solve(LU_data, LU_pivots, b)
