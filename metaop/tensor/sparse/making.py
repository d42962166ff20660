"""Making sparse tensors, from indices and values or from dense tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.errors import (
    ArgumentError,
    ArgumentTypeError,
    DimensionError,
    ShapeError,
    UnsupportedError,
)
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import as_tensor, zeros
from metaop.tensor.sparse.layouts import layout, sparse_coo, sparse_csc, sparse_csr
from metaop.tensor.sparse.tensors import SparseTensor
from metaop.tensor.surface import method, public
from metaop.unified_graph.dtype import DType


def _host_indices(indices: Any, what: str) -> np.ndarray:
    """Indices as an int64 array on the host."""
    array = indices.numpy(force=True) if isinstance(indices, Tensor) else np.asarray(indices)
    if array.dtype.kind not in "iu" and array.size:
        raise ArgumentTypeError(f"{what}: indices should be integers, got {array.dtype}")
    return array.astype(np.int64)


@method()
def sparse_dim(input: Tensor) -> int:
    """The number of sparse dimensions, which is 0 for a dense tensor."""
    return 0


@method()
def dense_dim(input: Tensor) -> int:
    """The number of dense dimensions, which is all for a dense tensor."""
    return input.ndim


def _refuse_dense(name: str) -> None:
    raise ArgumentError(
        f"{name} expected sparse coordinate tensor layout but got Strided",
        fix="call to_sparse() first",
    )


@method()
def coalesce(input: Tensor) -> Any:
    """Raises ArgumentError: only sparse tensors can have an index twice."""
    return _refuse_dense("coalesce")


@method()
def is_coalesced(input: Tensor) -> Any:
    """Raises ArgumentError: only sparse tensors can have an index twice."""
    return _refuse_dense("is_coalesced")


@method()
def sparse_mask(input: Tensor, mask: SparseTensor) -> SparseTensor:
    """The elements at the indices of the sparse tensor `mask`, as a sparse tensor.

    Raises ShapeError unless the shapes are equal.
    """
    if tuple(mask.shape) != tuple(input.shape):
        raise ShapeError(
            f"sparse_mask: operands have incompatible sizes; self has size {list(input.shape)} but "
            f"mask has size {list(mask.shape)}",
            fix="give a mask of the same shape",
        )
    values = input[tuple(mask._indices())]  # type: ignore[index]
    return SparseTensor(mask._given, values, mask.shape, sparse_coo, mask.is_coalesced())


@public()
def sparse_coo_tensor(
    indices: Any,
    values: Any = None,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """A tensor of `size` with `values` (count, …) at `indices` (dimensions, count).

    Without `size` it is as large as the indices need. Values with equal indices are summed.

    >>> x = metaop.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1.0, 2.0, 3.0], (2, 2))
    >>> x.to_dense()
    tensor([[0., 1.],
            [5., 0.]])
    """
    if values is None:  # `indices` is the size of an empty tensor
        shape = tuple(indices)
        held = zeros(0, dtype=dtype, device=device)
        return SparseTensor(np.zeros((len(shape), 0), np.int64), held, shape, sparse_coo, True)
    coordinates = _host_indices(indices, "sparse_coo_tensor")
    held = _values_of(values, dtype, device, requires_grad)
    if coordinates.ndim != 2 or coordinates.shape[1] != held.shape[0]:
        raise ShapeError(
            f"sparse_coo_tensor: indices {list(coordinates.shape)} and values {list(held.shape)}",
            fix="pass indices (dimensions, count) and values (count, …)",
        )
    if size is None:
        size = (*(coordinates.max(1, initial=-1) + 1).tolist(), *held.shape[1:])
    _check_indices(coordinates, held, tuple(size))
    return SparseTensor(coordinates, held, size, sparse_coo, bool(is_coalesced))


def _values_of(values: Any, dtype: DType | None, device: Any, requires_grad: bool) -> Tensor:
    held = as_tensor(values, dtype=dtype, device=device)
    return held.detach().requires_grad_() if requires_grad else held


def _check_indices(coordinates: np.ndarray, values: Tensor, size: tuple[int, ...]) -> None:
    if (
        len(size) != len(coordinates) + values.ndim - 1
        or size[len(coordinates) :] != values.shape[1:]
    ):
        raise ShapeError(
            f"a sparse tensor of size {list(size)} does not match {len(coordinates)} rows of "
            f"indices and values {list(values.shape)}"
        )
    extents = np.array(size[: len(coordinates)])[:, None]
    if ((coordinates < 0) | (coordinates >= extents)).any():
        raise DimensionError(f"an index is out of range for size {list(size)}")


@public()
def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> SparseTensor:
    """A CSR matrix: row `i` has the values from `crow_indices[i]` to `crow_indices[i + 1]`.

    `size` is (N, M); `col_indices` are the columns of the values.

    >>> metaop.sparse_csr_tensor([0, 1, 3], [1, 0, 1], [1.0, 2.0, 3.0], (2, 2)).to_dense()
    tensor([[0., 1.],
            [2., 3.]])
    """
    held = _values_of(values, dtype, device, requires_grad)
    return _compressed(sparse_csr, crow_indices, col_indices, held, size)


@public()
def sparse_csc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> SparseTensor:
    """A CSC matrix: column `j` has the values from `ccol_indices[j]` to `ccol_indices[j + 1]`.

    `size` is (N, M); `row_indices` are the rows of the values.

    >>> metaop.sparse_csc_tensor([0, 1, 3], [1, 0, 1], [1.0, 2.0, 3.0], (2, 2)).to_dense()
    tensor([[0., 2.],
            [1., 3.]])
    """
    held = _values_of(values, dtype, device, requires_grad)
    return _compressed(sparse_csc, ccol_indices, row_indices, held, size)


@public()
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    layout: layout | None = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> SparseTensor:
    """The matrix of `sparse_csr_tensor` or `sparse_csc_tensor`, as `layout` says.

    Raises ArgumentError for other layouts.

    >>> parts = [0, 1, 3], [1, 0, 1], [1.0, 2.0, 3.0]
    >>> metaop.sparse_compressed_tensor(*parts, layout=metaop.sparse_csc).row_indices()
    tensor([1, 0, 1])
    """
    forms = {sparse_csr: sparse_csr_tensor, sparse_csc: sparse_csc_tensor}
    if layout not in forms:
        raise ArgumentError(
            f"sparse_compressed_tensor: layout={layout}",
            fix="use layout=metaop.sparse_csr or metaop.sparse_csc",
        )
    return forms[layout](
        compressed_indices,
        plain_indices,
        values,
        size,
        dtype=dtype,
        device=device,
        requires_grad=requires_grad,
    )


def _compressed(
    kind: layout, offsets: Any, others: Any, values: Tensor, size: Sequence[int] | None
) -> SparseTensor:
    """The matrix whose rows (or columns, in CSC layout) `offsets` delimit.

    Raises ShapeError if they do not fit the values.
    """
    name, what = f"{kind._name}_tensor", "crow" if kind is sparse_csr else "ccol"
    starts, plain = _host_indices(offsets, name), _host_indices(others, name)
    counts = np.diff(starts)
    fits = starts.ndim == plain.ndim == 1 and len(plain) == values.shape[0] and len(starts) > 0
    if not fits or starts[0] != 0 or (counts < 0).any() or starts[-1] != len(plain):
        raise ShapeError(
            f"{name}: {what}_indices {starts.tolist()} do not count {len(plain)} indices and "
            f"{values.shape[0]} values",
            fix="pass one offset more than there are rows (or columns), which rise from 0 to the "
            "number of values",
        )
    # Rows come first, whichever of both is compressed.
    order = 1 if kind is sparse_csr else -1
    lines = np.repeat(np.arange(len(counts)), counts)
    coordinates = np.stack([lines, plain][::order])
    if size is None:
        size = (len(counts), int(plain.max(initial=-1)) + 1)[::order]
    _check_indices(coordinates, values, tuple(size))
    return SparseTensor(coordinates, values, size, kind, True)


@method()
def to_sparse(input: Tensor, sparseDims: Any = None, *, layout: layout | None = None) -> Any:
    """The tensor without its zeros; the first `sparseDims` dimensions are sparse, or else all."""
    count = input.ndim if sparseDims is None else sparseDims
    if layout not in (None, sparse_coo):
        return to_sparse(input).to_sparse(layout=layout)
    array = input.numpy(force=True)
    kept = (array != 0).any(tuple(range(count, input.ndim)))
    coordinates = np.stack(np.nonzero(kept)).astype(np.int64)
    found = SparseTensor(coordinates, input, input.shape, sparse_coo, True)
    found._held = input[tuple(found._index(one) for one in coordinates)]
    return found


@method()
def to_sparse_coo(input: Tensor) -> SparseTensor:
    """The tensor without its zeros, in COO layout."""
    return to_sparse(input)


@method()
def to_sparse_csr(input: Tensor) -> SparseTensor:
    """The matrix without its zeros, in CSR layout."""
    return to_sparse(input).to_sparse_csr()


@method()
def to_sparse_csc(input: Tensor) -> SparseTensor:
    """The matrix without its zeros, in CSC layout."""
    return to_sparse(input).to_sparse_csc()


@method()
def to_dense(input: Tensor, dtype: DType | None = None) -> Tensor:
    """The tensor itself, which is dense."""
    return input if dtype is None else input.to(dtype)


@method()
def indices(input: Tensor) -> Tensor:
    """Raises UnsupportedError: only sparse tensors have indices."""
    raise _dense("indices")


@method()
def values(input: Tensor) -> Tensor:
    """Raises UnsupportedError: only sparse tensors have values."""
    raise _dense("values")


def _dense(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"{name} expected sparse tensor layout but got Strided", fix="call .to_sparse() first"
    )
