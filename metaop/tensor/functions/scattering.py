"""Functions that read and write elements by index tensors and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.differentiation.tape import leave_unsummed
from metaop.elementwise.meta_op import broadcast_shapes
from metaop.errors import DimensionError, DTypeError, ShapeError
from metaop.operators import indexing as operators
from metaop.operators import places
from metaop.operators.basic import convert
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.casting import in_widest_type
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.indexing import getitem, host_tensor, split_key
from metaop.tensor.functions.indexing import put as put_at
from metaop.tensor.functions.places import held_places
from metaop.tensor.functions.selection import where
from metaop.tensor.functions.shaping import broadcast_to, clone, diagonal, flatten, reshape, select
from metaop.tensor.promotion import fitting_call
from metaop.tensor.surface import in_every_form, method, public
from metaop.unified_graph.dtype import int64
from metaop.unified_graph.recording import Call, record

Value = Tensor | int | float | bool


def _integer_index(name: str, index: Tensor) -> Call:
    if index.dtype.name not in ("int64", "int32"):
        if index.dtype.kind == "int":
            return record(convert, (index.call,), (int64,))
        raise DTypeError(
            f"{name}(): Expected dtype int64 for index, but got {index.dtype.name}",
            fix="convert the index with .long()",
        )
    return index.call


def _value(input: Tensor, value: Value) -> Call:
    if isinstance(value, Tensor):
        return value.call
    return fitting_call(value, input.dtype, input.device)


@public(method=True, out=True)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """`y[i][j] = input[i][index[i][j]]` for dim 1; `index` has the shape of the result.

    An index out of range raises DimensionError when the result is computed.

    >>> metaop.gather(metaop.tensor([[1, 2], [3, 4]]), 1, metaop.tensor([[1], [0]]))
    tensor([[2],
            [3]])
    """
    dim = wrap_dim(dim, input.ndim)
    if not input.ndim or not index.ndim:
        return gather(_row(input), 0, _row(index)).reshape(index.shape)
    _check_index("gather", input, dim, index)
    call = record(operators.gather, (input.call, _integer_index("gather", index)), (dim,))
    if sparse_grad:
        leave_unsummed(call, 0)
    return wrap(call)


def _row(input: Tensor) -> Tensor:
    """A 0-d tensor as a vector of one element."""
    return input if input.ndim else reshape(input, 1)


def _check_index(name: str, input: Tensor, dim: int, index: Tensor) -> None:
    own, other = input._shape, index._shape
    fits = len(own) == len(other) and all(
        b <= a for k, (a, b) in enumerate(zip(own, other)) if k != dim
    )
    if not fits and index.numel():
        raise ShapeError(
            f"{name}(): Size does not match: index {list(other)} must have as many dimensions as "
            f"the tensor {list(own)} and be no larger apart from dimension {dim}"
        )


@in_every_form()
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Value | None = None, *,
    value: Value | None = None, reduce: str | None = None,
) -> Tensor:  # fmt: skip
    """`input` with `src[i][j]` written to `[i][index[i][j]]` for dim 1; the shape is the input's.

    Of several values for one element, the last remains; `reduce` may be "add" or "multiply".

    >>> metaop.scatter(metaop.zeros(1, 3), 1, metaop.tensor([[2, 0]]), metaop.tensor([[5.0, 7.0]]))
    tensor([[7., 0., 5.]])
    """
    return _scatter("scatter", input, dim, index, src if value is None else value, reduce, True)


@in_every_form()
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`scatter` that adds to the elements; the shape is the input's.

    >>> metaop.scatter_add(metaop.ones(3), 0, metaop.tensor([0, 0]), metaop.tensor([5.0, 7.0]))
    tensor([13.,  1.,  1.])
    """
    return _scatter("scatter_add", input, dim, index, src, "sum", True)


