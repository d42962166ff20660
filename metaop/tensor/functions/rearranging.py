"""Copies with the elements rearranged: repeated, mirrored, moved, padded, masked to triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.errors import ShapeError
from metaop.operators import shaping as operators
from metaop.tensor.arguments import WHOLE, is_empty, sizes, wrap_dim, wrap_dims
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.indexing import host_tensor
from metaop.tensor.functions.ranges import arange
from metaop.tensor.functions.scattering import index_select
from metaop.tensor.functions.shaping import diagonal as diagonal_of
from metaop.tensor.functions.shaping import ravel, transpose
from metaop.tensor.surface import in_every_form, method, public
from metaop.unified_graph.recording import record


@method()
def repeat(input: Tensor, *repeats: Any) -> Tensor:
    """The tensor tiled `repeats[k]` times along dimension `k`; new dimensions come first."""
    counts = sizes(repeats)
    if len(counts) < input.ndim:
        raise ShapeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            f"tensor: {list(counts)} for shape {list(input.shape)}"
        )
    return wrap(record(operators.repeat, (input.call,), (counts,)))


@public(method=True)
def tile(input: Tensor, *dims: Any) -> Tensor:
    """The tensor repeated along its dimensions; missing leading counts are taken as 1.

    >>> metaop.tile(metaop.tensor([1, 2]), (2, 2))
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    counts = sizes(dims)
    return repeat(input, (1,) * (input.ndim - len(counts)) + counts)


