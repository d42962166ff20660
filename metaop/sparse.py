"""Functions of sparse matrices, under PyTorch's names. `metaop.sparse_coo_tensor` makes tensors.

The values of a sparse tensor are an ordinary tensor, so every function here is differentiable with
respect to them and to dense operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

import metaop
from metaop.errors import ArgumentError, ShapeError, UnsupportedError
from metaop.operators.segments import segment_reduce
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.out import offer
from metaop.tensor.sparse.making import sparse_coo_tensor
from metaop.tensor.sparse.tensors import SparseTensor, sparse_matmul
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import record

__all__ = [
    "SparseTensor",
    "addmm",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sum",
]

_REDUCERS = {"sum": "add", "mean": "mean", "amax": "amax", "amin": "amin"}


def mm(
    mat1: SparseTensor,
    mat2: SparseTensor | Tensor,
    reduce: Literal["sum", "mean", "amax", "amin"] = "sum",
) -> Any:
    """A sparse matrix times a dense one (dense) or a sparse one (sparse): (N, K), (K, M) -> (N, M).

    With a dense one, `reduce` says what becomes of the products of the stored elements of a row:
    their sum, mean, maximum or minimum, which is 0 for a row without any.

    Raises ArgumentError for another `reduce`, and UnsupportedError for one of two sparse matrices.

    >>> matrix = metaop.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2))
    >>> metaop.sparse.mm(matrix, metaop.tensor([[1.0], [10.0]]))
    tensor([[20.],
            [ 3.]])
    """
    if reduce not in _REDUCERS:
        raise ArgumentError(
            f"sparse.mm: {reduce!r} is no reduction", fix=f"use one of {', '.join(_REDUCERS)}"
        )
    if reduce != "sum":
        return _reduced_product(mat1, mat2, _REDUCERS[reduce])
    if isinstance(mat1, Tensor):
        return mat1 @ mat2
    return sparse_matmul(mat1, mat2)


def _reduced_product(matrix: SparseTensor, other: SparseTensor | Tensor, reducer: str) -> Tensor:
    if isinstance(matrix, Tensor) or isinstance(other, SparseTensor):
        raise UnsupportedError(
            "sparse.mm: only a sparse matrix times a dense one has a reduction of its own",
            fix="convert the matrices, or omit reduce",
        )
    rows = matrix.to_sparse_csr()
    starts: Any = rows.crow_indices()
    dense: Any = other
    products = rows.values().reshape(-1, 1) * dense.index_select(0, rows._axis(1))  # type: ignore
    calls = [part.call for part in (products, rows._axis(0), starts.diff())]
    begins = starts.call if rows._is_sorted else None
    return wrap(record(segment_reduce, (*calls, begins), (reducer,)))


def sampled_addmm(
    input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> SparseTensor:
    """`alpha * (mat1 @ mat2) + beta * input` where `input` stores elements: (N, K), (K, M).

    >>> places = metaop.eye(2).to_sparse_csr()
    >>> ones = metaop.ones(2, 3)
    >>> metaop.sparse.sampled_addmm(places, ones, ones.T).to_dense()
    tensor([[4., 0.],
            [0., 4.]])
    """
    if (mat1.shape[0], mat2.shape[-1]) != tuple(input.shape) or mat1.shape[1:] != mat2.shape[:-1]:
        raise ShapeError(
            f"sampled_addmm: {list(mat1.shape)} times {list(mat2.shape)} for a sparse matrix "
            f"of {list(input.shape)}"
        )
    rows: Any = mat1.index_select(0, input._axis(0))  # type: ignore[attr-defined]
    columns = mat2.mT.index_select(0, input._axis(1))  # type: ignore[attr-defined]
    return input._with(beta * input._values() + alpha * (rows * columns).sum(1))


def _product_by_rows(matrix: SparseTensor, other: Tensor) -> tuple[np.ndarray, Any]:
    """The rows of a matrix that store elements, and these rows of its product with a dense one."""
    coordinates = matrix._coordinates
    rows, which = np.unique(coordinates[0], return_inverse=True)
    places = np.stack([which.reshape(-1), coordinates[1]])
    compact = SparseTensor(places, matrix._values(), (len(rows), matrix.shape[1]))
    return rows, sparse_matmul(compact, other)


def hspmm(mat1: SparseTensor, mat2: Tensor) -> SparseTensor:
    """A sparse matrix times a dense one, as sparse rows that are dense: (N, K), (K, M) -> (N, M).

    >>> matrix = metaop.sparse_coo_tensor([[1], [0]], [2.0], (3, 2))
    >>> metaop.hspmm(matrix, metaop.ones(2, 2)).coalesce().indices()
    tensor([[1]])
    """
    rows, product = _product_by_rows(mat1, mat2)
    return SparseTensor(rows[None], product, (mat1.shape[0], *product.shape[1:]), is_coalesced=True)


def smm(input: SparseTensor, mat: Tensor) -> SparseTensor:
    """A sparse matrix times a dense one, as a sparse matrix: (N, K), (K, M) -> (N, M).

    It stores all elements of the rows in which `input` stores any.

    >>> matrix = metaop.sparse_coo_tensor([[1], [0]], [2.0], (3, 2))
    >>> metaop.smm(matrix, metaop.ones(2, 1))
    tensor(indices=tensor([[1],
                           [0]]),
           values=tensor([2.]),
           size=(3, 1), nnz=1, layout=metaop.sparse_coo)
    """
    rows, product = _product_by_rows(input, mat)
    columns = product.shape[1]
    places = np.stack([np.repeat(rows, columns), np.tile(np.arange(columns), len(rows))])
    size = input.shape[0], columns
    return SparseTensor(places, product.reshape(-1), size, is_coalesced=True)


def sspaddmm(
    input: SparseTensor,
    mat1: SparseTensor,
    mat2: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
) -> SparseTensor:
    """`beta * input + alpha * smm(mat1, mat2)`: (N, M), (N, K), (K, M) -> (N, M).

    >>> matrix = metaop.sparse_coo_tensor([[1], [0]], [2.0], (2, 2))
    >>> metaop.sspaddmm(matrix, matrix, metaop.eye(2), alpha=10).to_dense()
    tensor([[ 0.,  0.],
            [22.,  0.]])
    """
    return input * beta + smm(mat1, mat2) * alpha


spmm = dsmm = mm
hsmm = hspmm


def addmm(
    mat: Tensor, mat1: SparseTensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> Tensor:
    """`beta * mat + alpha * (mat1 @ mat2)`, with a sparse mat1: (N, M), (N, K), (K, M) -> (N, M).

    >>> matrix = metaop.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2))
    >>> metaop.sparse.addmm(metaop.ones(2, 1), matrix, metaop.tensor([[1.0], [10.0]]))
    tensor([[21.],
            [ 4.]])
    """
    return beta * mat + alpha * mm(mat1, mat2)  # type: ignore[operator]


def sum(input: SparseTensor, dim: Any = None, dtype: DType | None = None) -> Any:
    """The sum of all elements, or over the dimensions `dim`, which it removes.

    >>> matrix = metaop.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2))
    >>> metaop.sparse.sum(matrix)
    tensor(5.)
    """
    return input.sum(dim, dtype=dtype)


def softmax(input: SparseTensor, dim: int, *, dtype: DType | None = None) -> SparseTensor:
    """The softmax over the stored elements along a sparse dimension of a matrix.

    >>> matrix = metaop.sparse_coo_tensor([[0, 1, 1], [1, 0, 1]], [2.0, 3.0, 3.0], (2, 2))
    >>> metaop.sparse.softmax(matrix, 1).to_dense()
    tensor([[0.0000, 1.0000],
            [0.5000, 0.5000]])
    """
    exponentials, totals = _exponentials(input, dim, dtype)
    return input.coalesce()._with(exponentials / totals)


def log_softmax(input: SparseTensor, dim: int, *, dtype: DType | None = None) -> SparseTensor:
    """The logarithm of the softmax over the stored elements; the shape stays the same.

    >>> matrix = metaop.sparse_coo_tensor([[0, 1, 1], [1, 0, 1]], [2.0, 3.0, 3.0], (2, 2))
    >>> metaop.sparse.log_softmax(matrix, 1).to_dense()
    tensor([[ 0.0000,  0.0000],
            [-0.6931, -0.6931]])
    """
    exponentials, totals = _exponentials(input, dim, dtype)
    return input.coalesce()._with((exponentials / totals).log())


def _exponentials(input: SparseTensor, dim: int, dtype: DType | None) -> tuple[Any, Any]:
    """exp(value - maximum of its row or column), and for each value the sum of these over it."""
    ordered = input.coalesce()
    if ordered.sparse_dim() != 2 or ordered.dense_dim():
        raise UnsupportedError("sparse softmax: only matrices are supported")
    values: Any = ordered._values() if dtype is None else ordered._values().to(dtype)  # type: ignore
    line = 1 - dim % 2
    index = ordered._index(ordered._coordinates[line])
    count = ordered.shape[line]
    with metaop.no_grad():
        lowest = metaop.full((count,), -metaop.inf, dtype=values.dtype, device=values.device)
        largest = lowest.index_reduce(0, index, values, "amax")  # type: ignore[attr-defined]
    exponentials = (values - largest.index_select(0, index)).exp()
    totals = values.new_zeros(count).index_add(0, index, exponentials)
    return exponentials, totals.index_select(0, index)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> Any:
    """A matrix with the rows of `diagonals` on the diagonals `offsets`.

    `diagonals` is (count, N), `shape` is that of the matrix; element j of a row goes to column j.

    >>> diagonals, offsets = metaop.tensor([[1, 2], [3, 4]]), metaop.tensor([0, 1])
    >>> metaop.sparse.spdiags(diagonals, offsets, (2, 2)).to_dense()
    tensor([[1, 4],
            [0, 2]])
    """
    rows, columns = shape
    numbers = np.atleast_1d(offsets.numpy(force=True))
    lines: Any = diagonals if diagonals.ndim == 2 else diagonals.reshape(1, -1)  # type: ignore
    parts, coordinates = [], []
    for line, offset in enumerate(numbers.tolist()):
        column = np.arange(max(offset, 0), min(columns, rows + offset, lines.shape[1]))
        coordinates.append(np.stack([column - offset, column]))
        parts.append(lines[line, metaop.from_numpy(column)])
    found = sparse_coo_tensor(np.concatenate(coordinates, 1), metaop.cat(parts), shape).coalesce()
    return found.to_sparse_csr() if layout is metaop.sparse_csr else found


def _typed(name: str, dtype: DType) -> Callable[..., SparseTensor]:
    def construct(indices: Any, values: Any = None, size: Any = None) -> SparseTensor:
        return sparse_coo_tensor(indices, values, size, dtype=dtype)

    construct.__name__ = construct.__qualname__ = name
    construct.__doc__ = f"A sparse tensor of {dtype.name}, under PyTorch's legacy name."
    return construct


FloatTensor = _typed("FloatTensor", metaop.float32)
DoubleTensor = _typed("DoubleTensor", metaop.float64)
HalfTensor = _typed("HalfTensor", metaop.float16)
LongTensor = _typed("LongTensor", metaop.int64)


offer(globals())
