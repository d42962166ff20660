"""The memory layout of tensors, and making one share the memory of another."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentError, DTypeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.strided_views import as_strided
from metaop.tensor.storage import Storage, data_ptr, owner_and_layout
from metaop.tensor.strides import contiguous_strides
from metaop.tensor.surface import method


@method()
def is_set_to(input: Tensor, tensor: Tensor) -> bool:
    """Whether both share the same memory with the same offset, shape and strides."""
    owner, layout = owner_and_layout(input)
    other, other_layout = owner_and_layout(tensor)
    is_same = owner is other or data_ptr(owner) == data_ptr(other)
    return bool(is_same and layout == other_layout and input._shape == tensor._shape)


@method()
def set_(
    input: Tensor,
    source: Any = None,
    storage_offset: int = 0,
    size: Any = None,
    stride: Any = None,
) -> Tensor:
    """Makes the tensor share the memory of another tensor, or of a storage.

    Without `source`, it becomes empty. It takes over the shape and strides of a tensor unless
    `size` and `stride` are given. Raises DTypeError if the types differ.
    """
    if source is None:
        input.data = input.detach().new_empty(0)
        return input
    owner = source._owner if isinstance(source, Storage) else source
    if owner.dtype != input.dtype:
        raise DTypeError(
            f"set_: the tensor is {input.dtype.name}, its source {owner.dtype.name}",
            fix="convert the source with .to()",
        )
    if isinstance(source, Storage) and size is None:
        size, stride = (owner.numel(),), (1,)
    if size is not None:
        strides = contiguous_strides(tuple(size)) if stride is None else tuple(stride)
        owner = as_strided(owner, tuple(size), strides, storage_offset)
    input.data = owner
    return input


@method()
def dim_order(input: Tensor, *, ambiguity_check: bool | list[Any] = False) -> tuple[int, ...]:
    """The dimensions in their order in memory, outermost first.

    With `ambiguity_check`, dimensions of extent 1 and equal strides raise ArgumentError, because
    they make the order ambiguous.
    """
    _, (strides, _) = owner_and_layout(input)
    if ambiguity_check and (len(set(strides)) < len(strides) or 1 in input._shape):
        raise ArgumentError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given "
            "memory formats.",
            fix="leave ambiguity_check out",
        )
    return tuple(sorted(range(input.ndim), key=lambda dim: -strides[dim]))
