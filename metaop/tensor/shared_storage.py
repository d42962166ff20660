"""Storage that processes share: the values of a shared tensor are copied to its fixed memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaop.codegen.memory.shared import SharedMemory
from metaop.executor import realize
from metaop.unified_graph.recording import leaf
from metaop.unified_graph.tracing import state

# Shared tensors with a new value that has not been copied to their memory yet.
unsettled: list[Any] = []


def settle() -> None:
    """Computes the new values of shared tensors and copies them to their memory.

    Every in-place operation calls it; code that assigns to many tensors calls it once at the end.
    While a function is captured, nothing is computed, and its writes settle at its end.
    """
    if not unsettled or state.trace is not None:
        return
    tensors = list(unsettled)
    unsettled.clear()
    realize(*[tensor._call for tensor in tensors])
    for tensor in tensors:
        _show_from(tensor._shared, tensor)


def share(tensor: Any, memory: SharedMemory) -> None:
    """Moves the value of a tensor, which must not be a view, to shared memory that it keeps."""
    tensor.buffer()
    tensor._shared = memory
    _show_from(memory, tensor)
    if tensor._cell is not None:
        tensor._cell.put(tensor._call)
        tensor._cell.writes += 1
        tensor._seen = tensor._cell.writes


def _show_from(memory: SharedMemory | None, tensor: Any) -> None:
    """Copies a computed value to the memory, and makes the tensor read it there."""
    call = tensor._call
    if memory is None or call.buffer is memory.buffer:
        return
    shape, dtype = call.type.shape, call.type.dtype.numpy
    if call.scalar is None:
        memory.write(call.buffer.view(shape, dtype))
        call.buffer = memory.buffer
        return
    # Programs take a number as an argument, so they would not read it from the memory.
    memory.write(np.full(shape, call.scalar).astype(dtype))
    tensor._call = leaf(call.type, memory.buffer)
    for name in ("requires_grad", "tape", "epoch"):
        setattr(tensor._call, name, getattr(call, name))
