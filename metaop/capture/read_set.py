"""What a traced function touches: the tensors that it reads, and their gradients."""

from __future__ import annotations

from threading import get_ident
from typing import Any

from metaop.codegen.memory.buffers import Buffer
from metaop.tensor.core import Tensor
from metaop.tensor.history import own
from metaop.unified_graph.recording import Call
from metaop.unified_graph.tracing import Trace

_call_property: Any = Tensor.__dict__["call"]
_buffer_method: Any = Tensor.__dict__["buffer"]
_grad_property: Any = Tensor.__dict__["grad"]
_ABSENT = object()


def form_of(tensor: Tensor) -> Any:
    """How a view derives from its base; in-place changes of the shape change this."""
    return None if tensor._base is None else (id(tensor._base), tensor._steps)


class ReadSet:
    """Watches all tensors that its thread uses while a function is traced; free at other times.

    `handles` maps the values that tensors had before to these tensors. For each tensor whose `grad`
    was used, `gradients` holds the gradient that was read before it was set, if any.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.handles: dict[Call, Tensor] = {}
        self.before: dict[Tensor, Call] = {}
        self.forms: dict[Tensor, Any] = {}
        self.gradients: dict[Tensor, Any] = {}

    def __enter__(self) -> ReadSet:
        read_set, thread = self, get_ident()

        def call(tensor: Tensor) -> Call:
            found: Call = _call_property.fget(tensor)
            if get_ident() != thread:
                return found
            if found.sequence < read_set.trace.started and tensor not in read_set.before:
                found = read_set.note(tensor, found)
            return found

        def buffer(tensor: Tensor) -> Buffer:
            if get_ident() != thread:
                return _buffer_method(tensor)  # type: ignore[no-any-return]
            value = tensor.call
            made_here = value.sequence > read_set.trace.started and value not in read_set.handles
            if not (made_here and value.buffer is not None and not value.inputs):
                read_set.trace.read()
            found: Buffer = _buffer_method(tensor)
            return found

        def get(tensor: Tensor) -> Tensor | None:
            found = _grad_property.fget(tensor)
            if get_ident() == thread:
                read_set.gradients.setdefault(tensor, found)
            return found

        def put(tensor: Tensor, value: Tensor | None) -> None:
            if get_ident() == thread:
                read_set.gradients.setdefault(tensor, _ABSENT)
            _grad_property.fset(tensor, value)

        for name, value in (
            ("call", property(call)), ("buffer", buffer), ("grad", property(get, put)),
        ):  # fmt: skip
            setattr(Tensor, name, value)
        return self

    def __exit__(self, *exception: Any) -> None:
        for name, value in (
            ("call", _call_property), ("buffer", _buffer_method), ("grad", _grad_property),
        ):  # fmt: skip
            setattr(Tensor, name, value)

    def note(self, tensor: Tensor, value: Call) -> Call:
        """Notes a tensor that existed before; each is identified by a value of its own."""
        if value in self.handles and value.buffer is not None and not value.requires_grad:
            value, epoch = own(value), value.epoch
            value.epoch = epoch
            tensor._call = value
        self.before[tensor] = value
        self.forms[tensor] = form_of(tensor)
        self.handles.setdefault(value, tensor)
        return value

    def gradients_read(self) -> list[tuple[Tensor, Tensor | None]]:
        """The tensors whose gradient was read before it was set, and that gradient."""
        return [(tensor, grad) for tensor, grad in self.gradients.items() if grad is not _ABSENT]
