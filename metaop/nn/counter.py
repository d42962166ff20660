"""Counters: 0-d tensors whose value the host knows, so that counting computes nothing."""

from __future__ import annotations

from metaop.tensor.core import Tensor
from metaop.unified_graph.recording import Call, scalar_leaf


def count_of(counter: Tensor) -> float:
    """The value of a counter."""
    known = counter.call.scalar
    return counter.item() if known is None else known


def set_count(counter: Tensor, value: float) -> None:
    """Gives a counter a new value."""
    kind = counter.call.type
    show_count(counter, scalar_leaf(value, kind.dtype, kind.device))


def show_count(counter: Tensor, call: Call) -> None:
    """Makes a number the value of a counter; nothing is pending, so no cut has to know."""
    if counter._base is not None or counter._cell is not None:
        counter._assign(call, "count")
    else:
        counter._call = call
        counter._writes += 1


def increased(counter: Tensor) -> float:
    """Adds one to a counter and returns its value."""
    value = count_of(counter) + 1
    set_count(counter, value)
    return value
