"""Square brackets: `x[...]` and `x[...] = value` with every kind of index that PyTorch takes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.errors import ArgumentError, ArgumentTypeError, DimensionError
from metaop.operators import indexing as operators
from metaop.operators import shaping
from metaop.tensor.core import Tensor, from_array, view, wrap
from metaop.tensor.functions.creation import as_tensor
from metaop.tensor.functions.places import indices_of
from metaop.tensor.promotion import fitting_call
from metaop.tensor.surface import method
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Shape
from metaop.unified_graph.recording import next_sequence, record
from metaop.unified_graph.tensor_type import CPU, Device
from metaop.unified_graph.tracing import state

_FULL = slice(None)
# Longer lists are one index, whatever they hold: a rule that PyTorch has from NumPy.
_LONG_LIST = 32


def host_tensor(array: np.ndarray, device: Device = CPU) -> Tensor:
    """An int64 tensor of indices that were computed on the host."""
    return from_array(np.ascontiguousarray(array, np.int64), dtypes.int64, device)


@method("__getitem__")
def getitem(input: Tensor, key: Any) -> Tensor:
    """`input[key]`: a view for integers, slices, None and Ellipsis, otherwise a copy."""
    items = key if type(key) is tuple else (key,)
    for item in items:
        kind = type(item)
        if kind is not int and kind is not slice and item is not None and item is not Ellipsis:
            return _advanced(input, key)
    return view(input, shaping.index, (basic_items(input._shape, items),))


def _advanced(input: Tensor, key: Any) -> Tensor:
    basic, indices, dims = split_key(input, key)
    source = view(input, shaping.index, (basic_items(input._shape, basic),))
    if not indices:
        return source
    calls = (source.call, *(index.call for index in indices))
    return wrap(record(operators.index_tensors, calls, (dims,)))


def basic_items(shape: Shape, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Integers, slices, None and Ellipsis as one item per dimension (see `shaping.index`)."""
    consumed = sum(1 for item in items if item is not None and item is not Ellipsis)
    if consumed > len(shape):
        raise DimensionError(
            f"too many indices for tensor of dimension {len(shape)}: got {consumed}"
        )
    result: list[Any] = []
    dim = 0
    for item in items:
        if item is None:
            result.append(None)
        elif item is Ellipsis:
            for _ in range(len(shape) - consumed):
                result.append((0, shape[dim], 1))
                dim += 1
            consumed = len(shape)
        else:
            result.append(_basic_item(item, shape[dim], dim))
            dim += 1
    while dim < len(shape):
        result.append((0, shape[dim], 1))
        dim += 1
    return tuple(result)


def _bound(value: Any) -> int | None:
    if value is None or type(value) is int:
        return value
    try:
        return value.__index__()  # type: ignore[no-any-return]
    except (AttributeError, TypeError):
        raise ArgumentTypeError(
            "slice indices must be integers or None or have an __index__ method",
            fix=f"convert {value!r} with int(...)",
        ) from None


