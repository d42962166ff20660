"""Records a function for export: it runs on inputs without values, and nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from metaop.errors import ExportError
from metaop.execution.executor import realize
from metaop.export.structure import taken_apart
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.grad_mode import no_grad
from metaop.unified_graph.composite import Signature
from metaop.unified_graph.cut import Subgraph, cut_at, recorder
from metaop.unified_graph.recording import Call, watched
from metaop.unified_graph.tensor_type import CPU, TensorType
from metaop.unified_graph.tracing import HostStep, Trace, state

Shape = tuple[int, ...]


class Recorded(NamedTuple):
    """The recording of a function: its calls, inputs and results.

    `buffers` has the memory that represents each input. `results` are the calls of the tensors in
    `structure`, whose names are `names`.
    """

    subgraph: Subgraph
    buffers: list[Any]
    structure: Any
    names: list[str]
    results: list[Call]


class _Steps(list[HostStep]):
    """Rejects functions that need host work in every run."""

    def append(self, step: HostStep) -> None:
        if step.calls:
            raise ExportError(
                "an exported program cannot draw random numbers",
                fix="call eval() on the module first, or pass the random numbers as an input",
            )
        raise ExportError(
            "an exported program cannot keep counters between runs",
            fix="call eval() on the module first",
        )


class _Reasons(list[str]):
    """Rejects changes of Python state."""

    def append(self, reason: str) -> None:
        raise ExportError(
            f"the function cannot be exported: {reason}",
            fix="do that outside of the exported function",
        )


def _read() -> None:
    state.trace = None
    raise ExportError(
        "the function reads a value that it computes or receives, so its graph may depend on data; "
        "a file holds one graph for all data",
        fix="use metaop.where or masks in place of branches, or export the parts between such "
        "reads separately",
    )


def record(
    function: Callable[[list[Tensor]], Any], types: Sequence[TensorType], shapes: Sequence[Shape]
) -> Recorded:
    """Runs a function on tensors of these shapes; returns its recording.

    Raises ExportError, with the line, if the recording cannot be stored in a file; propagates the
    function's own errors.
    """
    realize()
    inputs = [_stand_in(kind, shape) for kind, shape in zip(types, shapes)]
    buffers = [one.call.buffer for one in inputs]
    trace = Trace(_read, for_any_size=True)
    trace.steps, trace.reasons = _Steps(), _Reasons()
    noted, watched.locations = watched.locations, True
    try:
        state.trace = trace
        with no_grad(), _watching(trace, buffers):
            result = function(inputs)
    finally:
        state.trace, watched.locations = None, noted
    tensors: list[Tensor] = []
    names: list[str] = []
    structure = taken_apart(result, tensors, names, "output")
    if not tensors:
        raise ExportError("the function returns no tensor", fix="return its results")
    calls = [_plain(tensor) for tensor in tensors]
    _check_escapes(trace, tensors)
    pending = [call for call in dict.fromkeys(calls) if call.is_pending]
    subgraph = cut_at(pending, lambda call: ())
    for call, signature in subgraph.operators:
        if signature.gradients:
            call.signature = _without_gradients(signature)
    return Recorded(subgraph, buffers, structure, names, calls)


def _without_gradients(signature: Signature) -> Signature:
    """The same signature without additions for gradients, which may be requested elsewhere."""
    return Signature(signature.composite, signature.input_types, signature.attributes)


def _stand_in(kind: TensorType, shape: Shape) -> Tensor:
    return from_array(np.zeros(shape, kind.dtype.numpy), kind.dtype)


def _plain(tensor: Tensor) -> Call:
    if tensor.device is not CPU:
        raise ExportError(
            f"a result is on {tensor.device}", fix='move the module to the CPU: model.to("cpu")'
        )
    return tensor.call


def _check_escapes(trace: Trace, results: Sequence[Tensor]) -> None:
    """Rejects tensors that the function creates and keeps: later calls would create others."""
    known = {id(tensor) for tensor in results}
    # Views of a result, and bases of results, are allowed.
    known |= {id(tensor._base) for tensor in results}
    for reference in recorder.own.handles:
        handle = reference()
        if not isinstance(handle, Tensor) or id(handle) in known:
            continue
        if handle._call.sequence > trace.started and handle._call.is_pending:
            raise ExportError(
                f"the function keeps a tensor of shape {list(handle._call.type.shape)} that it "
                "computed, in an attribute or a list",
                fix="return it, or compute it before the call",
            )


@contextmanager
def _watching(trace: Trace, inputs: Sequence[Any]) -> Iterator[None]:
    """Rejects writes to tensors that existed before, and reads of inputs, in this thread."""
    thread = get_ident()
    names = ("_rebind", "_assign", "buffer")
    rebind, assign, buffer = before = [Tensor.__dict__[name] for name in names]

    def checked_rebind(
        tensor: Tensor, call: Call, operator: str, started: int | None = None
    ) -> None:
        if get_ident() == thread:
            _refuse_write(tensor, operator, trace)
        rebind(tensor, call, operator, started)

    def checked_assign(tensor: Tensor, call: Call, operator: str) -> None:
        if get_ident() == thread:
            _refuse_write(tensor, operator, trace)
        assign(tensor, call, operator)

    def checked_buffer(tensor: Tensor) -> Any:
        if get_ident() == thread and any(tensor.call.buffer is one for one in inputs):
            _read()
        return buffer(tensor)

    for name, method in zip(names, (checked_rebind, checked_assign, checked_buffer)):
        setattr(Tensor, name, method)
    try:
        yield
    finally:
        for name, method in zip(names, before):
            setattr(Tensor, name, method)


def _refuse_write(tensor: Tensor, operator: str, trace: Trace) -> None:
    """Rejects writes to tensors that existed before, or that share memory with one."""
    storage = tensor if tensor._base is None else tensor._base
    call = storage.call
    is_shared = storage._cell is not None and call.buffer is not None
    if call.sequence < trace.started or is_shared:
        raise ExportError(
            f"{operator} writes a tensor of shape {list(call.type.shape)} that existed before the "
            "call, an input or a buffer; an exported program changes nothing but its results",
            fix="call eval() on the module, write to a clone(), or return the new value",
        )
