"""Cutting tensors into pieces (views) and joining pieces (copies)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate

from metaop.elementwise.meta_op import broadcast_shapes as common_shape
from metaop.errors import ArgumentError, ArgumentTypeError, DimensionError, ShapeError
from metaop.operators import shaping as operators
from metaop.tensor.arguments import WHOLE, sizes, wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.shaping import expand, narrow, select, unsqueeze
from metaop.tensor.size import Size
from metaop.tensor.surface import public, synonym
from metaop.unified_graph.dtype import DType, promote
from metaop.unified_graph.recording import record


@public(method=True)
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All slices along `dim`, which is removed: views.

    Their number is the size of the dimension.

    >>> metaop.unbind(metaop.tensor([[1, 2], [3, 4]]), 1)
    (tensor([1, 3]), tensor([2, 4]))
    """
    if not input.ndim:
        raise DimensionError("unbind: a tensor without dimensions", fix="use unsqueeze(0) first")
    dim = wrap_dim(dim, input.ndim)
    return tuple([select(input, dim, k) for k in range(input._shape[dim])])


@public(method=True)
def split(
    tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Pieces of a given size (the last may be smaller), or of the given sizes: views.

    Raises ShapeError if the sizes do not add up to the extent.

    >>> metaop.split(metaop.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    dim = wrap_dim(dim, tensor.ndim)
    extent = tensor._shape[dim]
    if isinstance(split_size_or_sections, WHOLE):
        size = int(split_size_or_sections)
        if size <= 0 and not (size == 0 and extent == 0):
            raise ArgumentError(f"split expects split_size be positive, but got {size}")
        starts = range(0, extent, size) if extent else ()
        lengths = [min(size, extent - start) for start in starts] or [0]
    else:
        lengths = list(split_size_or_sections)
        if sum(lengths) != extent:
            raise ShapeError(
                f"split_with_sizes expects split_sizes to sum exactly to {extent} (input tensor's "
                f"size at dimension {dim}), but got split_sizes={lengths}"
            )
    return _pieces(tensor, lengths, dim)


@public(method=True)
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of the given sizes: views.

    >>> metaop.split_with_sizes(metaop.arange(5), (1, 4))
    (tensor([0]), tensor([1, 2, 3, 4]))
    """
    return split(input, list(split_sizes), dim)


@public(method=True)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size (the last may be smaller): views.

    >>> metaop.chunk(metaop.arange(5), 3)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    (chunks,) = sizes((chunks,))
    if chunks <= 0:
        raise ArgumentError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    dim = wrap_dim(dim, input.ndim)
    extent = input._shape[dim]
    size = -(-extent // chunks)
    return _pieces(input, [0] * chunks, dim) if size == 0 else split(input, size, dim)


@public(method=True)
def tensor_split(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | Tensor,
    dim: int = 0,
) -> tuple[Tensor, ...]:
    """Pieces between the given positions, or a number of pieces of almost equal size: views.

    >>> metaop.tensor_split(metaop.arange(5), 2), metaop.tensor_split(metaop.arange(5), (1, 4))
    ((tensor([0, 1, 2]), tensor([3, 4])), (tensor([0]), tensor([1, 2, 3]), tensor([4])))
    """
    dim = wrap_dim(dim, input.ndim)
    extent = input._shape[dim]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, WHOLE):
        sections = int(indices_or_sections)
        if sections <= 0:
            raise ArgumentError(f"number of sections must be larger than 0, got {sections}")
        lengths = [extent // sections + (k < extent % sections) for k in range(sections)]
        return _pieces(input, lengths, dim)
    bounds = [slice(None, k).indices(extent)[1] for k in sizes(tuple(indices_or_sections))]
    pieces = []
    for start, stop in zip([0, *bounds], [*bounds, extent]):
        pieces.append(narrow(input, dim, start, max(stop - start, 0)))
    return tuple(pieces)


@public(method=True)
def hsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 1 (0 for vectors); a number has to divide the extent.

    Raises ShapeError where it does not.

    >>> metaop.hsplit(metaop.tensor([[1, 2], [3, 4]]), 2)
    (tensor([[1],
            [3]]), tensor([[2],
            [4]]))
    """
    return _split_exactly("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1)


@public(method=True)
def vsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 0; a number has to divide the extent.

    Raises ShapeError where it does not.

    >>> metaop.vsplit(metaop.tensor([[1, 2], [3, 4]]), 2)
    (tensor([[1, 2]]), tensor([[3, 4]]))
    """
    return _split_exactly("vsplit", input, indices_or_sections, 0)


@public(method=True)
def dsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 2; a number has to divide the extent.

    Raises ShapeError where it does not.

    >>> [part.shape for part in metaop.dsplit(metaop.zeros(1, 2, 4), 2)]
    [metaop.Size([1, 2, 2]), metaop.Size([1, 2, 2])]
    """
    return _split_exactly("dsplit", input, indices_or_sections, 2)


def _split_exactly(
    name: str, input: Tensor, sections: int | Sequence[int], dim: int
) -> tuple[Tensor, ...]:
    if input.ndim <= dim or (name == "vsplit" and input.ndim < 2):
        raise ShapeError(
            f"{name} takes a tensor of more dimensions than {input.ndim}", fix="use tensor_split"
        )
    if isinstance(sections, WHOLE) and sections > 0 and input.shape[dim] % sections:
        raise ShapeError(
            f"{name}: dimension {dim} of {list(input.shape)} is not divisible by {sections}",
            fix="use tensor_split",
        )
    return tensor_split(input, sections, dim)


def _pieces(input: Tensor, lengths: Sequence[int], dim: int) -> tuple[Tensor, ...]:
    starts = accumulate([0, *lengths])
    return tuple([narrow(input, dim, start, n) for start, n in zip(starts, lengths)])


@public(out=True)
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors concatenated along `dim`; their other sizes must match.

    Raises ShapeError if they do not.

    >>> metaop.cat([metaop.tensor([[1, 2]]), metaop.tensor([[3, 4], [5, 6]])])
    tensor([[1, 2],
            [3, 4],
            [5, 6]])
    """
    pieces = _checked("cat", tensors)
    # As in PyTorch, empty 1-d tensors may be concatenated with tensors of any shape.
    pieces = [x for x in pieces if x._shape != (0,)] or pieces[:1]
    shape = pieces[0]._shape
    if not shape:
        raise ShapeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    dim = wrap_dim(dim, len(shape))
    for position, piece in enumerate(pieces):
        other = piece._shape
        if other[:dim] + other[dim + 1 :] != shape[:dim] + shape[dim + 1 :] or not other:
            raise ShapeError(
                f"cat: Sizes of tensors must match except in dimension {dim}: tensor number 0 has "
                f"{list(shape)}, tensor number {position} has {list(other)}"
            )
    calls = [piece.call for piece in pieces]
    return wrap(record(operators.concatenate, calls, (dim, _dtype(tensors))))


concat = synonym("concat", cat)
concatenate = synonym("concatenate", cat)


@public(out=True)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape, concatenated along a new dimension `dim`.

    Raises ShapeError for tensors of different shapes.

    >>> metaop.stack([metaop.tensor([1, 2]), metaop.tensor([3, 4])], dim=1)
    tensor([[1, 3],
            [2, 4]])
    """
    pieces = _checked("stack", tensors)
    shape = pieces[0]._shape
    dim = wrap_dim(dim, len(shape) + 1)
    for position, piece in enumerate(pieces):
        if piece._shape != shape:
            raise ShapeError(
                f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 "
                f"and {list(piece._shape)} at entry {position}"
            )
    return wrap(record(operators.stack, [x.call for x in pieces], (dim, _dtype(pieces))))


def _checked(name: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    pieces = list(tensors)
    if not pieces:
        raise ArgumentError(f"{name} expects a non-empty list of tensors")
    for piece in pieces:
        if not isinstance(piece, Tensor):
            raise ArgumentTypeError(
                f"{name} expects tensors, not {type(piece).__name__}",
                fix="make it a tensor with metaop.tensor(...)",
            )
    return pieces


def _dtype(tensors: Sequence[Tensor]) -> DType:
    return reduce(promote, [tensor.dtype for tensor in tensors])


@public()
def atleast_1d(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
    """Numbers become vectors of size 1; other tensors stay as they are.

    >>> metaop.atleast_1d(metaop.tensor(3))
    tensor([3])
    """
    return _each(tensors, lambda x: x if x.ndim else unsqueeze(x, 0))


@public()
def atleast_2d(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
    """Numbers and vectors become matrices with one row; other shapes stay.

    >>> metaop.atleast_2d(metaop.tensor([1, 2]))
    tensor([[1, 2]])
    """
    return _each(tensors, _two_dimensional)


@public()
def atleast_3d(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
    """Matrices get a last dimension of extent 1, vectors one on both sides.

    >>> metaop.atleast_3d(metaop.zeros(2)).shape, metaop.atleast_3d(metaop.zeros(2, 3)).shape
    (metaop.Size([1, 2, 1]), metaop.Size([2, 3, 1]))
    """
    return _each(tensors, _three_dimensional)


def _three_dimensional(x: Tensor) -> Tensor:
    return x if x.ndim > 2 else unsqueeze(_two_dimensional(x), -1)


def _two_dimensional(x: Tensor) -> Tensor:
    while x.ndim < 2:
        x = unsqueeze(x, 0)
    return x


def _each(tensors, function):  # type: ignore[no-untyped-def]
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return function(tensors[0])
    listed = tensors[0] if len(tensors) == 1 else tensors
    return tuple([function(x) for x in listed])


@public(out=True)
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along dimension 1 (0 for vectors).

    >>> metaop.hstack([metaop.tensor([1, 2]), metaop.tensor([3])])
    tensor([1, 2, 3])
    """
    pieces = [x if x.ndim else unsqueeze(x, 0) for x in _checked("hstack", tensors)]
    return cat(pieces, 0 if pieces[0].ndim == 1 else 1)


@public(out=True)
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along dimension 0; vectors are rows.

    >>> metaop.vstack([metaop.tensor([1, 2]), metaop.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    return cat([_two_dimensional(x) for x in _checked("vstack", tensors)], 0)


row_stack = synonym("row_stack", vstack)


@public(out=True)
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along dimension 2, made three-dimensional first.

    >>> metaop.dstack([metaop.tensor([1, 2]), metaop.tensor([3, 4])])
    tensor([[[1, 3],
             [2, 4]]])
    """
    return cat([_three_dimensional(x) for x in _checked("dstack", tensors)], 2)


@public(out=True)
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Vectors as columns, and matrices, joined along dimension 1.

    >>> metaop.column_stack([metaop.tensor([1, 2]), metaop.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    pieces = _checked("column_stack", tensors)
    return cat([x if x.ndim > 1 else x.reshape(-1, 1) for x in pieces], 1)


@public()
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape; those that have it are the arguments themselves.

    Raises ShapeError where there is none.

    >>> metaop.broadcast_tensors(metaop.tensor([1, 2]), metaop.tensor([[3], [4]]))[1]
    tensor([[3, 3],
            [4, 4]])
    """
    shape = common_shape("broadcast_tensors", *[x._shape for x in tensors])
    return tuple([x if x._shape == shape else expand(x, shape) for x in tensors])


@public()
def broadcast_shapes(*shapes: int | Sequence[int]) -> Size:
    """The shape that tensors of these shapes broadcast to; a number is a shape of one dimension.

    Raises ShapeError where there is none.

    >>> metaop.broadcast_shapes((3, 1), (4,))
    metaop.Size([3, 4])
    """
    listed = [sizes((shape,)) for shape in shapes]
    return Size(common_shape("broadcast_shapes", *listed) if listed else ())


@public()
def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids of vectors; `indexing="xy"` exchanges the first two dimensions.

    Vectors of sizes n and m make two tensors (N, M).

    >>> rows, columns = metaop.meshgrid(metaop.tensor([1, 2]), metaop.tensor([3, 4, 5]))
    >>> rows
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    listed = list(tensors[0]) if isinstance(tensors[0], (list, tuple)) else list(tensors)
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"meshgrid: indexing must be one of 'xy' or 'ij', but got {indexing!r}")
    swapped = indexing == "xy" and len(listed) > 1
    if swapped:
        listed[:2] = listed[1::-1]
    shape = tuple([x.numel() for x in listed])
    grids = []
    for position, x in enumerate(listed):
        alone = [1] * len(shape)
        alone[position] = shape[position]
        grids.append(expand(x.reshape(alone), shape))
    if swapped:
        grids[:2] = grids[1::-1]
    return tuple(grids)


unsafe_chunk = synonym("unsafe_chunk", chunk)
unsafe_split = synonym("unsafe_split", split)
unsafe_split_with_sizes = synonym("unsafe_split_with_sizes", split_with_sizes)