@public(method=True)
def repeat_interleave(
    input: Tensor,
    repeats: int | Tensor | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Every element along `dim` (of the flattened tensor, when None) repeated in a row.

    `repeats` is one number or one for each element; without it, `input` has these numbers, and the
    positions 0, 1, … are repeated. Raises ShapeError when `output_size` is given and not the size
    of the result along `dim`.

    >>> metaop.repeat_interleave(metaop.tensor([1, 2]), metaop.tensor([1, 3]))
    tensor([1, 2, 2, 2])
    """
    if repeats is None:
        if input.ndim != 1:
            raise ShapeError("repeat_interleave only accept 1D vector as repeat")
        input, repeats = arange(input.numel(), dtype=input.dtype, device=input.device), input
    if dim is None:
        input, dim = ravel(input), 0
    dim = wrap_dim(dim, input.ndim)
    if isinstance(repeats, Tensor) and repeats.numel() == 1:
        repeats = int(repeats.item())
    if isinstance(repeats, WHOLE):
        repeats = int(repeats)
        _check_output_size(output_size, repeats * input.shape[dim])
        return wrap(record(operators.repeat_interleave, (input.call,), (repeats, dim)))
    counts = repeats.numpy(force=True)
    if counts.size != input.shape[dim]:
        raise ShapeError("repeats must have the same size as input along dim")
    places = np.repeat(np.arange(counts.size), counts)
    _check_output_size(output_size, places.size)
    return index_select(input, dim, host_tensor(places).to(input.device))


def _check_output_size(given: int | None, found: int) -> None:
    if given is not None and given != found:
        raise ShapeError(
            f"repeat_interleave: output_size is {given}, and the result has {found} elements",
            fix="pass the sum of the repeats, or leave output_size out",
        )


@public(method=True)
def flip(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """The elements in reverse order along the dimensions: `flip(0, 1)`, `flip((0, 1))`.

    >>> metaop.flip(metaop.tensor([[1, 2], [3, 4]]), (1,))
    tensor([[2, 1],
            [4, 3]])
    """
    order = wrap_dims(sizes(axes if dims is None else (dims,)), input.ndim)
    return wrap(record(operators.flip, (input.call,), (order if input.ndim else (),)))


@public(method=True)
def fliplr(input: Tensor) -> Tensor:
    """Mirrored along dimension 1; raises ShapeError for vectors.

    >>> metaop.fliplr(metaop.tensor([[1, 2], [3, 4]]))
    tensor([[2, 1],
            [4, 3]])
    """
    return flip(input, 1)


@public(method=True)
def flipud(input: Tensor) -> Tensor:
    """Mirrored along dimension 0.

    >>> metaop.flipud(metaop.tensor([[1, 2], [3, 4]]))
    tensor([[3, 4],
            [1, 2]])
    """
    if not input.ndim:
        raise ShapeError("flipud: Input must be >= 1-d.", fix="unsqueeze it")
    return flip(input, 0)


@public(method=True)
def roll(
    input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Tensor:
    """The elements shifted by `shifts` along `dims` (of the flattened tensor, if None).

    Elements wrap around at the end; the shape stays.

    >>> metaop.roll(metaop.tensor([1, 2, 3, 4]), 1)
    tensor([4, 1, 2, 3])
    """
    steps = sizes((shifts,))
    if dims is None or is_empty(dims):
        if len(steps) != 1:
            raise ShapeError("shifts and dimensions must align")
        return roll(ravel(input), steps[0], 0).reshape(input.shape)
    listed = sizes((dims,))
    if len(steps) != len(listed):
        raise ShapeError(
            f"shifts and dimensions must align. shifts: {len(steps)}, dims: {len(listed)}"
        )
    order = tuple([wrap_dim(dim, input.ndim) for dim in listed])
    return wrap(record(operators.roll, (input.call,), (steps, order)))


@public(method=True)
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """The tensor rotated by `k` quarter turns in the plane of `dims`, first towards second.

    >>> metaop.rot90(metaop.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    first, second = wrap_dims(dims, input.ndim)
    turns = k % 4
    if turns == 0:
        return input.clone()
    if turns == 2:
        return flip(input, first, second)
    if turns == 1:
        return transpose(flip(input, second), first, second).clone()
    return flip(transpose(input, first, second), second)


@in_every_form()
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The matrices with zeros above diagonal number `diagonal`: (…, M, N), the shape stays.

    >>> metaop.tril(metaop.ones(2, 3))
    tensor([[1., 0., 0.],
            [1., 1., 0.]])
    """
    return _triangle(input, diagonal, False)


@in_every_form()
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The matrices with zeros below diagonal number `diagonal`: (…, M, N), the shape stays.

    >>> metaop.triu(metaop.ones(2, 3))
    tensor([[1., 1., 1.],
            [0., 1., 1.]])
    """
    return _triangle(input, diagonal, True)


def _triangle(input: Tensor, diagonal: int, upper: bool) -> Tensor:
    if input.ndim < 2:
        name = "triu" if upper else "tril"
        raise ShapeError(f"{name}: input tensor must have at least 2 dimensions")
    return wrap(record(operators.triangle, (input.call,), (diagonal, upper)))


@public(method=True)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices over dimensions `dim1`, `dim2` with the last dimension on a diagonal.

    The shape (…, N) becomes (…, N, N), larger by the magnitude of `offset`.

    >>> metaop.diag_embed(metaop.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    first, second = wrap_dim(dim1, input.ndim + 1), wrap_dim(dim2, input.ndim + 1)
    if first == second:
        raise ShapeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return wrap(record(operators.diagonal_embed, (input.call,), (offset, first, second)))


@public(method=True, out=True)
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector.

    Raises ShapeError for other numbers of dimensions.

    >>> metaop.diag(metaop.tensor([1, 2])), metaop.diag(metaop.tensor([[1, 2], [3, 4]]))
    (tensor([[1, 0],
            [0, 2]]), tensor([1, 4]))
    """
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise ShapeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return diagonal_of(input, diagonal).clone()


@public(method=True)
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The flattened tensor as the diagonal of a matrix of that size.

    >>> metaop.diagflat(metaop.tensor([[1], [2]]))
    tensor([[1, 0],
            [0, 2]])
    """
    return diag_embed(ravel(input), offset)