def _basic_item(item: Any, extent: int, dim: int) -> Any:
    if isinstance(item, slice):
        if item == _FULL:
            return 0, extent, 1
        bounds = [_bound(x) for x in (item.start, item.stop, item.step)]
        if bounds[2] is not None and bounds[2] <= 0:
            raise ArgumentError("step must be greater than zero", fix="use flip() to go backwards")
        start, stop, step = slice(*bounds).indices(extent)
        return start, max(-(-(stop - start) // step), 0), step
    if not -extent <= item < extent:
        raise DimensionError(
            f"index {item} is out of bounds for dimension {dim} with size {extent}"
        )
    return item % extent


def split_key(input: Tensor, key: Any) -> tuple[tuple[Any, ...], list[Tensor], tuple[int, ...]]:
    """Splits a key into a basic key, and the index tensors that apply to its result.

    Also returns the dimensions of that result that the index tensors index.
    """
    items = _as_tuple(key)
    consumed = sum(_dims_of(item) for item in items)
    if consumed > input.ndim:
        raise DimensionError(
            f"too many indices for tensor of dimension {input.ndim}: got {consumed}"
        )
    basic: list[Any] = []
    indices: list[Tensor] = []
    dims: list[int] = []
    source_dim = position = 0
    for item in _without_ellipsis(items, input.ndim - consumed):
        taken = _dims_of(item)
        if isinstance(item, Tensor):
            if item.device is CPU:
                item = item.to(input.device)
            found = _index_tensors(item, input._shape[source_dim : source_dim + taken], source_dim)
            # A mask without dimensions selects in a new dimension.
            basic.extend([_FULL] * taken or [None])
            dims.extend(range(position, position + len(found)))
            indices.extend(found)
            position += len(found)
        else:
            basic.append(item)
            position += not isinstance(item, int)
        source_dim += taken
    return tuple(basic), indices, tuple(dims)


def _without_ellipsis(items: tuple[Any, ...], missing: int) -> list[Any]:
    plain: list[Any] = []
    for item in items:
        plain.extend([_FULL] * missing if item is Ellipsis else [item])
    return plain


def _as_tuple(key: Any) -> tuple[Any, ...]:
    """A key as one index after another; a short list that holds indices is that too."""
    several = isinstance(key, tuple)
    if isinstance(key, list) and len(key) < _LONG_LIST:
        several = any(item is None or item is Ellipsis or _is_index(item) for item in key)
        if several:
            words = "a list of indices is read as one index after another: write x[tuple(list)]"
            warnings.warn(words, UserWarning, stacklevel=6)
    return tuple([_normalised(item) for item in (key if several else (key,))])


def _is_index(item: Any) -> bool:
    """Whether what a list holds is an index of its own, not a number of the list."""
    return isinstance(item, (slice, Tensor, np.ndarray, list, tuple, range))


def _normalised(item: Any) -> Any:
    """Converts lists and arrays to tensors, and whatever represents an integer to an int."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (bool, np.bool_)):
        return as_tensor(bool(item))
    if isinstance(item, (list, tuple, range)) or (isinstance(item, np.ndarray) and item.ndim):
        item = as_tensor(np.asarray(item, np.int64) if len(item) == 0 else item)
    if isinstance(item, Tensor):
        if item.dtype.kind == "float" or item.dtype.name in ("int8", "int16"):
            raise DimensionError(
                "tensors used as indices must be long, int, byte or bool tensors, not "
                f"{item.dtype.name}",
                fix="convert the index with .long()",
            )
        # A value computed in a traced function cannot be read yet, so it stays an index tensor.
        is_read = item.ndim == 0 and item.dtype.name != "bool"
        is_read = is_read and not (state.trace is not None and item.call.is_pending)
        return int(item.item()) if is_read else item
    try:
        return item.__index__()
    except (AttributeError, TypeError):
        kind = ArgumentTypeError if isinstance(item, str) else DimensionError
        raise kind(
            f"tensors cannot be indexed by {type(item).__name__}",
            fix="use integers, slices, None, Ellipsis, lists, or integer and bool tensors",
        ) from None


def _dims_of(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, Tensor) and _is_mask(item) else 1


def _is_mask(index: Tensor) -> bool:
    return index.dtype.name in ("bool", "uint8")


def _index_tensors(index: Tensor, extents: Sequence[int], dim: int) -> list[Tensor]:
    """A mask as one tensor of positions per dimension; other indices unchanged."""
    if not _is_mask(index):
        return [index]
    if index._shape != tuple(extents):
        raise DimensionError(
            f"The shape of the mask {list(index.shape)} at index {dim} does not match the shape "
            f"of the indexed tensor {list(extents)} at that position"
        )
    return indices_of(index)


@method("__setitem__")
def setitem(input: Tensor, key: Any, value: Any) -> None:
    """`input[key] = value`, the value converted and expanded to what the key selects."""
    items = _as_tuple(key)
    mask: Any = items[0] if items else None
    if not any(isinstance(item, Tensor) for item in items):
        _write(view(input, shaping.index, (basic_items(input._shape, items),)), value)
    elif len(items) == 1 and _is_mask(mask) and mask.ndim and _is_single(value):
        _write_masked(input, mask, value)
    else:
        basic, indices, dims = split_key(input, items)
        target = view(input, shaping.index, (basic_items(input._shape, basic),))
        put(target, indices, dims, value, False)


def _is_single(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.ndim == 0)


def _write(target: Tensor, value: Any) -> None:
    if isinstance(value, (int, float)):
        target.fill_(value)
        return
    source = as_tensor(value)
    while source.ndim > target.ndim and source._shape[0] == 1:
        source = source.squeeze(0)
    target.copy_(source)


def _write_masked(input: Tensor, mask: Tensor, value: Any) -> None:
    if mask._shape != input._shape[: mask.ndim]:
        _index_tensors(mask, input._shape[: mask.ndim], 0)
    while mask.ndim < input.ndim:
        mask = mask.unsqueeze(-1)
    started = next_sequence()
    source = _value_call(input, value)
    call = record(operators.select_by_mask, (mask.bool().call, source, input.call))
    input._rebind(call, "index_put_", started)


def _value_call(input: Tensor, value: Any) -> Any:
    if isinstance(value, (int, float)):
        return fitting_call(value, input.dtype, input.device)
    return as_tensor(value).call


def put(
    target: Tensor, indices: Sequence[Tensor], dims: tuple[int, ...], value: Any, accumulate: bool
) -> None:
    """Writes (or adds) `value` at `indices` in the dimensions `dims` of `target`."""
    started = next_sequence()
    calls = (target.call, _value_call(target, value), *(index.call for index in indices))
    call = record(operators.index_put, calls, (dims, accumulate))
    target._rebind(call, "index_put_", started)
