"""Symmetric factors of symmetric matrices that need not be definite: LAPACK's `sytrf`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from metaop.elementwise.meta_op import broadcast_shapes
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.linear_algebra.decompositions import host_matrix
from metaop.tensor.linear_algebra.lapack import LinAlgError, lapack, on_host
from metaop.unified_graph import dtype as dtypes


class Symmetric(NamedTuple):
    """The unit lower triangle and the blocks of the diagonal in one matrix, and the pivots.

    A positive pivot is the row (from 1) that was exchanged for a block of 1; two equal negative
    ones are that of a block of 2.
    """

    LD: Tensor
    pivots: Tensor


class SymmetricWithInfo(NamedTuple):
    """`Symmetric`, and the number (from 1) of the first block that is 0, else 0."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Symmetric:
    """`A = L @ D @ L.T` of a symmetric matrix, of which the lower triangle is read.

    A complex matrix is `L @ D @ L.H` if it is `hermitian`.

    The result is both factors in one matrix (…, N, N), and pivots (…, N) for `ldl_solve`. D
    consists of blocks of size 1 and 2. Raises LinAlgError for a singular block.

    >>> LD, pivots = metaop.linalg.ldl_factor(metaop.tensor([[4.0, 2.0], [2.0, 3.0]]))
    >>> LD.tril()
    tensor([[4.0000, 0.0000],
            [0.5000, 2.0000]])
    """
    return Symmetric(*ldl_factor_ex(A, hermitian=hermitian, check_errors=True)[:2])


def ldl_factor_ex(
    A: Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> SymmetricWithInfo:
    """`ldl_factor` that reports a singular block in `info`, or raises with `check_errors`.

    `info` (…) is 0 where all went well, else the number of the block's row. The other shapes are
    those of `ldl_factor`.

    >>> metaop.linalg.ldl_factor_ex(metaop.tensor([[4.0, 2.0], [2.0, 3.0]])).info
    tensor(0, dtype=metaop.int32)
    """
    matrices = np.tril(host_matrix("ldl_factor", A))
    pivots = np.zeros(A.shape[:-1], np.int32)
    info = np.zeros(A.shape[:-2], np.int32)
    factorize = lapack("hetrf" if hermitian and A.dtype.is_complex else "sytrf", matrices)
    for place in np.ndindex(*A.shape[:-2]) if matrices.size else ():
        found, pivots[place], info[place] = on_host(
            "ldl_factor", partial(factorize, lower=1), matrices[place]
        )
        matrices[place] = np.tril(found)
    if check_errors and info.any():
        raise LinAlgError(
            f"linalg.ldl_factor: the block of D at {int(info.max())} is singular",
            fix="use ldl_factor_ex, and check its info",
        )
    arrays = ((matrices, A.dtype), (pivots, dtypes.int32), (info, dtypes.int32))
    return SymmetricWithInfo(*(from_array(x, kind).to(device=A.device) for x, kind in arrays))


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X with `A @ X = B` from the factors of A: B is (…, N, K).

    >>> factors = metaop.linalg.ldl_factor(metaop.tensor([[4.0, 2.0], [2.0, 3.0]]))
    >>> metaop.linalg.ldl_solve(*factors, metaop.tensor([[6.0], [5.0]]))
    tensor([[1.],
            [1.]])
    """
    factors, right = host_matrix("ldl_solve", LD), B.detach()._array()
    batch = broadcast_shapes("ldl_solve", factors.shape[:-2], right.shape[:-2])
    factors = np.broadcast_to(factors, (*batch, *factors.shape[-2:]))
    rows = np.broadcast_to(pivots._array(), (*batch, factors.shape[-1]))
    solution = np.array(np.broadcast_to(right, (*batch, *right.shape[-2:])))
    for place in np.ndindex(*batch):
        _substitute(
            factors[place], rows[place], solution[place], np.conj if hermitian else np.asarray
        )
    return from_array(solution, B.dtype).to(device=B.device)


def _substitute(
    a: np.ndarray, pivots: np.ndarray, x: np.ndarray, mirror: Callable[[Any], Any]
) -> None:
    """Solves one system in place: down through L, across the blocks of D, up through L.T."""
    blocks, k = [], 0
    while k < len(a):
        width = 1 if pivots[k] > 0 else 2
        blocks.append((k, width))
        last, other = k + width - 1, abs(int(pivots[k])) - 1
        x[[last, other]] = x[[other, last]]
        x[k + width :] -= a[k + width :, k : k + width] @ x[k : k + width]
        block = np.tril(a[k : k + width, k : k + width])
        x[k : k + width] = np.linalg.solve(block + mirror(np.tril(block, -1).T), x[k : k + width])
        k += width
    for k, width in reversed(blocks):
        x[k : k + width] -= mirror(a[k + width :, k : k + width].T) @ x[k + width :]
        last, other = k + width - 1, abs(int(pivots[k])) - 1
        x[[last, other]] = x[[other, last]]
