"""Counters: 0-d tensors whose value the host knows, so that counting runs no kernel."""

from __future__ import annotations

from metaop.tensor.core import Tensor
from metaop.tensor.shared_storage import is_exposed, settle
from metaop.unified_graph.recording import Call, scalar_leaf
from metaop.unified_graph.tensor_type import CPU
from metaop.unified_graph.tracing import repeated, state


def count_of(counter: Tensor) -> float:
    """The value of a counter."""
    call = counter.call
    if call.scalar is not None:
        return call.scalar
    device = call.type.device
    if call.buffer is None or (device is not CPU and device.placement is None):
        return counter.item()
    # Captured functions may not read values, but reading a counter is allowed.
    return call.buffer.view((), call.type.dtype.numpy).item()


def set_count(counter: Tensor, value: float) -> None:
    """Sets the value of a counter."""
    kind = counter.call.type
    show_count(counter, scalar_leaf(value, kind.dtype, kind.device))


def show_count(counter: Tensor, call: Call) -> None:
    """Makes a number the value of a counter; nothing is pending, so no cut is affected."""
    held = (counter._base, counter._cell, counter._shared)
    if any(one is not None for one in held) or is_exposed(counter._call):
        counter._assign(call, "count")
        settle()
    else:
        counter._call = call
        counter._writes += 1


def increased(counter: Tensor) -> float:
    """Adds one to a counter and returns its value."""
    # Whatever cannot be replayed raises here, before anything has changed.
    if state.trace is not None:
        repeated(lambda: (increased(counter),)[1:])
    value = count_of(counter) + 1
    set_count(counter, value)
    return value
