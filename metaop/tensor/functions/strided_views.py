"""The layout of elements in a storage: strides, offsets, and views that choose both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.errors import ShapeError
from metaop.operators import shaping as operators
from metaop.operators.view_write import view_write
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.core import view as view_of
from metaop.tensor.functions.complex_numbers import view_as_complex, view_as_real
from metaop.tensor.functions.shaping import clone
from metaop.tensor.storage import owner_and_layout
from metaop.tensor.strides import is_row_major
from metaop.tensor.surface import method, public
from metaop.unified_graph.recording import record


@method()
def stride(input: Tensor, dim: int | None = None) -> Any:
    """The distances between neighbours along each dimension (or `dim`), in elements."""
    strides = owner_and_layout(input)[1][0]
    return strides if dim is None else strides[wrap_dim(dim, len(strides))]


@method()
def storage_offset(input: Tensor) -> int:
    """The position of the first element in the storage of the base."""
    return owner_and_layout(input)[1][1]


@method()
def is_contiguous(input: Tensor, memory_format: object = None) -> bool:
    """Whether the elements lie in row-major order without gaps."""
    return input._base is None or is_row_major(input._shape, stride(input))


@method()
def contiguous(input: Tensor, memory_format: object = None) -> Tensor:
    """The tensor itself when it is contiguous, else a copy that is."""
    return input if is_contiguous(input) else clone(input)


@public(method=True)
def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """The storage of `input` (of its base, for a view) read with other sizes and strides.

    `size` is the shape; strides and the offset are counted in elements. Raises ShapeError for
    places outside of the storage.

    >>> metaop.as_strided(metaop.arange(4), (3, 2), (1, 1))
    tensor([[0, 1],
            [1, 2],
            [2, 3]])
    """
    offset = owner_and_layout(input)[1][1] if storage_offset is None else storage_offset
    source = input if input._base is None else input._base
    if source.dtype is not input.dtype:
        source = view_as_real(source) if source.dtype.is_complex else view_as_complex(source)
    size, stride = tuple(size), tuple(stride)
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    if 0 not in size and last >= source.numel():
        raise ShapeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} are "
            f"out of bounds for storage of {source.numel()} elements"
        )
    return view_of(source, operators.as_strided, (size, stride, offset))


@public(method=True)
def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """A copy of `input` with `src` at the places that `as_strided` would show.

    `src` has the shape `size`.

    >>> metaop.as_strided_scatter(metaop.zeros(4), metaop.ones(2), (2,), (2,))
    tensor([1., 0., 1., 0.])
    """
    steps = ((operators.as_strided, (tuple(size), tuple(stride), storage_offset or 0)),)
    return wrap(record(view_write, (input.call, src.call), (steps,)))


@public(method=True)
def as_strided_(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """`as_strided` that makes the tensor itself the view; its shape is `size` then.

    >>> metaop.as_strided_(metaop.arange(4), (2,), (2,))
    tensor([0, 2])
    """
    seen = as_strided(input, size, stride, storage_offset)
    if input._base is None:
        return input._show_as(*seen._steps[-1])
    input._steps = seen._steps
    input._bind(seen.call)
    return input
