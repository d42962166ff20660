"""The Tensor: a handle on a recorded value, with PyTorch's aliasing and gradient semantics.

Values are immutable; an in-place operation binds the handle to a new value. Tensors therefore share
storage in two ways:
- A *view* holds its base and the view operators between them. After a write to the base it applies
  these operators again, and a write through the view writes the base.
- *Peers* (a tensor and what `detach()` and `data` make of it) share a cell. A write puts the new
  value there, and each peer adopts it, with a gradient history of its own, when it is read.

Most methods are declared elsewhere in this folder (`surface.py`): `gradients.py` says how gradients
are tracked, `reading.py` how Python reads values, `writing.py` how results are written in place.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.memory.shared import SharedMemory
from metaop.differentiation.entries import TapeEntry
from metaop.errors import (
    ArgumentTypeError,
    DTypeError,
    GradientError,
    ShapeError,
)
from metaop.execution.executor import realize
from metaop.operators.basic import overwrite
from metaop.operators.view_write import view_write
from metaop.tensor import history
from metaop.tensor.attributes import Holder, own_fields
from metaop.tensor.history import Cell
from metaop.tensor.sharded.kept_signature import keep_signature
from metaop.tensor.shared_storage import is_exposed, settle, unsettled, was_exposed
from metaop.tensor.size import Size, new_size
from metaop.tensor.strides import has_overlap
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.cut import recorder
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Shape
from metaop.unified_graph.recording import (
    Call,
    Epoch,
    exposed,
    leaf,
    modes,
    record,
    share_epoch,
)
from metaop.unified_graph.tensor_type import CPU, Device, TensorType
from metaop.unified_graph.tracing import state

ViewStep = tuple[Composite, tuple[Any, ...]]

# Operators that write one value everywhere, and so may write through an expanded view.
_UNIFORM_WRITES = ("fill_", "zero_")
# How many writes in a row become one program: without a limit it would grow with a loop.
_MOST_UNREAD_WRITES = 16
# What `_changes` counts for memory that was lent and has come back: more than there are writes.
_A_LENDING = 1 << 40
_UNKNOWN = -1

if TYPE_CHECKING:
    from metaop.tensor.bound_methods import BoundMethods as _Bound
else:
    _Bound = Holder


class Tensor(_Bound):
    """An n-dimensional array that is computed lazily and can track gradients.

    Made by `metaop.tensor(data)` and the other creation functions, not by calling the class.
    `shape`, `dtype` and `device` describe it; operators and methods are recorded, and reading a
    value (printing, `item()`, `tolist()`, `numpy()`) computes what is pending.

    >>> x = metaop.tensor([1.0, 2.0], requires_grad=True)
    >>> (x**2).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    _call: Call
    _grad: Tensor | None = None
    # The tape entry of a leaf that stopped tracking: with it, its hooks come back with tracking.
    _frozen_tape: TapeEntry | None = None
    # The base of a view and the view operators between them.
    _base: Tensor | None = None
    _steps: tuple[ViewStep, ...]
    # The storage that a tensor shares with its peers, unless it is a view.
    _cell: Cell | None = None
    # How many writes of its base or cell this tensor has adopted, and how often it was written.
    _seen: int
    _writes: int = 0
    # The memory that other processes see, into which writes are copied.
    _shared: SharedMemory | None = None
    # Lets `numpy_array * tensor` reach Tensor.__rmul__.
    __array_priority__ = 1000

    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor:
        return object.__new__(cls)

    @property
    def call(self) -> Call:
        """The recorded value, after all writes to the storage."""
        if self._base is not None or self._cell is not None:
            self._refresh()
        return self._call

    def _refresh(self) -> None:
        base = self._base
        if base is not None:
            source = base.call
            now = _changes(base)
            if self._seen != now or now == _UNKNOWN or base._shared is not None:
                # Whoever looks at it first after a write need not track gradients; others may.
                previous, modes.gradients = modes.gradients, True
                try:
                    for step, attributes in self._steps:
                        source = _viewed(source, step, attributes)
                finally:
                    modes.gradients = previous
                self._adopt(source, keep_history=history.is_leaf_call(self._call))
                self._seen = now
        elif self._cell is not None:
            if self._seen != self._cell.writes:
                self._adopt(self._cell._call, keep_history=self._call.requires_grad)
                self._writes += self._cell.writes - self._seen - 1
                self._seen = self._cell.writes
            if not history.is_shared(self):
                self._cell = None
        if self._shared is not None:
            settle()

    def _adopt(self, value: Call, keep_history: bool) -> None:
        call = value
        if keep_history:
            call = history.with_history(value, self._call)
            share_epoch(value, call)
        self._bind(call)

    def _bind(self, call: Call) -> None:
        self._call = call
        self._writes += 1
        if self._shared is not None:
            unsettled.append((self, None))
        if call.buffer is None:
            recorder.watch(self)

    def _rebind(self, call: Call, operator: str, started: int | None = None) -> None:
        """Makes `call` the value of this tensor: every in-place operation ends here.

        Calls from the sequence number `started` on belong to the operation itself, which may
        overwrite what they save.
        """
        old = self.call
        if call is old:
            return
        started = call.sequence if started is None else started
        if call.type.shape != old.type.shape:
            raise ShapeError(
                f"{operator}: the result has shape {list(call.type.shape)}, the tensor that it "
                f"should be written into has {list(old.type.shape)}",
                fix="use the out-of-place form",
            )
        if call.type.device.placement is not None:
            call = keep_signature(old, call)
        if old.requires_grad:
            if not modes.gradients:
                call = history.with_history(call, old)
            elif history.is_leaf_call(old):
                raise history.leaf_write(operator)
            elif not call.requires_grad:
                call = record(overwrite, (old, call))
            if modes.gradients:
                history.move_retained(old, call)
        if self._base is not None:
            self._write_base(call, operator, started)
        if old.epoch is not None:
            old.epoch.end(operator, started)
        else:
            old.epoch = Epoch(operator, started)
        self._bind(call)
        if is_exposed(old):
            unsettled.append((self, old.buffer))
        settle()
        if self._cell is not None:
            self._cell.put(self._call)
            self._cell.writes += 1
            self._seen = self._cell.writes

    def _assign(self, call: Call, operator: str) -> None:
        """Makes `call`, which is fresh, untracked and of the same type, the value, off the tape.

        It is a cheap `_rebind` for many tensors at once (an optimizer's step), and requires that
        `self.call` has just been read. A leaf stays a leaf. What a backward pass has saved counts
        as overwritten.
        """
        if self._base is not None or self._cell is not None:
            previous, modes.gradients = modes.gradients, False
            try:
                self._rebind(call, operator)
            finally:
                modes.gradients = previous
            return
        old = self._call
        if call.type.device.placement is not None:
            call = keep_signature(old, call)
        if old.requires_grad:
            call.requires_grad = True
            call.tape = old.tape
        if old.epoch is None:
            old.epoch = Epoch(operator, call.sequence)
        else:
            old.epoch.end(operator, call.sequence)
        self._bind(call)
        if is_exposed(old):
            unsettled.append((self, old.buffer))

    def _write_base(self, call: Call, operator: str, started: int) -> None:
        base = self._base
        assert base is not None
        if operator not in _UNIFORM_WRITES and has_overlap(base._shape, self._steps):
            raise GradientError(
                f"{operator}: unsupported operation: more than one element of the written-to "
                "tensor refers to a single memory location",
                fix="clone() the tensor before performing the operation",
            )
        written = record(view_write, (base.call, call), (self._steps,))
        base._rebind(written, operator, started)
        self._seen = _changes(base)
        is_enough = base._writes % _MOST_UNREAD_WRITES == 0 and _are_unread_writes(written)
        if is_enough and state.trace is None:
            realize(written)

    def _show_as(self, step: Composite, attributes: tuple[Any, ...]) -> Tensor:
        """Turns this tensor into a view of what it was, for changes of the shape in place."""
        call = self.call
        if call.requires_grad and history.is_leaf_call(call):
            raise history.leaf_write(step.name + "_")
        if self._base is None:
            storage = wrap(call)
            storage._cell, storage._writes = self._cell, self._writes
            storage._shared, self._shared = self._shared, None
            storage._seen = self._seen if self._cell is not None else 0
            self._base, self._cell, self._steps = storage, None, ()
            self._seen = _changes(storage)
        self._steps = (*self._steps, (step, attributes))
        self._bind(_viewed(call, step, attributes))
        return self

    # --- what a tensor is -------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        return new_size(Size, self._call.type.shape)

    @property
    def _shape(self) -> Shape:
        return self._call.type.shape

    @property
    def _version(self) -> int:
        if self._base is not None:
            return self._base._version
        self._refresh()
        return self._writes

    @property
    def dtype(self) -> DType:
        return self._call.type.dtype

    @property
    def device(self) -> Device:
        return self._call.type.device

    @property
    def ndim(self) -> int:
        return len(self._call.type.shape)

    @property
    def requires_grad(self) -> bool:
        return self.call.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward passes accumulate for a leaf (or after `retain_grad()`)."""
        found = self._grad
        if found is None and not self.is_leaf and not self.retains_grad:
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during backward; call .retain_grad() on it, "
                "or read the gradient of a leaf",
                UserWarning,
                stacklevel=2,
            )
        return found

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            self._check_grad(value)
        self._grad = value

    def _check_grad(self, value: Any) -> None:
        if not (isinstance(value, Tensor) or getattr(value, "is_sparse", False)):
            raise ArgumentTypeError(
                f"assigned grad expected to be a Tensor or None but got {type(value).__name__}"
            )
        own, given = self._call.type, value
        if given.shape != own.shape:
            raise ShapeError(
                f"attempting to assign a gradient of size '{list(given.shape)}' to a tensor of "
                f"size '{list(own.shape)}'",
                fix="the gradient and the tensor have the same size",
            )
        if given.dtype is not own.dtype:
            raise DTypeError(
                f"attempting to assign a gradient of {given.dtype.name} to a tensor of "
                f"{own.dtype.name}",
                fix="convert the gradient with .to(tensor.dtype)",
            )

    def detach(self) -> Tensor:
        """The same storage without gradient tracking."""
        return self._peer(share_epoch)

    @property
    def data(self) -> Tensor:
        """Like `detach()`, but backward does not notice writes to it."""
        return self._peer(None)

    @data.setter
    def data(self, value: Tensor) -> None:
        other = value.detach()
        old, call = self.call, history.own(other.call)
        call.requires_grad, call.tape = old.requires_grad, old.tape
        if old.requires_grad and not history.is_leaf_call(old):
            call = history.with_history(call, old)
        self._base, self._cell, self._shared = other._base, other._cell, other._shared
        if other._base is not None:
            self._steps = other._steps
        self._seen = other._seen
        self._bind(call)

    def _peer(self, link: Callable[[Call, Call], None] | None) -> Tensor:
        source = self.call
        # A capture tells the tensors of a function apart by their calls, so each has its own.
        is_same = link is not None and not (state.trace is not None and source.buffer is not None)
        call = history.untracked(source) if is_same else history.own(source)
        if link is not None and call is not source:
            link(source, call)
        peer = wrap(call)
        base = self._base
        if base is not None:
            peer._base, peer._steps = base._peer(link), self._steps
            peer._seen = _changes(peer._base)
            return peer
        if self._cell is None:
            self._cell = Cell(source)
            self._seen = 0
        peer._cell, peer._seen = self._cell, self._cell.writes
        peer._shared = self._shared
        if link is not None:
            peer._writes = self._writes
        return peer


own_fields.update(Tensor.__annotations__)


def _are_unread_writes(call: Call) -> bool:
    """Whether the last `_MOST_UNREAD_WRITES` operations on a value were pending writes to views."""
    for _ in range(_MOST_UNREAD_WRITES):
        signature = call.signature
        if not call.is_pending or signature is None or signature.composite is not view_write:
            return False
        if call.requires_grad:
            return False
        call = call.inputs[0]
    return True


def wrap(call: Call) -> Tensor:
    """A new tensor whose value is `call`."""
    tensor = _unwatched(call)
    if call.buffer is None:
        recorder.watch(tensor)
    return tensor


def _unwatched(call: Call) -> Tensor:
    tensor = object.__new__(Tensor)
    tensor._call = call
    return tensor


def view(source: Tensor, step: Composite, attributes: tuple[Any, ...] = ()) -> Tensor:
    """The view that `step` makes of `source`."""
    call, base = source.call, source._base
    seen = _viewed(call, step, attributes)
    if base is None or (call.requires_grad and history.is_leaf_call(call)):
        base, steps = source, [(step, attributes)]
    else:
        steps = [*source._steps, (step, attributes)]
    changes = _changes(base)
    if changes == _UNKNOWN:
        # `Tensor.call` takes the values anew whenever they are read.
        tensor = _unwatched(seen)
        if seen in exposed.due:
            exposed.due.remove(seen)
    else:
        tensor = wrap(seen)
    tensor._base, tensor._steps, tensor._seen = base, tuple(steps), changes
    return tensor


def _changes(base: Tensor) -> int:
    """How often the value of a base may have changed, for its views to compare.

    It is unknown while arrays show its memory. Views that track gradients keep their call, by which
    gradients find them, and the value that they had when they were made.
    """
    call = base._call
    if not was_exposed(call) or call.requires_grad or state.trace is not None:
        return base._writes
    if call.buffer.is_exposed:
        return _UNKNOWN
    return base._writes + call.buffer.exposure.times * _A_LENDING


def _viewed(source: Call, step: Composite, attributes: tuple[Any, ...]) -> Call:
    call = record(step, (source,), attributes)
    epoch = source.epoch
    if epoch is None:
        epoch = source.epoch = Epoch()
    call.epoch = epoch
    return call


def from_array(array: np.ndarray, dtype: DType, device: Device = CPU) -> Tensor:
    """A leaf on the memory of a NumPy array of the same type, which is copied if unaligned."""
    return wrap(leaf(TensorType(array.shape, dtype, device), Buffer.from_numpy(array)))