@in_every_form()
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`scatter` that combines by "sum", "prod", "mean", "amax" or "amin".

    Without `include_self`, elements of `input` stay only where nothing is written. Raises
    ArgumentError for other reductions; the shape is the input's.

    >>> index, src = metaop.tensor([0, 0]), metaop.tensor([5.0, 7.0])
    >>> metaop.scatter_reduce(metaop.ones(2), 0, index, src, "amax")
    tensor([7., 1.])
    """
    return _scatter("scatter_reduce", input, dim, index, src, reduce, include_self)


def _scatter(
    name: str, input: Tensor, dim: int, index: Tensor, src: Any, reduce: str | None, own: bool
) -> Tensor:
    dim = wrap_dim(dim, input.ndim)
    if not input.ndim or (not index.ndim and input.ndim == 1):
        source = _row(src) if isinstance(src, Tensor) else src
        found = _scatter(name, _row(input), 0, _row(index), source, reduce, own)
        return found.reshape(input.shape)
    _check_index(name, input, dim, index)
    if isinstance(src, Tensor):
        if any(a > b for a, b in zip(index._shape, src._shape)) or src.ndim != index.ndim:
            raise ShapeError(
                f"{name}(): index {list(index.shape)} is larger than src {list(src.shape)}"
            )
        if src.dtype is not input.dtype:
            raise DTypeError(
                f"{name}(): Expected self.dtype to be equal to src.dtype, got {input.dtype.name} "
                f"and {src.dtype.name}",
                fix="convert src with .to(input.dtype)",
            )
    if index.ndim != input.ndim:  # without elements, so it goes nowhere
        return clone(input)
    calls = (input.call, _integer_index(name, index), _value(input, src))
    return wrap(record(operators.scatter, calls, (dim, reduce, own)))


@public(method=True, out=True)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices of `dim` at a vector of positions, whose length becomes the size of the dimension.

    An index out of range raises DimensionError when the result is computed.

    >>> metaop.index_select(metaop.tensor([[1, 2], [3, 4]]), 1, metaop.tensor([1, 1, 0]))
    tensor([[2, 2, 1],
            [4, 4, 3]])
    """
    if index.ndim > 1:
        raise DimensionError("index_select(): Index is supposed to be a vector")
    call = _integer_index("index_select", index)
    dim = wrap_dim(dim, input.ndim)
    if not input.ndim:
        return reshape(index_select(reshape(input, 1), 0, index), ())
    if not index.ndim:
        call = reshape(index, 1).call
    return wrap(record(operators.take, (input.call, call), (dim,)))


def _rows(
    name: str, input: Tensor, dim: int, index: Tensor, source: Value, reduce: str | None,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    if index.ndim > 1:
        raise DimensionError(f"{name}(): Index should have dimension 1 or 0 (got {index.ndim})")
    if not input.ndim:
        inner = source.reshape(-1) if isinstance(source, Tensor) and source.ndim else source
        return _rows(name, reshape(input, 1), 0, index, inner, reduce, include_self).reshape(())
    dim = wrap_dim(dim, input.ndim)
    if isinstance(source, Tensor):
        wanted = (*input._shape[:dim], index.numel(), *input._shape[dim + 1 :])
        if source.dtype is not input.dtype:
            raise DTypeError(
                f"{name}(): self ({input.dtype.name}) and source ({source.dtype.name}) must have "
                "the same scalar type"
            )
        if source._shape != wanted and (source.ndim or reduce is not None):
            if source.numel() != 1 or wanted != (1,) * len(wanted):
                raise ShapeError(
                    f"{name}(): source has shape {list(source.shape)}, expected {list(wanted)}"
                )
    calls = (input.call, _integer_index(name, index), _value(input, source))
    return wrap(record(operators.scatter_rows, calls, (dim, reduce, include_self)))


@in_every_form()
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Value = 1
) -> Tensor:
    """`alpha * source[k]` added to slice `index[k]` of `dim`, for every k.

    The shape is that of the input.

    >>> metaop.index_add(metaop.zeros(3), 0, metaop.tensor([2, 2]), metaop.tensor([1.0, 5.0]))
    tensor([0., 0., 6.])
    """
    scaled = source if alpha == 1 else source * alpha
    return _rows("index_add", input, dim, index, scaled, "sum")


