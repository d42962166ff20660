"""Making sparse tensors: of indices and values, and of dense tensors."""

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
from metaop.tensor.sparse.layouts import layout, sparse_coo, sparse_csr
from metaop.tensor.sparse.tensors import SparseTensor
from metaop.tensor.surface import method, public
from metaop.unified_graph.dtype import DType


def _places(indices: Any, what: str) -> np.ndarray:
    """Indices as an int64 array of the host."""
    array = indices.numpy(force=True) if isinstance(indices, Tensor) else np.asarray(indices)
    if array.dtype.kind not in "iu" and array.size:
        raise ArgumentTypeError(f"{what}: indices should be integers, got {array.dtype}")
    return array.astype(np.int64)


@method()
def sparse_dim(input: Tensor) -> int:
    """The number of dimensions of which only some indices are kept: none."""
    return 0


@method()
def dense_dim(input: Tensor) -> int:
    """The number of dimensions all of whose indices are kept: all."""
    return input.ndim


def _refuse_dense(name: str) -> None:
    raise ArgumentError(
        f"{name} expected sparse coordinate tensor layout but got Strided",
        fix="call to_sparse() first",
    )


@method()
def coalesce(input: Tensor) -> Any:
    """Raises ArgumentError: only sparse tensors may keep a place twice."""
    return _refuse_dense("coalesce")


@method()
def is_coalesced(input: Tensor) -> Any:
    """Raises ArgumentError: only sparse tensors may keep a place twice."""
    return _refuse_dense("is_coalesced")


@method()
def sparse_mask(input: Tensor, mask: SparseTensor) -> SparseTensor:
    """The elements where the sparse tensor `mask` has some, as a sparse tensor.

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

    Without `size` it is as large as the indices need. Values of the same place add up.

    >>> x = metaop.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1.0, 2.0, 3.0], (2, 2))
    >>> x.to_dense()
    tensor([[0., 1.],
            [5., 0.]])
    """
    if values is None:  # only a size: nothing is kept
        shape = tuple(indices)
        held = zeros(0, dtype=dtype, device=device)
        return SparseTensor(np.zeros((len(shape), 0), np.int64), held, shape, sparse_coo, True)
    places = _places(indices, "sparse_coo_tensor")
    held = _values_of(values, dtype, device, requires_grad)
    if places.ndim != 2 or places.shape[1] != held.shape[0]:
        raise ShapeError(
            f"sparse_coo_tensor: indices {list(places.shape)} and values {list(held.shape)}",
            fix="pass indices (dimensions, count) and values (count, …)",
        )
    if size is None:
        size = (*(places.max(1, initial=-1) + 1).tolist(), *held.shape[1:])
    _check_places(places, held, tuple(size))
    return SparseTensor(places, held, size, sparse_coo, bool(is_coalesced))


def _values_of(values: Any, dtype: DType | None, device: Any, requires_grad: bool) -> Tensor:
    held = as_tensor(values, dtype=dtype, device=device)
    return held.detach().requires_grad_() if requires_grad else held


def _check_places(places: np.ndarray, values: Tensor, size: tuple[int, ...]) -> None:
    if len(size) != len(places) + values.ndim - 1 or size[len(places) :] != values.shape[1:]:
        raise ShapeError(
            f"a sparse tensor of size {list(size)} does not fit {len(places)} rows of indices and "
            f"values {list(values.shape)}"
        )
    extents = np.array(size[: len(places)])[:, None]
    if ((places < 0) | (places >= extents)).any():
        raise DimensionError(f"an index lies outside the size {list(size)}")


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
    """A matrix by rows: row `i` has the values from `crow_indices[i]` to `crow_indices[i + 1]`.

    `size` is (N, M); `col_indices` says in which columns the values stand.

    >>> metaop.sparse_csr_tensor([0, 1, 3], [1, 0, 1], [1.0, 2.0, 3.0], (2, 2)).to_dense()
    tensor([[0., 1.],
            [2., 3.]])
    """
    starts = _places(crow_indices, "sparse_csr_tensor")
    columns = _places(col_indices, "sparse_csr_tensor")
    held = _values_of(values, dtype, device, requires_grad)
    counts = np.diff(starts)
    fits = starts.ndim == columns.ndim == 1 and len(columns) == held.shape[0]
    if not fits or starts[0] != 0 or (counts < 0).any() or starts[-1] != len(columns):
        raise ShapeError(
            f"sparse_csr_tensor: crow_indices {starts.tolist()} do not count {len(columns)} "
            f"columns and {held.shape[0]} values",
            fix="they rise from 0 to the number of values, one more than there are rows",
        )
    places = np.stack([np.repeat(np.arange(len(counts)), counts), columns])
    if size is None:
        size = (len(counts), int(columns.max(initial=-1)) + 1)
    _check_places(places, held, tuple(size))
    return SparseTensor(places, held, size, sparse_csr, True)


@method()
def to_sparse(input: Tensor, sparseDims: Any = None, *, layout: layout | None = None) -> Any:
    """The elements that are not zero; `sparseDims` of the dimensions are sparse, all by default."""
    count = input.ndim if sparseDims is None else sparseDims
    if layout is sparse_csr:
        return to_sparse_csr(input)
    array = input.numpy(force=True)
    kept = (array != 0).any(tuple(range(count, input.ndim)))
    places = np.stack(np.nonzero(kept)).astype(np.int64)
    found = SparseTensor(places, input, input.shape, sparse_coo, True)
    found._held = input[tuple(found._index(place) for place in places)]
    return found


@method()
def to_sparse_coo(input: Tensor) -> SparseTensor:
    """The elements that are not zero, by coordinates."""
    return to_sparse(input)


@method()
def to_sparse_csr(input: Tensor) -> SparseTensor:
    """The elements of a matrix that are not zero, by rows."""
    return to_sparse(input).to_sparse_csr()


@method()
def to_dense(input: Tensor, dtype: DType | None = None) -> Tensor:
    """The tensor itself, which is dense."""
    return input if dtype is None else input.to(dtype)


@method()
def indices(input: Tensor) -> Tensor:
    """The coordinates of a sparse tensor's values: an error for dense ones."""
    raise _dense("indices")


@method()
def values(input: Tensor) -> Tensor:
    """The values of a sparse tensor: an error for dense ones."""
    raise _dense("values")


def _dense(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"{name} expected sparse tensor layout but got Strided", fix="call .to_sparse() first"
    )
