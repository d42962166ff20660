"""Moving tensors between host memory, GPUs and placements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.codegen.cuda.device import device_count, runtime
from metaop.codegen.cuda.runtime import DeviceBuffer
from metaop.codegen.memory.buffers import Buffer
from metaop.differentiation.entries import TapeEntry
from metaop.dist.sbp import BROADCAST
from metaop.errors import DeviceError
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.sharded import data_parallel
from metaop.tensor.sharded.global_tensor import distribute_tensor, full_tensor, to_global
from metaop.unified_graph.recording import Call, leaf, modes
from metaop.unified_graph.tensor_type import CPU, META, Device, TensorType


def moved(input: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
    """A copy of `input` on another device, or `input` where it is there already.

    With `non_blocking`, the program must not write pinned memory until the device has read it. The
    value is computed now, but for the meta device, where there is none. Raises `DeviceError`,
    with a fix, when there is no such device.
    """
    source = input.call
    if source.type.device is device:
        return input
    if data_parallel.is_on() and source.type.device.placement is not None:
        # A device means the ranks' parts of it.
        device = data_parallel.home_of(device)
        if source.type.device is device:
            return input
    if device.placement is not None:
        # What every rank has becomes a global tensor that is whole on every rank.
        whole = (BROADCAST,) * device.placement.ranks.ndim
        place = distribute_tensor if source.type.device.placement is None else to_global
        return place(input, device.placement, whole)
    if source.type.device.placement is not None:
        return moved(full_tensor(input), device)
    if device not in (CPU, META):
        runtime(device.index or 0)
    kind = TensorType(source.type.shape, source.type.dtype, device)
    copied = None if device is META else _copied(input.buffer(), device, non_blocking)
    call = leaf(kind, copied)
    if modes.gradients and source.requires_grad:
        back = source.type.device

        def gradient(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
            return [None if one is None else moved(wrap(one), back).call for one in cotangents]

        call.requires_grad = True
        call.tape = TapeEntry(function=gradient, sources=(source,), name="to")
    return wrap(call)


def _copied(buffer: Any, device: Device, non_blocking: bool) -> Buffer | DeviceBuffer:
    host = buffer.to_host() if isinstance(buffer, DeviceBuffer) else buffer
    if device is CPU:
        return host
    target = runtime(device.index or 0).allocate(host.nbytes)
    target.runtime.note_memory()
    target.runtime.copy_from_host(target, host, non_blocking)
    return target


def pinned(input: Tensor) -> Tensor:
    """A copy in memory that GPUs read by themselves; `input` itself where there is no GPU.

    Raises DeviceError for tensors that are not in host memory.
    """
    if input.call.type.device is not CPU:
        raise DeviceError(
            f"cannot pin a tensor on {input.device}: only dense CPU tensors can be pinned",
            fix="move it to the CPU first",
        )
    if not device_count() or is_pinned(input):
        return input
    source = input.buffer()
    copy = runtime(0).pinned(source.nbytes)
    np.asarray(copy)[...] = np.asarray(source)[: source.nbytes]
    return wrap(leaf(input.call.type, copy))


def is_pinned(input: Tensor) -> bool:
    """Whether a tensor lies in memory that GPUs read by themselves."""
    if input.call.type.device is not CPU or not device_count():
        return False
    return runtime(0).is_pinned(input.buffer())
