"""Linear algebra: products, norms, solutions and decompositions, as in `torch.linalg`."""

from __future__ import annotations

import math
from typing import Any

from metaop.errors import ArgumentError
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.contractions import chain_matmul
from metaop.tensor.contractions import cross as _cross
from metaop.tensor.core import Tensor
from metaop.tensor.decompositions import (
    LinAlgError,
    cholesky,
    det,
    eigh,
    eigvalsh,
    inv,
    qr,
    slogdet,
    solve,
    solve_triangular,
    svd,
    svdvals,
)
from metaop.tensor.linear_algebra import matmul
from metaop.tensor.norms import vector_norm
from metaop.tensor.out import offer_out
from metaop.tensor.ranges import eye
from metaop.tensor.selection import where
from metaop.tensor.shaping import diagonal as _diagonal
from metaop.unified_graph.dtype import DType

__all__ = [
    "LinAlgError",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "vecdot",
    "vector_norm",
]


def norm(
    A: Tensor,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """A vector norm over one dimension (or all), a matrix norm over two, as `ord` and `dim` say."""
    pair = isinstance(dim, (tuple, list)) and len(dim) == 2
    if ord is not None and (pair or (dim is None and A.ndim == 2)):
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The matrix norm "fro", "nuc", 1, -1, 2, -2, inf or -inf over two dimensions."""
    if dtype is not None:
        A = A.to(dtype)
    rows, columns = (wrap_dim(one, A.ndim) for one in dim)
    if ord == "fro":
        return vector_norm(A, 2, (rows, columns), keepdim)
    if ord in (1, -1, math.inf, -math.inf):
        summed, kept = (rows, columns) if ord in (1, -1) else (columns, rows)
        sums = A.abs().sum(summed, True)
        result = sums.amax(kept, True) if ord > 0 else sums.amin(kept, True)
    elif ord in ("nuc", 2, -2):
        values = svdvals(A.movedim((rows, columns), (-2, -1)))
        if ord == "nuc":
            result = values.sum(-1)
        else:
            result = values.amax(-1) if ord == 2 else values.amin(-1)
        for position in sorted((rows, columns)):
            result = result.unsqueeze(position)
    else:
        raise ArgumentError(
            f"linalg.matrix_norm: Order {ord} not supported.",
            fix="use 'fro', 'nuc', 1, -1, 2, -2, inf or -inf",
        )
    return result if keepdim else result.squeeze((rows, columns))


def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number of a matrix in the norm `p` (2 by default)."""
    if p in (None, 2, -2):
        values = svdvals(A)
        largest, smallest = values.amax(-1), values.amin(-1)
        return smallest / largest if p == -2 else largest / smallest
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


def multi_dot(tensors: Any) -> Tensor:
    """The product of several matrices; the first and the last may be vectors."""
    matrices = list(tensors)
    first, last = matrices[0].ndim == 1, matrices[-1].ndim == 1
    if first:
        matrices[0] = matrices[0].unsqueeze(0)
    if last:
        matrices[-1] = matrices[-1].unsqueeze(1)
    result = chain_matmul(*matrices)
    result = result.squeeze(0) if first else result
    return result.squeeze(-1) if last else result


def matrix_power(A: Tensor, n: int) -> Tensor:
    """The `n`-th power of a square matrix by repeated squaring; a negative one of its inverse."""
    if n < 0:
        return matrix_power(inv(A), -n)
    if n == 0:
        identity = eye(A.shape[-1], dtype=A.dtype, device=A.device).expand(A.shape)
        # The gradient is 0, but there is one.
        return A * 0 + identity
    result: Tensor | None = None
    while n:
        if n % 2:
            result = A if result is None else result @ A
        n //= 2
        if n:
            A = A @ A
    assert result is not None
    return result


def matrix_exp(A: Tensor) -> Tensor:
    """The matrix exponential: a Taylor polynomial of degree 18 of A scaled down, then squared.

    With a scaled norm of at most 1/2 the remainder is below 1e-22.
    """
    size = float(matrix_norm(A.detach(), 1).amax()) if A.numel() else 0.0
    squarings = max(0, math.ceil(math.log2(size / 0.5))) if size > 0.5 else 0
    scaled = A / 2.0**squarings
    identity = eye(A.shape[-1], dtype=A.dtype, device=A.device)
    result = identity + scaled / 18
    for degree in range(17, 0, -1):
        result = identity + (scaled @ result) / degree
    for _ in range(squarings):
        result = result @ result
    return result


def pinv(A: Tensor, *, rtol: float | None = None, hermitian: bool = False) -> Tensor:
    """The pseudoinverse; singular values below `rtol` times the largest count as 0."""
    U, S, Vh = svd(A, False)
    smallest = S.amax(-1, True) * _tolerance(A, rtol)
    kept = smallest.lt(S)
    inverse = where(kept, 1 / where(kept, S, 1.0), 0.0)
    return (Vh.transpose(-2, -1) * inverse.unsqueeze(-2)) @ U.transpose(-2, -1)


def _tolerance(A: Tensor, rtol: float | None) -> float:
    if rtol is not None:
        return float(rtol)
    return max(A.shape[-2:]) * (2.0**-52 if A.dtype.itemsize == 8 else 2.0**-23)


def matrix_rank(A: Tensor, *, rtol: float | None = None, hermitian: bool = False) -> Tensor:
    """The number of singular values above `rtol` times the largest."""
    S = svdvals(A.detach())
    smallest = S.amax(-1, True) * _tolerance(A, rtol)
    return smallest.lt(S).sum(-1)


def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The least-squares solution of `A @ X = B`: (solution, residuals, rank, singular values)."""
    solution = pinv(A, rtol=rcond) @ B
    residuals = ((A @ solution - B) ** 2).sum(-2)
    return solution, residuals, matrix_rank(A, rtol=rcond), svdvals(A.detach())


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sum of the products along `dim`."""
    return (x * y).sum(dim)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors along `dim`."""
    return _cross(input, other, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of the last two dimensions."""
    return _diagonal(A, offset, dim1, dim2)


offer_out(globals(), (name for name in __all__ if name not in ("LinAlgError", "diagonal")))
