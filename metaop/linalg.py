"""Linear algebra: products, norms, solutions and decompositions, as in `torch.linalg`."""

from __future__ import annotations

from typing import Any

from metaop.errors import ShapeError
from metaop.tensor.casting import casts_on_cpu, in_float32, in_low_precision
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat
from metaop.tensor.functions.shaping import diagonal as _diagonal
from metaop.tensor.linear_algebra.contractions import chain_matmul
from metaop.tensor.linear_algebra.contractions import cross as _cross
from metaop.tensor.linear_algebra.decompositions import (
    cholesky,
    eigh,
    eigvalsh,
    inv,
    qr,
    solve,
    solve_triangular,
    svd,
    svdvals,
)
from metaop.tensor.linear_algebra.determinants import det, slogdet
from metaop.tensor.linear_algebra.eigen import eig, eigvals
from metaop.tensor.linear_algebra.householder import householder_product
from metaop.tensor.linear_algebra.lapack import LinAlgError
from metaop.tensor.linear_algebra.ldl import ldl_factor, ldl_factor_ex, ldl_solve
from metaop.tensor.linear_algebra.lu import lu, lu_factor, lu_factor_ex, lu_solve
from metaop.tensor.linear_algebra.matrix_functions import matrix_exp, matrix_power
from metaop.tensor.linear_algebra.norms import matrix_norm, vector_norm
from metaop.tensor.linear_algebra.products import matmul
from metaop.tensor.linear_algebra.solutions import (
    cholesky_ex,
    inv_ex,
    lstsq,
    matrix_rank,
    pinv,
    solve_ex,
    tensorinv,
    tensorsolve,
)
from metaop.tensor.out import offer
from metaop.unified_graph.dtype import DType, int64

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "ldl_factor",
    "ldl_factor_ex",
    "ldl_solve",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
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
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
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
    """A vector norm over one dimension (or all), a matrix norm over two, as `ord` and `dim` say.

    `ord` is 2 by default: the root of the sum of squares. Raises ShapeError if `ord` is given,
    `dim` is not, and A has more than two dimensions.

    >>> metaop.linalg.norm(metaop.tensor([3.0, 4.0]))
    tensor(5.)
    """
    pair = isinstance(dim, (tuple, list)) and len(dim) == 2
    if ord is not None and dim is None and A.ndim not in (1, 2):
        raise ShapeError(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{list(A.shape)}.",
            fix="pass dim=, or use linalg.vector_norm",
        )
    if ord is not None and (pair or (dim is None and A.ndim == 2)):
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


@casts_on_cpu(in_float32)
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number of a matrix in the norm `p` (2 by default): (…, M, N) -> (…).

    It bounds the growth of a relative error of B in the solution of `A @ X = B`.

    >>> metaop.linalg.cond(metaop.tensor([[10.0, 0.0], [0.0, 0.1]]))
    tensor(100.)
    """
    if p in (None, 2, -2):
        values = svdvals(A)
        if not values.shape[-1]:
            return values.sum(-1)
        largest, smallest = values.amax(-1), values.amin(-1)
        return smallest / largest if p == -2 else largest / smallest
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


def multi_dot(tensors: Any) -> Tensor:
    """The product of several matrices; the first and the last may be vectors.

    The products are taken in the order that needs the fewest operations for these sizes.

    >>> A = metaop.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> metaop.linalg.multi_dot([metaop.ones(2), A, metaop.ones(2)])
    tensor(10.)
    """
    matrices = list(tensors)
    first, last = matrices[0].ndim == 1, matrices[-1].ndim == 1
    if first:
        matrices[0] = matrices[0].unsqueeze(0)
    if last:
        matrices[-1] = matrices[-1].unsqueeze(1)
    result = chain_matmul(*matrices)
    result = result.squeeze(0) if first else result
    return result.squeeze(-1) if last else result


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 … N - 1 (as many as `x` has elements) of each element, as rows.

    The shape (…, M) becomes (…, M, N). The name is that of A.-T. Vandermonde.

    >>> metaop.linalg.vander(metaop.tensor([2, 3]), 3)
    tensor([[1, 2, 4],
            [1, 3, 9]])
    """
    count = x.shape[-1] if N is None else N
    x = x.unsqueeze(0) if x.ndim == 0 else x
    if x.dtype.kind == "bool":
        x = x.to(int64)
    if count == 0:
        return x.new_zeros((*x.shape, 0))
    powers = x.unsqueeze(-1).expand(*x.shape, count - 1).cumprod(-1)
    return cat([x.new_ones((*x.shape, 1)), powers], -1)


@casts_on_cpu(in_low_precision)
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The dot product of vectors along `dim`, which is removed; the other dimensions broadcast.

    The first operand is conjugated if it is complex.

    >>> metaop.linalg.vecdot(metaop.tensor([1.0, 2.0]), metaop.tensor([3.0, 4.0]))
    tensor(11.)
    """
    return (x.conj() * y).sum(dim)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors along `dim`, whose size is 3; the other dimensions broadcast.

    >>> metaop.linalg.cross(metaop.tensor([1.0, 0.0, 0.0]), metaop.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    return _cross(input, other, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of the last two dimensions: (…, M, N) -> (…, min(M, N)).

    `offset` counts diagonals upwards from the main one. The result is a view.

    >>> metaop.linalg.diagonal(metaop.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    return _diagonal(A, offset, dim1, dim2)


offer(globals(), (name for name in __all__ if name not in ("LinAlgError", "diagonal")))
