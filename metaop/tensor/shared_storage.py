"""Storage that others see, processes or arrays: new values are copied to the memory they know."""

from __future__ import annotations

from typing import Any

from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.memory.shared import SharedMemory
from metaop.execution.executor import realize
from metaop.unified_graph.recording import Call, leaf
from metaop.unified_graph.tracing import state

# Tensors with a new value that has not been copied yet to memory that others see, and that memory:
# None for what processes share.
unsettled: list[tuple[Any, Buffer | None]] = []


def is_exposed(call: Call) -> bool:
    """Whether an array outside of the framework shows the memory of a value."""
    return was_exposed(call) and call.buffer.is_exposed


def was_exposed(call: Call) -> bool:
    """Whether an array shows the memory of a value, or did so before."""
    return call.buffer is not None and call.buffer.exposure is not None


def settle() -> None:
    """Computes new values of tensors in memory that others see, and copies them there.

    Every in-place operation calls it; code that assigns to many tensors calls it once at the end.
    While a function is captured, nothing is computed, and its writes settle at its end.
    """
    if not unsettled or state.trace is not None:
        return
    pairs = list(unsettled)
    unsettled.clear()
    realize(*[tensor._call for tensor, _ in pairs])
    for tensor, memory in pairs:
        if memory is None:
            if tensor._shared is not None:
                _show_from(tensor._shared.buffer, tensor)
        elif memory.is_exposed and tensor._call.buffer is not memory:
            # Calls that have the old value, for gradients, keep it.
            _show_from(memory.vacate(), tensor)


def share(tensor: Any, memory: SharedMemory) -> None:
    """Moves the value of a tensor, which must not be a view, to shared memory that it keeps."""
    tensor.buffer()
    tensor._shared = memory
    _show_from(memory.buffer, tensor)
    if tensor._cell is not None:
        tensor._cell.put(tensor._call)
        tensor._cell.writes += 1
        tensor._seen = tensor._cell.writes


def _show_from(memory: Buffer, tensor: Any) -> None:
    """Copies a computed value to the memory, and makes the tensor read it there."""
    call = tensor._call
    if call.buffer is memory:
        return
    shape, dtype = call.type.shape, call.type.dtype.numpy
    values = memory.view(shape, dtype)
    if call.scalar is None:
        values[...] = call.buffer.view(shape, dtype)
        call.buffer = memory
        return
    # Programs take a number as an argument, so they would not read it from the memory.
    values[...] = call.scalar
    tensor._call = leaf(call.type, memory)
    for name in ("requires_grad", "tape", "epoch"):
        setattr(tensor._call, name, getattr(call, name))
