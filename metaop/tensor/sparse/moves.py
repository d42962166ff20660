"""Movements of sparse tensors: their coordinates move on the host, dense dimensions in the values.

Dimension `d` of a tensor with `count` sparse dimensions is a row of the coordinates if it is below
`count`, and otherwise dimension `d - count + 1` of the values. Matrices in CSR and CSC layout are
moved as coordinates, so results have COO layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.errors import DimensionError, ShapeError, UnsupportedError
from metaop.tensor.arguments import WHOLE, sizes, wrap_dim, wrap_dims
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat as cat_dense
from metaop.tensor.sparse.forms import of_sparse
from metaop.tensor.sparse.layouts import sparse_coo
from metaop.tensor.sparse.tensors import SparseTensor, matches


def _parts(input: SparseTensor, dim: int) -> tuple[SparseTensor, int, int]:
    """The tensor in COO layout, `dim` counted from 0, and its dimension of the values or 0."""
    found, place = input.to_sparse(), wrap_dim(dim, input.ndim)
    return found, place, max(place - input.sparse_dim() + 1, 0)


def _resized(shape: Sequence[int], dim: int, extent: int) -> tuple[int, ...]:
    return (*shape[:dim], extent, *shape[dim + 1 :])


@of_sparse()
def select(input: SparseTensor, dim: int, index: int) -> Any:
    """The elements at an index of a dimension, which it removes: dense if no sparse one is left."""
    found, place, inner = _parts(input, dim)
    shape = (*input.shape[:place], *input.shape[place + 1 :])
    index = _wrap_index(index, input.shape[place])
    if inner:
        values = found._held.select(inner, index)
        return SparseTensor(found._given, values, shape, sparse_coo, found._ordered)
    kept = np.flatnonzero(found._coordinates[place] == index)
    if found.sparse_dim() == 1:
        return found._at(kept).sum(0)
    places = np.delete(found._coordinates, place, 0)[:, kept]
    return SparseTensor(places, found._at(kept), shape, sparse_coo, found._ordered)


def _wrap_index(index: int, extent: int) -> int:
    if not -extent <= index < extent:
        raise DimensionError(f"index {index} is out of range for a dimension of size {extent}")
    return index % extent


@of_sparse()
def narrow(input: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    """`length` of the indices of a dimension, from `start` on.

    Raises DimensionError if there are fewer.
    """
    extent = input.shape[wrap_dim(dim, input.ndim)]
    first = start + extent if start < 0 else start
    if not (0 <= first and 0 <= length and first + length <= extent):
        raise DimensionError(f"start ({start}) + length ({length}) exceeds dimension size {extent}")
    return _sliced(input, dim, slice(first, first + length))


of_sparse("narrow_copy")(narrow)


def _sliced(input: SparseTensor, dim: int, part: slice) -> SparseTensor:
    found, place, inner = _parts(input, dim)
    indices = range(*part.indices(input.shape[place]))
    if indices.step < 0:
        raise DimensionError("slice step must be positive", fix="use index_select")
    shape = _resized(input.shape, place, len(indices))
    if inner:
        values = found._held[(slice(None),) * inner + (part,)]
        return SparseTensor(found._given, values, shape, sparse_coo, found._ordered)
    offsets, rest = np.divmod(found._coordinates[place] - indices.start, indices.step)
    kept = np.flatnonzero((rest == 0) & (offsets >= 0) & (offsets < len(indices)))
    places = found._coordinates[:, kept]
    places[place] = offsets[kept]
    return SparseTensor(places, found._at(kept), shape, sparse_coo, found._ordered)


@of_sparse()
def index_select(input: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """The elements at the indices (N,) of a dimension, which has size N afterwards.

    Raises DimensionError for an index out of range.
    """
    found, place, inner = _parts(input, dim)
    wanted, extent = index.numpy(force=True), input.shape[place]  # type: ignore[attr-defined]
    if ((wanted < 0) | (wanted >= extent)).any():
        raise DimensionError(f"index_select(): index out of range for a dimension of {extent}")
    shape = _resized(input.shape, place, len(wanted))
    if inner:
        values = found._held.index_select(inner, index)
        return SparseTensor(found._given, values, shape, sparse_coo, found._ordered)
    order = np.argsort(found._coordinates[place], kind="stable")
    first, second = matches(found._coordinates[place][order], wanted)
    places = found._coordinates[:, order[first]]
    places[place] = second
    return SparseTensor(places, found._at(order[first]), shape)


@of_sparse()
def unbind(input: SparseTensor, dim: int = 0) -> tuple[Any, ...]:
    """The tensors at each index of a dimension."""
    extent = input.shape[wrap_dim(dim, input.ndim)]
    return tuple([select(input, dim, index) for index in range(extent)])


@of_sparse()
def permute(input: SparseTensor, *dims: Any) -> SparseTensor:
    """The tensor with its dimensions in another order; sparse ones stay before dense ones.

    Raises ShapeError unless every dimension is there once, and UnsupportedError if a sparse
    dimension would change places with a dense one.
    """
    order = wrap_dims(sizes(dims), input.ndim)
    if len(order) != input.ndim:
        raise ShapeError(f"permute: {len(order)} dimensions for a tensor of {input.ndim}")
    found, count = input.to_sparse(), input.sparse_dim()
    if sorted(order[:count]) != list(range(count)):
        raise UnsupportedError(
            "permute: transpositions between sparse and dense dimensions are not allowed"
        )
    inner = [0, *(one - count + 1 for one in order[count:])]
    shape = [input.shape[one] for one in order]
    places = np.ascontiguousarray(found._coordinates[list(order[:count])])
    return SparseTensor(places, found._held.permute(inner), shape)


@of_sparse("transpose", "swapaxes", "swapdims")
def transpose(input: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    """The tensor with two dimensions swapped: matrices as in `t`, other tensors as in `permute`."""
    first, second = wrap_dim(dim0, input.ndim), wrap_dim(dim1, input.ndim)
    if input.layout is not sparse_coo:
        return input if first == second else input.t()
    order = list(range(input.ndim))
    order[first], order[second] = second, first
    return permute(input, order)


@of_sparse()
def unsqueeze(input: SparseTensor, dim: int) -> SparseTensor:
    """The tensor with a dimension of size 1 more: a sparse one, unless it follows a dense one."""
    found, place = input.to_sparse(), wrap_dim(dim, input.ndim + 1)
    shape, count = (*input.shape[:place], 1, *input.shape[place:]), input.sparse_dim()
    places, values = found._given, found._held
    if place > count:
        values = values.unsqueeze(place - count + 1)
    else:
        places = np.insert(found._coordinates, place, 0, 0)
    return SparseTensor(places, values, shape, sparse_coo, found._ordered)


@of_sparse()
def squeeze(input: SparseTensor, dim: int | Sequence[int] | None = None) -> Any:
    """The tensor without its dimensions of size 1, or without those of `dim` that have it."""
    dims = range(input.ndim) if dim is None else wrap_dims(dim, input.ndim)
    for one in sorted(dims, reverse=True):
        if input.shape[one] == 1:
            input = select(input, one, 0)
    return input


@of_sparse("cat", "concat", "concatenate", method=False)
def cat(tensors: Sequence[SparseTensor], dim: int = 0) -> SparseTensor:
    """Sparse tensors one after another along a dimension; their sizes differ only there.

    Raises UnsupportedError if one is dense, and ShapeError for other sizes or other numbers of
    sparse dimensions.
    """
    if not all(isinstance(one, SparseTensor) for one in tensors):
        raise UnsupportedError(
            "cat of sparse and dense tensors", fix="call .to_sparse() or .to_dense() on some"
        )
    found, place, inner = _parts(tensors[0], dim)
    parts = [one.to_sparse() for one in tensors]
    alike = {(_resized(one.shape, place, 0), one.sparse_dim()) for one in parts}
    if len(alike) > 1:
        raise ShapeError(
            f"cat: sparse tensors of {[list(one.shape) for one in parts]} with "
            f"{[one.sparse_dim() for one in parts]} sparse dimensions along dimension {place}"
        )
    extents = [one.shape[place] for one in parts]
    begins = np.concatenate(([0], np.cumsum(extents)))
    values, places = [one._held for one in parts], [one._coordinates for one in parts]
    if inner:
        values = [
            _padded(one, inner, int(begin), int(begins[-1])) for one, begin in zip(values, begins)
        ]
    else:
        places = [one + _at_row(place, len(one), begin) for one, begin in zip(places, begins)]
    shape = _resized(found.shape, place, int(begins[-1]))
    return SparseTensor(np.concatenate(places, 1), cat_dense(values), shape)


def _at_row(row: int, count: int, number: int) -> np.ndarray:
    column = np.zeros((count, 1), np.int64)
    column[row] = number
    return column


def _padded(values: Tensor, dim: int, before: int, extent: int) -> Tensor:
    """The values with zeros around them, so that `dim` has `extent`."""
    after = extent - before - values.shape[dim]
    zeros = [
        values.new_zeros(_resized(values.shape, dim, count))  # type: ignore[attr-defined]
        for count in (before, after)
    ]
    return cat_dense([zeros[0], values, zeros[1]], dim)


@of_sparse(method=False)
def stack(tensors: Sequence[SparseTensor], dim: int = 0) -> SparseTensor:
    """Sparse tensors of one size along a new dimension."""
    place = wrap_dim(dim, tensors[0].ndim + 1)
    return cat([unsqueeze(one, place) for one in tensors], place)


@of_sparse("__getitem__")
def item(input: SparseTensor, index: Any) -> Any:
    """The elements at indices, slices, None and one `...`, as `select`, `narrow` and `unsqueeze`.

    Raises UnsupportedError for tensors, lists and masks, and DimensionError for too many indices.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    free = input.ndim - sum(one is not None and one is not Ellipsis for one in parts)
    if free < 0:
        raise DimensionError(f"too many indices for a sparse tensor of dimension {input.ndim}")
    if Ellipsis in parts:
        where = parts.index(Ellipsis)
        parts[where : where + 1] = [slice(None)] * free
    result: Any = input
    dim = 0
    for one in parts:
        if isinstance(one, WHOLE) and not isinstance(one, bool):
            result = result.select(dim, int(one))
            continue
        if one is None:
            result = result.unsqueeze(dim)
        elif not isinstance(one, slice):
            raise UnsupportedError(
                f"a sparse tensor cannot be indexed with {type(one).__name__}",
                fix="use index_select for one dimension, or call .to_dense() first",
            )
        elif one != slice(None):
            whole = (slice(None),) * dim
            dense = isinstance(result, Tensor)
            result = result[whole + (one,)] if dense else _sliced(result, dim, one)
        dim += 1
    return result
