"""Values in memory that arrays show too: as in PyTorch, each sees at once what the other writes.

`from_numpy(array)` borrows memory, `numpy()` lends it. While such an array exists, whoever holds it
may write it at any time, so a pending call must not read the memory: it reads a copy of few values,
and a call that reads many is computed at once. What tensors write in place is computed at once and
copied there (`shared_storage.settle`).
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import memmove, string_at

import numpy as np

from metaop.codegen.memory.buffers import FOREIGN_ALIGNMENT, Buffer, allocate
from metaop.execution.executor import realize, realize_at_once
from metaop.operators.shaping import as_strided
from metaop.reindex.strided import strided_values
from metaop.tensor.core import Tensor, view, wrap
from metaop.tensor.history import is_shared
from metaop.tensor.shared_storage import is_exposed
from metaop.tensor.storage import owner_and_layout
from metaop.unified_graph.cut import depends_on, recorder
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import Call, exposed, leaf, share_epoch
from metaop.unified_graph.tensor_type import TensorType
from metaop.unified_graph.tracing import state

# Up to so many bytes are copied for a call that reads them.
_MOST_COPIED = 1 << 16


def borrow(array: np.ndarray, dtype: DType) -> Tensor:
    """A tensor on the memory of an array that its user keeps, or on a copy if it has to be one."""
    if array.flags.c_contiguous:
        buffer = Buffer.borrowed(array)
        if buffer.exposure is not None:
            return _on(buffer, array, dtype)
    place = _strided(array)
    if place is None:
        return _on(Buffer.from_numpy(array), array, dtype)
    row, *steps = place
    return view(_on(Buffer.borrowed(row), row, dtype), as_strided, (array.shape, *steps))


def _on(buffer: Buffer, array: np.ndarray, dtype: DType) -> Tensor:
    if buffer.exposure is not None:
        _attend()
    return wrap(leaf(TensorType(array.shape, dtype), buffer))


def _strided(array: np.ndarray) -> tuple[np.ndarray, tuple[int, ...], int] | None:
    """A row of elements that a buffer can borrow, and the strides and the offset of `array` in it.

    None where there is none: for memory that is read-only or not NumPy's, for negative strides.
    """
    width, start = array.itemsize, array.ctypes.data
    if not array.flags.writeable or not array.size:
        return None
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    offset = (start - root.ctypes.data) % FOREIGN_ALIGNMENT
    if root.ctypes.data % FOREIGN_ALIGNMENT or not root.flags.forc or offset % width:
        return None
    if any(stride < 0 or stride % width for stride in array.strides):
        return None
    strides = tuple(stride // width for stride in array.strides)
    last = offset // width + sum((n - 1) * step for n, step in zip(array.shape, strides))
    memory = root if root.flags.c_contiguous else root.T
    row = np.ndarray(last + 1, array.dtype, memory, start - offset - root.ctypes.data)
    return row, strides, offset // width


def lend(tensor: Tensor) -> np.ndarray | None:
    """An array on the memory of a tensor, or of the base of a view; None if there is no such array.

    That is so on other devices, and while a function is captured.
    """
    if state.trace is not None:
        return None
    kind = tensor._call.type
    dtype = kind.dtype
    owner, place = tensor, None
    if tensor._base is not None:
        owner, place = owner_and_layout(tensor)
    was_pending = owner.call.buffer is None
    buffer = owner.buffer()
    if not isinstance(buffer, Buffer):
        return None
    if not buffer.is_exposed:
        _expose(owner, buffer, was_pending)
    if place is None:
        return np.ndarray(kind.shape, dtype.numpy, buffer.lent())
    strides, offset = place
    width = dtype.itemsize
    steps = [stride * width for stride in strides]
    return np.ndarray(kind.shape, dtype.numpy, buffer.lent(), offset * width, steps)


def _expose(owner: Tensor, buffer: Buffer, was_pending: bool) -> None:
    """Prepares for writes to the memory of a tensor by others."""
    _attend()
    owner._call.scalar = None  # programs would take the number, not read the memory
    if was_pending:
        # Tensors in the same storage show this memory, not copies of it.
        cell = owner._cell
        if cell is not None and is_shared(owner) and cell._call.buffer is not buffer:
            cell.put(owner._call)
            cell.writes += 1
            owner._seen = cell.writes
    elif recorder.reads(buffer):
        realize()


def _attend() -> None:
    """From now on, recorded calls pay attention to exposed memory."""
    exposed.read, exposed.compute = _read, _compute


def _read(inputs: Sequence[Call | None]) -> tuple[Sequence[Call | None], bool]:
    """The operands of a call that is being recorded, and whether it has to be computed at once."""
    if state.trace is not None:
        return inputs, False
    operands = []
    is_due = False
    for call in inputs:
        if call is not None and is_exposed(call):
            if call.requires_grad or call.buffer.nbytes > _MOST_COPIED:
                is_due = True
            else:
                call = _copied(call)
        operands.append(call)
    return operands, is_due


def _compute(call: Call) -> None:
    """Computes the calls that are due, within `call` if they are on its way."""
    due = [one for one in exposed.due if one.is_pending]
    exposed.due.clear()
    if call in due:
        found = strided_values(call)
        if found is not None and found.nbytes <= _MOST_COPIED:
            call.buffer = Buffer.from_numpy(found.copy())
            due.remove(call)
    inside = depends_on(call, due) if due else ()
    for one, is_inside in zip(due, inside):
        has_more = one.signature is not None and one.signature.result_count > 1
        if one.is_pending and (has_more or not is_inside):
            realize_at_once(one)
    if True in inside and call.is_pending:
        realize_at_once(call)


def _copied(call: Call) -> Call:
    """A leaf with the current values of `call`; the last one again while they stay the same.

    So a program that reads an array many times has one argument for it.
    """
    buffer, exposure = call.buffer, call.buffer.exposure
    content = string_at(buffer.address, buffer.nbytes)
    if exposure.copy is not None:
        sequence, known, copy = exposure.copy
        if sequence == call.sequence and known == content:
            return copy  # type: ignore[no-any-return]
    own = allocate(buffer.nbytes)
    memmove(own.address, content, buffer.nbytes)
    copy = leaf(call.type, own)
    share_epoch(call, copy)
    exposure.copy = call.sequence, content, copy
    return copy
