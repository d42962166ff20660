"""Indexing: `x[...]`, `x[...] = value`, and the functions that read and write by index tensors."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentError, ArgumentTypeError, DimensionError
from metaop.operators import shaping as operators
from metaop.tensor.core import Tensor, view
from metaop.tensor.creation import as_tensor


def getitem(input: Tensor, key: Any) -> Tensor:
    """`input[key]`: a view for integers, slices, None and Ellipsis."""
    items = key if type(key) is tuple else (key,)
    return view(input, operators.index, (basic_items(input._shape, items),))


def basic_items(shape: tuple[int, ...], items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Integers, slices, None and Ellipsis as one item per dimension (see `operators.index`)."""
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


def _basic_item(item: Any, extent: int, dim: int) -> Any:
    if isinstance(item, slice):
        if item.step is not None and int(item.step) <= 0:
            raise ArgumentError("step must be greater than zero", fix="use flip() to go backwards")
        start, stop, step = slice(
            *(None if x is None else int(x) for x in (item.start, item.stop, item.step))
        ).indices(extent)
        return start, max(-(-(stop - start) // step), 0), step
    try:
        position = item.__index__()
    except (AttributeError, TypeError):
        raise ArgumentTypeError(
            f"tensors cannot be indexed by {type(item).__name__}",
            fix="use integers, slices, None, Ellipsis, lists, or integer and bool tensors",
        ) from None
    if not -extent <= position < extent:
        raise DimensionError(
            f"index {position} is out of bounds for dimension {dim} with size {extent}"
        )
    return position % extent


def setitem(input: Tensor, key: Any, value: Any) -> None:
    """`input[key] = value`, the value converted and expanded."""
    target = getitem(input, key)
    if isinstance(value, (int, float)):
        target.fill_(value)  # type: ignore[attr-defined]
    else:
        target.copy_(as_tensor(value))  # type: ignore[attr-defined]


METHODS = ()
SPECIAL = {"__getitem__": getitem, "__setitem__": setitem}
