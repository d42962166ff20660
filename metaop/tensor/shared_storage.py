"""Storage that processes share: what is written into a tensor is copied into memory that stays."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaop.codegen.memory.shared import SharedMemory
from metaop.executor import realize
from metaop.unified_graph.recording import leaf
from metaop.unified_graph.tracing import state

# Shared tensors that have been written, and whose memory has not been yet.
unsettled: list[Any] = []


def settle() -> None:
    """Writes what has been assigned to shared tensors into their memory, computing it now.

    Every in-place operation does so; who assigns to many tensors calls it once after the last.
    While a function is captured nothing is computed: its writes settle when it has ended.
    """
    if not unsettled or state.trace is not None:
        return
    tensors = list(unsettled)
    unsettled.clear()
    realize(*[tensor._call for tensor in tensors])
    for tensor in tensors:
        _show_from(tensor._shared, tensor)


def share(tensor: Any, memory: SharedMemory) -> None:
    """Moves the value of a tensor that is no view into memory that stays that of the tensor."""
    tensor.buffer()
    tensor._shared = memory
    _show_from(memory, tensor)
    if tensor._cell is not None:
        tensor._cell.put(tensor._call)
        tensor._cell.writes += 1
        tensor._seen = tensor._cell.writes


def _show_from(memory: SharedMemory | None, tensor: Any) -> None:
    """Copies a computed value into the memory, and shows it from there."""
    call = tensor._call
    if memory is None or call.buffer is memory.buffer:
        return
    shape, dtype = call.type.shape, call.type.dtype.numpy
    if call.scalar is None:
        memory.write(call.buffer.view(shape, dtype))
        call.buffer = memory.buffer
        return
    # A number is part of the programs that read it, and would not be looked up in the memory.
    memory.write(np.full(shape, call.scalar).astype(dtype))
    tensor._call = leaf(call.type, memory.buffer)
    for name in ("requires_grad", "tape", "epoch"):
        setattr(tensor._call, name, getattr(call, name))
