"""Collectives on the values of local tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.dist.memory import memory_of
from metaop.dist.packing import Packed
from metaop.distributed.process_group import ProcessGroup
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.host.arrays import array_of, tensor_on
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.tensor_type import CPU, Device


def operation(op: str) -> str:
    """The name of the reducer for a reduction; a mean uses the sum."""
    names = {"sum": "add", "avg": "add", "prod": "mul", "max": "max", "min": "min"}
    if op not in names:
        raise ArgumentError(f"unknown reduction {op!r}", fix=f"use one of {', '.join(names)}")
    return names[op]


@no_grad()
def put(tensor: Tensor, value: Any, device: Device = CPU, divisor: int = 1) -> None:
    """Writes an array on `device`, divided by `divisor`, into a tensor with as many elements."""
    dtype = dtypes.from_numpy_dtype(value.dtype)
    assert dtype is not None
    found: Any = tensor_on(value.reshape(tuple(tensor.shape)), dtype, device)
    if divisor != 1:
        is_float = dtype.kind == "float"
        found = found / divisor if is_float else found.div(divisor, rounding_mode="trunc")
    tensor.copy_(found.to(tensor.device))  # type: ignore[attr-defined]


def combined(members: ProcessGroup, tensor: Tensor, op: str) -> Any:
    """Reduces `tensor` over the ranks of the group; the result is flat, on the tensor's device."""
    memory = memory_of(tensor.device)
    with memory.active():
        given = array_of(tensor.detach()).reshape(-1)
        total = np.empty_like(given)
        transport = members.world.transport_at(memory)
        request = transport.all_reduce(Packed.alone(given), total, operation(op))
        members.world.wait(request, f"all_reduce {op} of {kind_of(tensor)}")
    return total


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
    arriving = members.communicator.alltoall(counts)
    memory = memory_of(like.device)
    with memory.active():
        nothing = memory.full((0,), 0, like.dtype.numpy)
        arrays = [array_of(one.detach()).reshape(-1) for one in given if one is not None]
        flat = np.concatenate([nothing, *arrays])
        received = np.empty_like(flat, shape=(sum(arriving),))
        request = members.world.transport_at(memory).all_to_all(flat, counts, received, arriving)
        members.world.wait(request, f"an exchange of {like.dtype.name}")
        parts = cut(received, arriving)
    for target, part in zip(taken, parts):
        if target is not None:
            put(target, part, like.device)


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


def place_of(tensor: Tensor) -> str:
    """The location of a value that is not on the host."""
    return "" if tensor.device is CPU else f" on {tensor.device.type}"
