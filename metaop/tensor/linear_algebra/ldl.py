"""Symmetric factors of symmetric matrices that need not be definite.

The pivots are chosen as in J. Bunch and L. Kaufman, "Some stable methods for calculating inertia
and solving symmetric linear systems" (1977), as LAPACK's `sytrf` does, so that factors agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from metaop.elementwise.meta_op import broadcast_shapes
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.linear_algebra.decompositions import LinAlgError, host_matrix
from metaop.unified_graph import dtype as dtypes

Mirror = Callable[[Any], Any]

# Where growth by a 1 x 1 and by a 2 x 2 pivot is equally bounded.
_THRESHOLD = (1 + math.sqrt(17)) / 8


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
    size = A.shape[-1]
    pivots = np.zeros((*A.shape[:-2], size), np.int32)
    info = np.zeros(A.shape[:-2], np.int32)
    for batch in np.ndindex(*A.shape[:-2]):
        info[batch] = _factorize(matrices[batch], pivots[batch], _mirror(hermitian))
    if check_errors and info.any():
        raise LinAlgError(
            f"linalg.ldl_factor: the block of D at {int(info.max())} is singular",
            fix="use ldl_factor_ex, and check its info",
        )
    found = ((matrices, A.dtype), (pivots, dtypes.int32), (info, dtypes.int32))
    return SymmetricWithInfo(*(from_array(x, kind).to(device=A.device) for x, kind in found))


def _mirror(hermitian: bool) -> Mirror:
    """What the elements of one triangle are in the other one."""
    return np.conj if hermitian else np.asarray


def _size_of(a: Any) -> Any:
    """The size by which LAPACK compares complex numbers: that of both parts together."""
    return np.abs(a.real) + np.abs(a.imag)


def _factorize(a: np.ndarray, pivots: np.ndarray, mirror: Mirror) -> int:
    """Factorizes one lower triangle in place; returns the number of the first zero block.

    `mirror` gives the elements of the upper triangle from those of the lower one.
    """
    size, k, info = len(a), 0, 0
    np.einsum("ii->i", a)[...] = (np.diagonal(a) + mirror(np.diagonal(a))) / 2
    while k < size:
        other, width = _pivot(a, k)
        if max(_size_of(a[k, k]), _size_of(a[k + 1 :, k]).max(initial=0)) == 0:
            info = info or k + 1
            pivots[k] = k + 1
            k += 1
            continue
        last = k + width - 1
        if other != last:
            _exchange(a, last, other, k, mirror)
        if width == 1:
            column = a[k + 1 :, k] / a[k, k]
            a[k + 1 :, k + 1 :] -= np.tril(np.outer(column, mirror(a[k + 1 :, k])))
            a[k + 1 :, k] = column
            pivots[k] = other + 1
        else:
            block = np.array([[a[k, k], mirror(a[k + 1, k])], [a[k + 1, k], a[k + 1, k + 1]]])
            below = a[k + 2 :, k : k + 2].copy()
            columns = np.linalg.solve(block.T, below.T).T
            a[k + 2 :, k + 2 :] -= np.tril(columns @ mirror(below.T))
            a[k + 2 :, k : k + 2] = columns
            pivots[k] = pivots[k + 1] = -(other + 1)
        k += width
    return info


def _pivot(a: np.ndarray, k: int) -> tuple[int, int]:
    """The row to exchange with the last one of the block at `k`, and the width of the block."""
    below, own = _size_of(a[k + 1 :, k]), _size_of(a[k, k])
    if not len(below) or max(own, below.max()) == 0:
        return k, 1
    row = int(below.argmax()) + k + 1
    largest = below.max()
    if own >= _THRESHOLD * largest:
        return k, 1
    across = max(_size_of(x).max(initial=0) for x in (a[row, k:row], a[row + 1 :, row]))
    if own >= _THRESHOLD * largest * (largest / across):
        return k, 1
    if _size_of(a[row, row]) >= _THRESHOLD * across:
        return row, 1
    return row, 2


def _exchange(a: np.ndarray, one: int, other: int, start: int, mirror: Mirror) -> None:
    """Rows and columns `one` < `other` of the symmetric part from `start` on exchanged."""
    a[one, one], a[other, other] = a[other, other], a[one, one]
    _swap(a[other + 1 :, one], a[other + 1 :, other])
    _swap(a[one + 1 : other, one], a[other, one + 1 : other], mirror)
    a[other, one] = mirror(a[other, one])
    _swap(a[one, start:one], a[other, start:one])


def _swap(left: np.ndarray, right: np.ndarray, mirror: Mirror = np.asarray) -> None:
    kept = mirror(left).copy()
    left[...] = mirror(right)
    right[...] = kept


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
        _substitute(factors[place], rows[place], solution[place], _mirror(hermitian))
    return from_array(solution, B.dtype).to(device=B.device)


def _substitute(a: np.ndarray, pivots: np.ndarray, x: np.ndarray, mirror: Mirror) -> None:
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
