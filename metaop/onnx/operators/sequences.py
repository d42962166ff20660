"""Sequences and optional values; a sequence is a list."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from metaop.errors import DimensionError
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import operator
from metaop.onnx.values import Host
from metaop.tensor.core import Tensor


def _position(position: Any, count: int) -> int:
    place = int(np.asarray(position).reshape(-1)[0])
    if not -count <= place < max(count, 1):
        raise DimensionError(f"position {place} in a sequence of {count}")
    return place


@operator("SequenceConstruct")
def construct(*items: Any) -> list[Any]:
    """A sequence of values."""
    return list(items)


@operator("SequenceEmpty")
def empty(*, dtype: int = 1) -> list[Any]:
    """A sequence without items."""
    return []


@operator("SequenceAt")
def at(sequence: Any, position: Host) -> Any:
    """The item at a position; negative ones count from the end."""
    return sequence[_position(position, len(sequence))]


@operator("SequenceInsert")
def insert(sequence: Any, item: Any, position: Host | None = None) -> list[Any]:
    """Inserts an item, by default at the end."""
    count = len(sequence)
    place = count if position is None else int(np.asarray(position).reshape(-1)[0])
    if not -count <= place <= count:
        raise DimensionError(f"SequenceInsert: position {place} in a sequence of {count}")
    found = list(sequence)
    found.insert(place, item)
    return found


@operator("SequenceErase")
def erase(sequence: Any, position: Host | None = None) -> list[Any]:
    """Removes an item, by default the last."""
    found = list(sequence)
    del found[-1 if position is None else _position(position, len(found))]
    return found


@operator("SequenceLength")
def length(sequence: Any) -> np.ndarray:
    """The number of items."""
    return np.array(len(sequence), np.int64)


@operator("ConcatFromSequence")
def joined(sequence: Any, *, axis: int, new_axis: int = 0) -> Any:
    """Concatenates the items, or stacks them along a new dimension."""
    if all(isinstance(one, np.ndarray) for one in sequence):
        return (np.stack if new_axis else np.concatenate)(sequence, axis)
    items = [one if isinstance(one, Tensor) else metaop.tensor(one) for one in sequence]
    return metaop.stack(items, axis) if new_axis else metaop.cat(items, axis)


@operator("SplitToSequence")
def split(x: Any, split: Host | None = None, *, axis: int = 0, keepdims: int = 1) -> list[Any]:
    """Parts of a size, of several sizes, or single slices."""
    extent = shape_of(x)[axis]
    if split is None:
        sizes = [1] * extent
    elif np.ndim(split) == 0:
        step = int(split)
        sizes = [min(step, extent - k) for k in range(0, extent, step)]
    else:
        sizes = [int(one) for one in split]
    if isinstance(x, np.ndarray):
        parts: list[Any] = np.split(x, np.cumsum(sizes)[:-1], axis)
        squeezed = [np.squeeze(part, axis) for part in parts] if split is None else parts
    else:
        parts = list(metaop.split(x, sizes, axis))
        squeezed = [part.squeeze(axis) for part in parts] if split is None else parts
    return parts if keepdims else squeezed


@operator("SequenceMap")
def mapped(sequence: Any, *others: Any, body: Any) -> Any:
    """Runs a graph on every item."""
    rows = []
    for k, item in enumerate(sequence):
        rows.append(body(item, *(one[k] if isinstance(one, list) else one for one in others)))
    count = len(rows[0]) if rows else 1
    return tuple([row[k] for row in rows] for k in range(count))


@operator("Optional")
def optional(value: Any = None, *, type: Any = None) -> Any:
    """A value, or none."""
    return value


@operator("OptionalHasElement")
def has_element(value: Any = None) -> np.ndarray:
    """Whether there is a value."""
    return np.array(value is not None)


@operator("OptionalGetElement")
def element(value: Any) -> Any:
    """The contained value."""
    return value
