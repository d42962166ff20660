"""Collectives on the values of local tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.dist.memory import memory_of
from metaop.dist.packing import Packed, Packing
from metaop.distributed.process_group import ProcessGroup
from metaop.distributed.reductions import Premultiplied, operation
from metaop.errors import ArgumentError, ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.host.arrays import array_of, tensor_on
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.tensor_type import CPU, Device


@no_grad()
def put(tensor: Tensor, value: Any, device: Device = CPU, divisor: int = 1) -> None:
    """Writes an array on `device`, divided by `divisor`, into a tensor with as many elements."""
    dtype = dtypes.from_numpy_dtype(value.dtype)
    assert dtype is not None
    if value.size != math.prod(tensor.shape):
        raise ShapeError(
            f"{value.size} elements of {dtype.name} arrive for a tensor of shape "
            f"{tuple(tensor.shape)}",
            fix="pass a tensor of the shape that the other rank sends",
        )
    found: Any = tensor_on(value.reshape(tuple(tensor.shape)), dtype, device)
    if divisor != 1:
        is_whole = dtype.kind in ("bool", "int")
        found = found.div(divisor, rounding_mode="trunc") if is_whole else found / divisor
    tensor.copy_(found.to(tensor.device))  # type: ignore[attr-defined]


def combined(members: ProcessGroup, tensors: Sequence[Tensor], op: str) -> list[Any]:
    """Reduces tensors of one type over the ranks; the results are flat, on the tensors' device."""
    memory = memory_of(tensors[0].device)
    with memory.active():
        given = packed([operand(tensor, op) for tensor in tensors])
        total = np.empty_like(given.arrays[0], shape=(given.size,))
        transport = members.world.transport_at(memory)
        request = transport.all_reduce(given, total, operation(op, tensors[0]))
        members.world.wait(request, f"all_reduce {op} of {kinds_of(tensors)}")
        return given.packing.parts(total)


def packed(arrays: Sequence[Any]) -> Packed:
    """Flat arrays as one."""
    if len(arrays) == 1:
        return Packed.alone(arrays[0])
    return Packed(Packing([array.shape for array in arrays], arrays[0].dtype), arrays)


def operand(tensor: Tensor, op: str) -> Any:
    """The flat array with which a tensor takes part in a reduction."""
    array = array_of(tensor.detach()).reshape(-1)
    if isinstance(op, Premultiplied):
        return array * array.dtype.type(op.factor)
    # MPI reduces bytes, but not booleans.
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def gathered(members: ProcessGroup, tensor: Tensor, counts: Sequence[int]) -> Any:
    """The flat concatenation of all ranks' values, on the tensor's device; `counts` are sizes."""
    memory = memory_of(tensor.device)
    with memory.active():
        mine = array_of(tensor.detach()).reshape(-1)
        whole = np.empty_like(mine, shape=(sum(counts),))
        request = members.world.transport_at(memory).all_gather(mine, whole, counts)
        members.world.wait(request, f"all_gather of {kind_of(tensor)}")
    return whole


def exchanged(
    members: ProcessGroup,
    given: Sequence[Tensor | None],
    taken: Sequence[Tensor | None],
    like: Tensor,
) -> None:
    """Sends `given[k]` to rank k and fills `taken[k]`; `like` determines dtype and device."""
    kind = like.dtype, like.device
    for tensor in given:
        if tensor is not None and (tensor.dtype, tensor.device) != kind:
            raise ArgumentError(
                f"one tensor is {like.dtype.name} on {like.device}, another one "
                f"{tensor.dtype.name} on {tensor.device}",
                fix="pass tensors of one type on one device",
            )
    counts = [0 if tensor is None else math.prod(tensor.shape) for tensor in given]
    flat = flat_together([tensor for tensor in given if tensor is not None], like)
    received, arriving = swapped(members, flat, counts, like)
    for target, part in zip(taken, cut(received, arriving)):
        if target is not None:
            put(target, part, like.device)


def flat_together(tensors: Sequence[Tensor], like: Tensor) -> Any:
    """The elements of all tensors one after another; `like` determines dtype and device."""
    memory = memory_of(like.device)
    with memory.active():
        nothing = memory.full((0,), 0, like.dtype.numpy)
        return np.concatenate([nothing, *[array_of(one.detach()).reshape(-1) for one in tensors]])


def swapped(
    members: ProcessGroup, flat: Any, counts: Sequence[int], like: Tensor
) -> tuple[Any, list[int]]:
    """Sends part k of `flat` to rank k; returns what arrives, and how many elements from whom."""
    arriving = members.communicator.alltoall(counts)
    memory = memory_of(like.device)
    with memory.active():
        received = np.empty_like(flat, shape=(sum(arriving),))
        request = members.world.transport_at(memory).all_to_all(flat, counts, received, arriving)
        members.world.wait(request, f"an exchange of {like.dtype.name}")
    return received, arriving


def cut(flat: Any, counts: Sequence[int]) -> list[Any]:
    """Splits a flat array into consecutive parts."""
    parts, start = [], 0
    for count in counts:
        parts.append(flat[start : start + count])
        start += count
    return parts


def kind_of(tensor: Tensor) -> str:
    """The type, shape and kind of device, as the ranks compare them."""
    return f"{tensor.dtype.name}{list(tensor.shape)}{place_of(tensor)}"


def kinds_of(tensors: Sequence[Tensor]) -> str:
    """The types, shapes and kinds of device of several tensors."""
    return ", ".join(kind_of(tensor) for tensor in tensors)


def place_of(tensor: Tensor) -> str:
    """The location of a value that is not on the host."""
    return "" if tensor.device is CPU else f" on {tensor.device.type}"
