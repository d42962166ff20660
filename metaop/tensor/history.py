"""The storage that tensors share, and values with another gradient history."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any
from weakref import ref

from metaop.differentiation.entries import Cotangent, TapeEntry
from metaop.differentiation.tape import as_before, origin
from metaop.errors import GradientError
from metaop.operators.basic import alias
from metaop.unified_graph.cut import recorder
from metaop.unified_graph.recording import Call, leaf, modes, record


class Cell:
    """The storage that a tensor shares with its detached peers.

    `_call` is the value, without gradient history; `writes` counts its changes. The recorder
    watches a cell like a handle, so that its value does not hold the graph that made it longer than
    needed.
    """

    __slots__ = ("_call", "writes", "__weakref__")

    def __init__(self, call: Call) -> None:
        self.writes = 0
        self.put(call)

    def put(self, call: Call) -> None:
        """Replaces the value."""
        self._call = untracked(call)
        if self._call.buffer is None:
            recorder.watch(self)


class _Holder:
    """Measures the reference count of a cell that only one tensor holds."""

    def __init__(self) -> None:
        self._cell = object()
        self.count = getrefcount(self._cell)


_HELD_ONCE = _Holder().count


def is_shared(holder: Any) -> bool:
    """Whether another tensor has the cell of `holder`, because the peers may be gone."""
    return getrefcount(holder._cell) != _HELD_ONCE


def is_leaf_call(call: Call) -> bool:
    """Whether gradients end here and are accumulated in a tensor's `grad`."""
    return call.tape is not None and call.tape.accumulate is not None


def leaf_write(operator: str) -> GradientError:
    """The error for an in-place operation on a leaf, outside `no_grad()`."""
    return GradientError(
        "a leaf Variable that requires grad (or a view of one) is being used in an in-place "
        f"operation ({operator})",
        fix="do it under metaop.no_grad(), or on a clone",
    )


def own(call: Call) -> Call:
    """A new call with the value of `call`, which may get another tape."""
    if call.buffer is not None:
        return leaf(call.type, call.buffer)
    previous, modes.gradients = modes.gradients, False
    try:
        return record(alias, (call,))
    finally:
        modes.gradients = previous


def untracked(call: Call) -> Call:
    """The value of `call` without its gradient history."""
    return own(call) if call.requires_grad else call


def with_history(value: Call, old: Call) -> Call:
    """`value` with the gradient history of `old`, for a write outside the tape."""
    call = own(value)
    call.requires_grad = True
    if is_leaf_call(old):
        call.tape = old.tape
    else:
        call.tape = TapeEntry(function=as_before, sources=(old,))
    return call


def move_retained(old: Call, new: Call) -> None:
    """Moves `retain_grad` to a tensor's new value; hooks stay with the old one."""
    tape = origin(old).tape
    if tape is None or not tape.retains:
        return
    if new.tape is None:
        new.tape = TapeEntry()
    new.tape.retains.extend(tape.retains)
    tape.retains.clear()


def accumulator(tensor: Any) -> Callable[[Cotangent], None]:
    """A function that accumulates gradients in a tensor while it lives; it holds no reference."""
    reference = ref(tensor)

    def accumulate(gradient: Cotangent) -> None:
        owner = reference()
        if owner is not None:
            owner._accumulate_grad(gradient)

    return accumulate
