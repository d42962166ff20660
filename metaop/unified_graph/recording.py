"""Recording: every user call appends one light `Call` to the unified graph.

A call consists of a composite's signature and the calls that are its inputs. Nothing is computed
until a cut (see `cut`) takes the pending part of the graph.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any
from weakref import ref

from metaop.errors import user_location
from metaop.unified_graph.composite import Composite, Signature, with_exact_zeros
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.shape_rule import note
from metaop.unified_graph.tensor_type import CPU, META, Device, TensorType

_sequence = itertools.count(1)


class Modes(threading.local):
    """How a thread records: whether it tracks gradients, and which casts are active.

    `casts` converts the operands of every call under autocast; `duals` says that calls propagate
    tangents, which requires gradient tracking.
    """

    def __init__(self) -> None:
        self.gradients = True
        self.duals = False
        self.casts: Any = None


class Watched:
    """What else is noted for each call: with `locations`, the line that recorded it.

    The profiler enables this; calls that can fail at run time always remember their line. While
    `locations` is on, `on_record` is called with every call, unless it is None.
    """

    __slots__ = ("locations", "on_record")

    def __init__(self) -> None:
        self.locations = False
        self.on_record: Callable[[Call], None] | None = None


class Meeting:
    """How a data-parallel program handles values on several devices (`tensor.data_parallel`).

    `joined` moves the operands of a call to one device, `trained` gives a trained parameter
    another value; both are None in all other programs, where operands are on one device.
    """

    __slots__ = ("joined", "trained")

    def __init__(self) -> None:
        self.joined: Callable[[Sequence[Call | None]], Sequence[Call | None]] | None = None
        self.trained: Callable[[Call], Call] | None = None


class Exposed:
    """How calls read values in memory that objects outside show too (`tensor.exposed`).

    `read` gives the operands to record instead, and says whether the call has to be computed before
    its user goes on. Such calls wait in `due` for the next handle, whose call `compute` computes
    with them. Both functions are None until a program shares memory with an array.
    """

    __slots__ = ("read", "compute", "due")

    def __init__(self) -> None:
        self.read: Callable[[Sequence[Call | None]], tuple[Sequence[Call | None], bool]] | None
        self.read = None
        self.compute: Callable[[Call], None] | None = None
        self.due: list[Call] = []


modes = Modes()
watched = Watched()
meeting = Meeting()
exposed = Exposed()


class Epoch:
    """The period during which a storage keeps one value; all calls that show the value share it.

    `ended_by` names the in-place operation that replaced the value. Calls from sequence number
    `ended_at` on belong to that operation and may use the old value.
    """

    __slots__ = ("ended_by", "ended_at")

    def __init__(self, ended_by: str | None = None, ended_at: int = 0) -> None:
        self.ended_by = ended_by
        self.ended_at = ended_at

    def ended_before(self, sequence: int) -> bool:
        """Whether an operation other than the one with this number replaced the value."""
        return self.ended_by is not None and sequence < self.ended_at

    def end(self, operator: str, started: int) -> None:
        """Notes that `operator`, recorded from sequence number `started` on, wrote the storage."""
        if self.ended_by is None:
            self.ended_by, self.ended_at = operator, started


class Call:
    """One recorded value: a leaf with a buffer or a number, a composite call, or a further output.

    `signature` is None for leaves and for projections; a projection is output number `index` of
    the call in `inputs[0]` (a call itself represents its output 0). `buffer` holds the value once
    it is computed. `sequence` increases with time, so it orders a graph topologically. `tape` holds
    what only some calls need for gradients; `epoch` tells whether the storage that a tensor showed
    with this value has been written since.
    """

    __slots__ = (
        "signature",
        "inputs",
        "index",
        "type",
        "buffer",
        "scalar",
        "sequence",
        "requires_grad",
        "released",
        "parts",
        "tape",
        "epoch",
        "location",
        "__weakref__",
    )
    signature: Signature | None
    inputs: tuple[Call, ...]
    index: int
    type: TensorType
    buffer: Any
    scalar: int | float | bool | None
    sequence: int
    requires_grad: bool
    released: bool
    parts: dict[int, Call | ref[Call]] | None
    tape: Any
    epoch: Epoch | None
    location: tuple[CodeType, int] | None

    def __init__(
        self,
        signature: Signature | None,
        inputs: tuple[Call, ...],
        type: TensorType,
        requires_grad: bool,
    ) -> None:
        self.signature = signature
        self.inputs = inputs
        self.type = type
        self.requires_grad = requires_grad
        self.sequence = next(_sequence)
        self.index = 0
        self.buffer = None
        self.scalar = None
        self.released = False
        self.parts = None
        self.tape = None
        self.epoch = None
        self.location = None

    @property
    def is_pending(self) -> bool:
        """Not computed yet and not a leaf; on the meta device nothing is ever pending."""
        return (
            self.buffer is None
            and bool(self.signature is not None or self.inputs)
            and self.type.device is not META
        )

    @property
    def is_projection(self) -> bool:
        """Whether this is a further output of another call."""
        return self.signature is None and bool(self.inputs)

    @property
    def maker(self) -> Call:
        """The call that computes the value: for a projection, the one whose output it is."""
        return self if self.signature is not None or not self.inputs else self.inputs[0]

    def __repr__(self) -> str:
        if self.signature is not None:
            return f"call {self.sequence} {self.signature}"
        if self.inputs:
            return f"output {self.index} of {self.inputs[0]!r}"
        return f"leaf {self.sequence} {self.type}"


def next_sequence() -> int:
    """A number greater than those of all calls recorded so far and less than those to come."""
    return next(_sequence)


def share_epoch(first: Call, second: Call) -> None:
    """Makes two calls represent the same stored value."""
    if first.epoch is None:
        first.epoch = Epoch()
    second.epoch = first.epoch


def leaf(type: TensorType, buffer: Any) -> Call:
    """A value that exists already."""
    call = Call(None, (), type, False)
    call.buffer = buffer
    return call


def leaf_like(leaf: Call) -> Call:
    """Another leaf with the value of a computed call."""
    call = Call(None, (), leaf.type, False)
    call.buffer = leaf.buffer
    return call


_scalar_types: dict[tuple[DType, Device], TensorType] = {}


def scalar_leaf(value: int | float | bool, dtype: DType, device: Device = CPU) -> Call:
    """A Python number that programs take as an argument, so that its value compiles nothing.

    For a complex dtype it has the dtype of the parts; operators convert it.
    """
    kind = _scalar_types.get((dtype, device))
    if kind is None:
        kind = _scalar_types[(dtype, device)] = TensorType((), dtype.part, device)
    call = Call(None, (), kind, False)
    call.scalar = value
    return call


def record(
    composite: Composite, inputs: Sequence[Call | None], attributes: tuple[Any, ...] = ()
) -> Call:
    """Appends a call of `composite` and returns it (its first result).

    `inputs` may contain None for absent optional operands. Shape and dtype errors are raised
    here, at the user's line.
    """
    mode = modes.__dict__  # this thread's: one access is cheaper than two
    casts = mode["casts"]
    if casts is not None:
        inputs = casts(composite, inputs)
    is_due = False
    if exposed.read is not None:
        for call in inputs:
            if call is not None and call.buffer is not None and call.buffer.exposure is not None:
                inputs, is_due = exposed.read(inputs)
                break
    types = tuple([None if call is None else call.type for call in inputs])
    if attributes and 0.0 in attributes:
        attributes = with_exact_zeros(attributes)
    signature = composite.signatures.get((types, attributes))
    if signature is None:
        if meeting.joined is not None:
            inputs = meeting.joined(inputs)
            types = tuple([None if call is None else call.type for call in inputs])
        signature = composite.signature(types, attributes)
        note(signature)
    if None in types:
        inputs = [call for call in inputs if call is not None]
    requires_grad = False
    if mode["gradients"] and signature.differentiable:
        for call in inputs:
            if call.requires_grad:  # type: ignore[union-attr]
                requires_grad = True
                break
    call = Call(signature, tuple(inputs), signature.types[0], requires_grad)  # type: ignore
    if watched.locations or signature.can_fail:
        call.location = user_location()
        if watched.on_record is not None:
            watched.on_record(call)
    if is_due:
        exposed.due.append(call)
    return call


def part(call: Call, index: int) -> Call:
    """Output number `index` of a call (0 is the call itself)."""
    if index == 0:
        return call
    if call.parts is None:
        call.parts = {}
    known = call.parts.get(index)
    if isinstance(known, Call):
        # A gradient of a gradient may take it, so it needs the way back to its call.
        if not known.requires_grad or not modes.gradients:
            return known
        return _like_part(known, (call,), index)
    alive = None if known is None else known()
    if alive is not None:
        return alive
    kind = call.signature.types[index]  # type: ignore[union-attr]
    requires_grad = call.requires_grad and kind.differentiable
    projection = Call(None, (call,), kind, requires_grad)
    projection.index = index
    # Later requests get the same object while it lives, so it is computed once.
    call.parts[index] = ref(projection)
    return projection


def save_part(call: Call, value: Call) -> None:
    """Lets a call hold a computed part without the way back, so neither keeps the other alive."""
    if call.parts is None:
        call.parts = {}
    call.parts[value.index] = _like_part(value, (), value.index)


def _like_part(value: Call, inputs: tuple[Call, ...], index: int) -> Call:
    same = Call(None, inputs, value.type, value.requires_grad)
    same.index, same.buffer, same.epoch = index, value.buffer, value.epoch
    return same


def results(call: Call) -> tuple[Call, ...]:
    """All results of a call, in the order in which its composite returns them."""
    return tuple(part(call, k) for k in range(call.signature.result_count))  # type: ignore
