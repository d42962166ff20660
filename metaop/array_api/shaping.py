"""Shapes, joining, indexing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import metaop
from metaop.array_api.types import promoted
from metaop.tensor.core import Tensor

Axes = int | tuple[int, ...] | None


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Arrays with their common shape."""
    return tuple(metaop.broadcast_tensors(*arrays))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """The array repeated to a shape."""
    return metaop.broadcast_to(x, shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Arrays one behind the other along an axis, flattened first when it is None."""
    parts = promoted(*arrays)
    if axis is None:
        return metaop.cat([part.reshape(-1) for part in parts])
    return metaop.cat(parts, axis)


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """The array with an axis of size 1 put in."""
    return metaop.unsqueeze(x, axis)


def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    """The elements in reverse order along axes, all when None."""
    axes = range(x.ndim) if axis is None else axis
    return metaop.flip(x, (axes,) if isinstance(axes, int) else tuple(axes))


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """The axes at other places, the rest in order."""
    return metaop.moveaxis(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order."""
    return metaop.permute(x, axes)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Every element several times."""
    return metaop.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The same elements in another shape."""
    found = metaop.reshape(x, shape)
    return metaop.clone(found) if copy else found


def roll(x: Tensor, /, shift: Any, *, axis: Axes = None) -> Tensor:
    """The elements moved along axes, coming in again at the other end."""
    if axis is not None and not isinstance(axis, int) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return metaop.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """The array without axes of size 1."""
    axes = (axis,) if isinstance(axis, int) else axis
    if any(x.shape[one] != 1 for one in axes):
        raise ValueError(f"squeeze: axes {axes} of shape {tuple(x.shape)} are not all of size 1")
    return metaop.squeeze(x, tuple(axes))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Arrays side by side along a new axis."""
    return metaop.stack(promoted(*arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The array several times along every axis."""
    return metaop.tile(x, repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of an axis."""
    return tuple(metaop.unbind(x, axis))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return metaop.transpose(x, -2, -1)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices at indices along an axis, which only a vector may leave out."""
    if axis is None and x.ndim != 1:
        raise ValueError("take: axis must be specified when ndim > 1")
    return metaop.index_select(x, axis or 0, indices)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements at indices along an axis."""
    return metaop.take_along_dim(x, indices.long(), axis)  # type: ignore[attr-defined]


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of the elements that are not zero, one array for each axis."""
    if x.ndim == 0:
        raise ValueError("nonzero: an array without axes has no indices")
    return x.nonzero(as_tuple=True)  # type: ignore[attr-defined]
