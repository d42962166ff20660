"""Indices of nonzero elements. Their number is read; the rest is compiled."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentError
from metaop.operators import places as operators
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.creation import full
from metaop.tensor.functions.joining import stack
from metaop.tensor.surface import public
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Shape
from metaop.unified_graph.recording import record, results


def _none(input: Tensor, shape: Shape, value: int = 0) -> Tensor:
    return full(shape, value, dtype=dtypes.int64, device=input.device)


def held_places(input: Tensor) -> Tensor:
    """The row-major positions of the nonzero elements."""
    if not input.numel():
        return _none(input, (0,))
    # Tensors, so that reading the total computes the counts too.
    counts, total = map(wrap, results(record(operators.counted, (input.call,))))
    count = int(total.item())
    if not count:
        return _none(input, (0,))
    return wrap(record(operators.places, (counts.call,), (count, -1)))


def _along_dimensions(place: Tensor, shape: Shape, absent: int = -1) -> list[Tensor]:
    """Row-major positions as an index along each dimension."""
    if len(shape) == 1 and absent == -1:
        return [place]
    if not place.numel():
        return [place] * len(shape)
    call = record(operators.coordinates, (place.call,), (shape, absent))
    return [wrap(one) for one in results(call)] if len(shape) > 1 else [wrap(call)]


def indices_of(mask: Tensor) -> list[Tensor]:
    """The indices of the nonzero elements along each dimension (at least one)."""
    return _along_dimensions(held_places(mask), mask._shape or (1,))


def _rows(input: Tensor, place: Tensor, absent: int = -1) -> Tensor:
    if not input.ndim:
        return _none(input, (place.shape[0], 0))
    return stack(_along_dimensions(place, input._shape, absent), 1)


@public(method=True, out=True)
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of all nonzero elements, one row each; their number is read.

    The shape is (count, dimensions), int64. With `as_tuple`, one vector per dimension.

    >>> metaop.nonzero(metaop.tensor([[0, 5], [7, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    return tuple(indices_of(input)) if as_tuple else _rows(input, held_places(input))


@public(method=True)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` rows of `nonzero(input)`, padded with rows of `fill_value`.

    Nothing is read, because the shape does not depend on values.

    >>> metaop.nonzero_static(metaop.tensor([0, 5, 7]), size=3)
    tensor([[ 1],
            [ 2],
            [-1]])
    """
    if size < 0:
        raise ArgumentError(f"nonzero_static: 'size' must be an non-negative integer, not {size}")
    if not (input.numel() and input.ndim and size):
        return _none(input, (size, input.ndim), fill_value)
    counts, _ = results(record(operators.counted, (input.call,)))
    place = wrap(record(operators.places, (counts,), (size, -1)))
    return _rows(input, place, fill_value)


@public(method=True)
def argwhere(input: Tensor) -> Tensor:
    """The indices of all nonzero elements, one row each: (count, dimensions).

    Their number is read, because the shape depends on it.

    >>> metaop.argwhere(metaop.tensor([0, 5, 7]))
    tensor([[1],
            [2]])
    """
    return nonzero(input)