@in_every_form(precision=in_widest_type)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`source[k]` written to slice `index[k]` of `dim`, for every k; the shape is the input's.

    >>> metaop.index_copy(metaop.zeros(3), 0, metaop.tensor([2, 0]), metaop.tensor([1.0, 5.0]))
    tensor([5., 0., 1.])
    """
    return _rows("index_copy", input, dim, index, source, None)


@public(method=True, in_place=True)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Value) -> Tensor:
    """Slices `index` of `dim` filled with a number; the shape is the input's.

    >>> metaop.index_fill(metaop.zeros(3), 0, metaop.tensor([0, 2]), 7.0)
    tensor([7., 0., 7.])
    """
    return _rows("index_fill", input, dim, index, value, None)


@in_every_form()
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """`index_copy` that combines by "prod", "mean", "amax" or "amin".

    The shape is the input's; without `include_self`, only the written values are combined.

    >>> index, source = metaop.tensor([0, 0]), metaop.tensor([5.0, 7.0])
    >>> metaop.index_reduce(metaop.ones(2), 0, index, source, "prod")
    tensor([35.,  1.])
    """
    return _rows("index_reduce", input, dim, index, source, reduce, include_self)


@public(method=True)
def index_put(
    input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`input` with `values` written (or added) at `indices`; the shape is the input's.

    `indices` is a tuple of tensors, one for each of the first dimensions.

    >>> metaop.index_put(metaop.zeros(3), (metaop.tensor([0, 2]),), metaop.tensor(7.0))
    tensor([7., 0., 7.])
    """
    return index_put_(clone(input), indices, values, accumulate)


@public(method=True)
def index_put_(
    input: Tensor, indices: Sequence[Tensor], values: Value, accumulate: bool = False
) -> Tensor:
    """Writes (or adds, for each repeated index) `values` at `indices`; the shape stays.

    `indices` is a tuple of tensors, one for each of the first dimensions.

    >>> places = (metaop.tensor([0, 0]),)
    >>> metaop.index_put_(metaop.zeros(3), places, metaop.tensor(7.0), accumulate=True)
    tensor([14.,  0.,  0.])
    """
    key = tuple([slice(None) if index is None else index for index in indices])
    basic, tensors, dims = split_key(input, key)
    put_at(getitem(input, basic), tensors, dims, values, accumulate)
    return input


@public(method=True, out=True)
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements at positions in the flattened tensor; the result has the shape of `index`.

    An index out of range raises DimensionError when the result is computed.

    >>> metaop.take(metaop.tensor([[1, 2], [3, 4]]), metaop.tensor([3, 0]))
    tensor([4, 1])
    """
    if index.numel() and not input.numel():
        raise DimensionError("take(): tried to take from an empty tensor", fix="check .numel()")
    return getitem(flatten(input), index) if index.ndim else getitem(flatten(input), int(index))


@public(method=True, in_place=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """`source` written (or added) at positions in the flattened tensor; the shape is the input's.

    >>> metaop.put(metaop.zeros(2, 2), metaop.tensor([3]), metaop.tensor([5.0]))
    tensor([[0., 0.],
            [0., 5.]])
    """
    flat = clone(flatten(input))
    put_at(flat, [flatten(index)], (0,), flatten(source), accumulate)
    return reshape(flat, input.shape)


@public(method=True, out=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather` whose operands are broadcast; over the flattened tensor without `dim`.

    The other dimensions of `input` and `indices` broadcast, so it accepts the result of `argsort`.

    >>> x = metaop.tensor([[3, 1], [2, 4]])
    >>> metaop.take_along_dim(x, x.argsort(1), 1)
    tensor([[1, 3],
            [2, 4]])
    """
    if dim is None:
        indices = where(indices < 0, indices + input.numel(), indices)
        return gather(flatten(input), 0, flatten(indices))
    dim = wrap_dim(dim, input.ndim)
    shape = broadcast_shapes(
        "take_along_dim",
        (*input._shape[:dim], 1, *input._shape[dim + 1 :]),
        (*indices._shape[:dim], 1, *indices._shape[dim + 1 :]),
    )
    indices = where(indices < 0, indices + input._shape[dim], indices)
    own = (*shape[:dim], input._shape[dim], *shape[dim + 1 :])
    other = (*shape[:dim], indices._shape[dim], *shape[dim + 1 :])
    return gather(broadcast_to(input, own), dim, broadcast_to(indices, other))


