"""Operators that change shapes and move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop.errors import ShapeError
from metaop.onnx.table import Node, on_host, operator
from metaop.onnx.values import Host, integers, to_host
from metaop.tensor.core import Tensor


def shape_of(value: Any) -> tuple[int, ...]:
    """The sizes of a tensor or an array."""
    return tuple(int(extent) for extent in value.shape)


@operator("Shape")
def shape(x: Any, *, start: int = 0, end: int | None = None) -> np.ndarray:
    """The sizes of some dimensions; they are known on the host."""
    return np.array(shape_of(x)[start:end], np.int64)


@operator("Size")
def size(x: Any) -> np.ndarray:
    """The number of elements."""
    return np.array(int(np.prod(shape_of(x))), np.int64)


@operator("Reshape")
@on_host("Reshape")
def reshape(x: Any, shape: Host, *, allowzero: int = 0) -> Any:
    """Reshape; 0 keeps a size (unless `allowzero`), -1 is inferred."""
    old, wanted = shape_of(x), list(integers(shape)) if np.size(shape) else []
    if not allowzero:
        if any(extent == 0 and k >= len(old) for k, extent in enumerate(wanted)):
            raise ShapeError(f"Reshape of {list(old)} to {wanted}: no size there to keep")
        wanted = [old[k] if extent == 0 else extent for k, extent in enumerate(wanted)]
    return x.reshape(tuple(wanted))


@operator("Flatten")
@on_host("Flatten")
def flatten(x: Any, *, axis: int = 1) -> Any:
    """A matrix: the dimensions before `axis`, and those from it on."""
    old = shape_of(x)
    axis = axis + len(old) if axis < 0 else axis
    return x.reshape((int(np.prod(old[:axis])), int(np.prod(old[axis:]))))


@operator("Squeeze")
@on_host("Squeeze")
def squeeze(x: Any, axes: Host | None = None) -> Any:
    """Removes all dimensions of size 1, or the named ones."""
    old = shape_of(x)
    if axes is None:
        return x.reshape(tuple(extent for extent in old if extent != 1))
    dropped = {axis % len(old) if old else axis for axis in integers(axes)}
    if any(old[axis] != 1 for axis in dropped):
        raise ShapeError(f"Squeeze of {list(old)}: not all of {sorted(dropped)} have size 1")
    return x.reshape(tuple(extent for k, extent in enumerate(old) if k not in dropped))


@operator("Unsqueeze")
@on_host("Unsqueeze")
def unsqueeze(x: Any, axes: Host) -> Any:
    """Inserts dimensions of size 1 at these positions of the result."""
    old, places = list(shape_of(x)), integers(axes)
    ndim = len(old) + len(places)
    wanted = {place % ndim for place in places}
    if len(wanted) != len(places):
        raise ShapeError(f"Unsqueeze: {list(places)} names a dimension twice")
    rest = iter(old)
    return x.reshape(tuple(1 if k in wanted else next(rest) for k in range(ndim)))


@operator("Transpose")
@on_host("Transpose")
def transpose(x: Any, *, perm: Sequence[int] | None = None) -> Any:
    """Permutes the dimensions, by default in reverse order."""
    order = tuple(perm) if perm is not None else tuple(reversed(range(len(x.shape))))
    return np.transpose(x, order) if isinstance(x, np.ndarray) else x.permute(order)


@operator("Expand")
def expand(x: Tensor, shape: Host) -> Tensor:
    """Broadcast together with a shape."""
    return x.expand(np.broadcast_shapes(shape_of(x), integers(shape)))


@on_host("Expand")
def expand_array(x: Host, shape: Host) -> np.ndarray:
    """Broadcast together with a shape."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, integers(shape)))


@operator("Concat")
def concatenate(*parts: Tensor, axis: int) -> Tensor:
    """Concatenates tensors."""
    return metaop.cat(list(parts), axis)


@on_host("Concat")
def concatenate_arrays(*parts: Host, axis: int) -> np.ndarray:
    """Concatenates arrays."""
    return np.concatenate(parts, axis)


@operator("Split")
@on_host("Split")
def split(
    x: Any,
    split: Host | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    node: Node,
) -> tuple[Any, ...]:
    """Parts of given sizes, or of equal ones; the last may be smaller."""
    extent = shape_of(x)[axis]
    if split is None:
        count = num_outputs or len(node.outputs)
        step = -(-extent // count)
        sizes = [max(0, min(step, extent - step * k)) for k in range(count)]
    else:
        sizes = list(integers(split)) if np.size(split) else []
        if sum(sizes) != extent:
            raise ShapeError(f"Split: {sizes} are not {extent} in total")
    if isinstance(x, np.ndarray):
        return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))
    return tuple(metaop.split(x, sizes, axis))