def _mask(name: str, mask: Tensor) -> Tensor:
    if mask.dtype.name not in ("bool", "uint8"):
        raise DTypeError(
            f"{name} only supports boolean masks, but got mask with dtype {mask.dtype.name}",
            fix="compare first, or convert with .bool()",
        )
    return mask if mask.dtype.name == "bool" else mask.bool()


@public(method=True, in_place=True)
def masked_fill(input: Tensor, mask: Tensor, value: Value) -> Tensor:
    """`value` where the mask is true, else `input`; the mask broadcasts to the shape of `input`.

    >>> metaop.masked_fill(metaop.tensor([1.0, 2.0]), metaop.tensor([False, True]), 0.5)
    tensor([1.0000, 0.5000])
    """
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(
            "masked_fill only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    calls = (_mask("masked_fill", mask).call, _value(input, value), input.call)
    return wrap(record(operators.select_by_mask, calls))


@public(method=True, out=True)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is true, in one dimension; their number is read.

    >>> metaop.masked_select(metaop.tensor([1, 2, 3]), metaop.tensor([True, False, True]))
    tensor([1, 3])
    """
    mask = _mask("masked_select", mask)
    shape = broadcast_shapes("masked_select", input._shape, mask._shape)
    flat = flatten(broadcast_to(input, shape))
    return index_select(flat, 0, held_places(broadcast_to(mask, shape)))


@public(method=True, in_place=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` with the elements of `source`, in order, where the mask is true.

    The shape is the input's; `source` has at least as many elements as the mask has true ones.

    >>> mask = metaop.tensor([False, True, True])
    >>> metaop.masked_scatter(metaop.zeros(3), mask, metaop.tensor([5.0, 7.0]))
    tensor([0., 5., 7.])
    """
    mask = _mask("masked_scatter", mask)
    shape = broadcast_shapes("masked_scatter", input._shape, mask._shape)
    whole, mask, values = broadcast_to(input, shape), broadcast_to(mask, shape), flatten(source)
    if not whole.numel():
        return clone(whole)
    return wrap(record(places.masked_scatter, (mask.call, values.call, whole.call)))


@public()
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor of the shape of `input` with `value`, a number or a 0-d tensor, everywhere.

    >>> metaop.fill(metaop.zeros(2), 3)
    tensor([3., 3.])
    """
    return input.clone().fill_(value)


@public(method=True)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `input` with `src` in slice `index` of `dim`; `src` lacks that dimension.

    >>> metaop.select_scatter(metaop.zeros(2, 2), metaop.ones(2), 0, 1)
    tensor([[0., 0.],
            [1., 1.]])
    """
    result = clone(input)
    select(result, dim, index).copy_(src)
    return result


@method()
def fill_diagonal_(input: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Writes a number on the main diagonal; with `wrap`, again below the square of a tall matrix.

    Tensors with more than two dimensions need equal sizes.
    """
    shape = input._shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError(
            f"fill_diagonal_: a tensor of shape {list(shape)} has no main diagonal",
            fix="pass two dimensions, or more of equal size",
        )
    size = input.numel()
    step = sum(size // np.prod(shape[: k + 1], dtype=int) for k in range(len(shape)))
    last = size if wrap or len(shape) > 2 else min(shape) * int(step)
    flat = input.reshape(-1).index_fill(
        0, host_tensor(np.arange(0, last, step)).to(input.device), fill_value
    )
    input._rebind(flat.reshape(shape).call, "fill_diagonal_")
    return input


@public(method=True, out=True)
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """A copy of `input` with `src`, which has the size of the slice, in a slice of `dim`.

    >>> metaop.slice_scatter(metaop.zeros(4), metaop.ones(2), 0, 1, 3)
    tensor([0., 1., 1., 0.])
    """
    result = clone(input)
    key = (slice(None),) * wrap_dim(dim, input.ndim) + (slice(start, end, step),)
    getitem(result, key).copy_(src)
    return result


@public(method=True)
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy of `input` with `src` on a diagonal; `src` has the shape that `diagonal` gives.

    >>> metaop.diagonal_scatter(metaop.zeros(2, 2), metaop.ones(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    result = clone(input)
    diagonal(result, offset, dim1, dim2).copy_(src)
    return result