@operator("Slice")
@on_host("Slice")
def slices(
    x: Any,
    starts: Host,
    ends: Host,
    axes: Host | None = None,
    steps: Host | None = None,
) -> Any:
    """Slices along some dimensions; bounds are clamped to the ends."""
    first, last = integers(starts), integers(ends)
    dims = range(len(first)) if axes is None else integers(axes)
    strides = [1] * len(first) if steps is None else integers(steps)
    items = [slice(None)] * len(x.shape)
    backwards = []
    for dim, start, end, step in zip(dims, first, last, strides):
        dim %= len(x.shape)
        start, end, step = slice(*_ends(start, end, step)).indices(shape_of(x)[dim])
        if step > 0:
            items[dim] = slice(start, max(start, end), step)
            continue
        # The same positions in ascending order, then reversed.
        count = max(0, -(-(start - end) // -step))
        lowest = start + (count - 1) * step if count else 0
        items[dim] = slice(lowest, lowest + (count - 1) * -step + 1 if count else 0, -step)
        backwards.append(dim)
    found = x[tuple(items)]
    if not backwards:
        return found
    return (
        np.flip(found, tuple(backwards))
        if isinstance(x, np.ndarray)
        else metaop.flip(found, backwards)
    )


def _ends(start: int, end: int, step: int) -> tuple[int, int | None, int]:
    """Bounds in Python's convention; far below 0 means before the first."""
    return start, (None if step < 0 and end < -(1 << 31) else end), step


@operator("Tile")
def tile(x: Tensor, repeats: Host) -> Tensor:
    """Repeats a tensor along each dimension."""
    return x.repeat(integers(repeats)) if np.size(repeats) else x


@on_host("Tile")
def tile_array(x: Host, repeats: Host) -> np.ndarray:
    """Repeats an array along each dimension."""
    return np.tile(x, integers(repeats))


@operator("Pad")
def pad(
    x: Tensor,
    pads: Host,
    value: Any = None,
    axes: Host | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """Pads each dimension before and after; negative widths crop."""
    ndim = len(x.shape)
    dims = [axis % ndim for axis in integers(axes)] if axes is not None else list(range(ndim))
    widths = integers(pads)
    before, after = [0] * ndim, [0] * ndim
    for k, dim in enumerate(dims):
        before[dim], after[dim] = widths[k], widths[k + len(dims)]
    if mode == "constant":
        fill = 0 if value is None else np.asarray(to_host(value)).reshape(-1)[0].item()
        flat = [w for dim in reversed(range(ndim)) for w in (before[dim], after[dim])]
        if x.dtype.kind == "bool":
            padded = metaop.nn.functional.pad(x.to(metaop.uint8), flat, value=int(fill))
            return padded.to(metaop.bool)
        return metaop.nn.functional.pad(x, flat, value=fill)
    for dim in range(ndim):
        if before[dim] or after[dim]:
            x = x.index_select(dim, _edges(mode, shape_of(x)[dim], before[dim], after[dim]))
    return x


def _edges(mode: str, extent: int, before: int, after: int) -> Tensor:
    """The source positions of the elements of a padded dimension."""
    places = np.arange(-before, extent + after)
    if mode == "edge":
        places = np.clip(places, 0, extent - 1)
    elif mode == "wrap":
        places %= extent
    elif mode == "reflect":
        period = max(1, 2 * (extent - 1))
        places = np.abs(places) % period
        places = np.where(places >= extent, period - places, places)
    else:
        raise ShapeError(f"Pad: there is no mode {mode!r}")
    return metaop.tensor(places.astype(np.int64))


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Moves channels to blocks of pixels, in the order depth-column-row or column-row-depth."""
    if mode == "CRD":
        return metaop.nn.functional.pixel_shuffle(x, blocksize)
    n, c, h, w = shape_of(x)
    b = blocksize
    parts = x.reshape((n, b, b, c // (b * b), h, w)).permute((0, 3, 4, 1, 5, 2))
    return parts.reshape((n, c // (b * b), h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Moves blocks of pixels to channels."""
    if mode == "CRD":
        return metaop.nn.functional.pixel_unshuffle(x, blocksize)
    n, c, h, w = shape_of(x)
    b = blocksize
    parts = x.reshape((n, c, h // b, b, w // b, b)).permute((0, 3, 5, 1, 2, 4))
    return parts.reshape((n, c * b * b, h // b, w // b))


@operator("Trilu")
def triangle(x: Tensor, k: Host | None = None, *, upper: int = 1) -> Tensor:
    """The part of matrices above, or below, a diagonal."""
    diagonal = 0 if k is None else int(np.asarray(k).reshape(-1)[0])
    if x.dtype.kind == "bool":
        return triangle(x.to(metaop.uint8), k, upper=upper).to(metaop.bool)
    return metaop.triu(x, diagonal) if upper else metaop.tril(x, diagonal)


@operator("ReverseSequence")
def reverse_sequence(
    x: Tensor, sequence_lens: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    """Reverses each sample of a batch up to its own length."""
    steps = shape_of(x)[time_axis]
    ndim = len(x.shape)
    time = metaop.arange(steps).reshape([-1 if k == time_axis else 1 for k in range(ndim)])
    lengths = sequence_lens.reshape([-1 if k == batch_axis else 1 for k in range(ndim)])
    places = metaop.where(time < lengths, lengths - 1 - time, time)
    return metaop.gather(x, time_axis, places.expand(x.shape))
