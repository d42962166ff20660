"""Tracing a call: it is recorded and run once, and everything that it touched is classified."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

from metaop.capture.executed import Executed
from metaop.capture.guards import Guards
from metaop.capture.places import Given, GradientOf, Known, Place, root_of, sharing
from metaop.capture.read_set import ReadSet, form_of
from metaop.capture.replay import Gradient, Replay, Source, Target, aliases_in
from metaop.capture.results import Before, Refusal, Results
from metaop.capture.step_graph import step_graph
from metaop.differentiation.tape import live_residuals, sources_of
from metaop.execution.executor import program_of, realize
from metaop.execution.executor import run as run_subgraph
from metaop.tensor.core import Tensor
from metaop.tensor.history import is_leaf_call
from metaop.unified_graph.cut import Key, Subgraph, cut_at, recorder
from metaop.unified_graph.recording import Call
from metaop.unified_graph.tracing import Trace, configuration, state

# How many traces of a signature are compared with the next one.
_KEPT_EVIDENCE = 8


class TraceRecord(NamedTuple):
    """What a trace recorded, and in which Python state: two that agree make a captured call.

    `constants` are digests of data and numbers that the call made, by slot; `presence` tells which
    gradients it found.
    """

    key: Key
    constants: dict[int, bytes]
    presence: list[bool]
    guards: Guards

    def is_of_state(self, other: TraceRecord) -> bool:
        """Whether both calls found the same state, so that they should have done the same."""
        return self.presence == other.presence and self.guards.equal(other.guards)


def traced(
    function: Callable[[], Any],
    tensors: Sequence[Tensor],
    roots: Sequence[Any],
    history: list[TraceRecord],
    read: Callable[[], None],
    keeps_graph: bool = False,
) -> tuple[Any, Replay | str]:
    """Runs `function`; returns its result with a replay, or with the reason why there is none.

    What it reads of the Python state starts at the `roots`. `history` holds earlier traces; this
    one is appended. Only what two traces recorded identically counts as the function's behaviour.
    `read` is called when a value is read. With `keeps_graph`, the replay can be repeated in a loop.
    """
    with recorder.lock:
        for tensor in tensors:  # a view may have to catch up with its base
            _ = tensor.call
        realize()
        trace = Trace(read)
        state.trace = trace
        try:
            with ReadSet(trace) as read_set:
                for tensor in tensors:
                    _ = tensor.call
                with Executed() as executed:
                    result = function()
                for tensor in list(read_set.before):
                    _ = tensor.call
            state.trace = None
        finally:
            state.trace = None
        guards = Guards(roots, executed, tensors)
        classified = _Classified(trace, read_set, tensors, guards)
        return result, _finished(classified, result, history, keeps_graph)


def _finished(
    classified: _Classified, result: Any, history: list[TraceRecord], keeps_graph: bool
) -> Replay | str:
    handles = [handle for handle in (one() for one in recorder.own.handles) if handle is not None]
    roots = recorder.take_roots()
    if not roots:
        return "it records nothing"
    if any(root.type.device is not roots[0].type.device for root in roots):
        recorder.own.handles.extend(map(_reference, handles))
        realize()
        return "it computes on several devices"
    subgraph = cut_at(roots, live_residuals)
    leaves = list(subgraph.leaves)
    numbers = {call: k for k, call in enumerate(subgraph.outputs)}
    graph = step_graph(subgraph, result) if keeps_graph else None
    copied = run_subgraph(subgraph, whole=True)
    try:
        classified.confirm(subgraph, leaves, history)
        replay = classified.replay(subgraph, roots, leaves, numbers, copied, handles, result)
        replay.graph = graph
        return replay
    except Refusal as refusal:
        return str(refusal)


def _is_tracked(call: Call) -> bool:
    """Whether a gradient can still be taken through a value that the call computed.

    It cannot if the inputs of the value are freed: a backward pass would stop there.
    """
    if not call.requires_grad or is_leaf_call(call):
        return False
    seen = {call}
    stack = [call]
    while stack:
        current = stack.pop()
        if current.released:
            return False
        for source in sources_of(current):
            if source is not None and source.requires_grad and source not in seen:
                seen.add(source)
                stack.append(source)
    return True


def _reference(handle: Any) -> Any:
    from weakref import ref

    return ref(handle)


class _Classified:
    """Sorts what a traced call touched: arguments, fixed tensors, numbers, constants."""

    def __init__(
        self,
        trace: Trace,
        read_set: ReadSet,
        tensors: Sequence[Tensor],
        guards: Guards,
    ) -> None:
        self.trace = trace
        self.read_set = read_set
        self.guards = guards
        self.tensors = tensors
        self.positions = {tensor: k for k, tensor in reversed(list(enumerate(tensors)))}
        self.owners = {
            gradient: owner
            for owner, gradient in read_set.gradients_read()
            if isinstance(gradient, Tensor)
        }
        # These have no name and are different tensors in later calls.
        roots = map(root_of, tensors)
        self.hidden = {one for one in roots if one not in self.positions}
        self.hidden -= guards.tensors.union(guards.members())

    def place(self, tensor: Tensor) -> Place:
        """How a later call finds the tensor."""
        position = self.positions.get(tensor)
        if position is not None:
            return Given(position)
        if tensor in self.hidden:
            raise Refusal("it writes, or returns, the memory of an argument that is a view")
        owner = self.owners.get(tensor)
        return Known(tensor) if owner is None else GradientOf(self.place(owner))

    def confirm(self, subgraph: Subgraph, leaves: list[Call], history: list[TraceRecord]) -> None:
        """Refuses unless the last trace in the same state of Python recorded the same."""
        presence = [present for _, present in self._gradients_read()]
        found = TraceRecord(subgraph.key, self._constants(leaves), presence, self.guards)
        earlier = [one for one in history if one.is_of_state(found)]
        last = history[-1] if history else found
        history.append(found)
        del history[:-_KEPT_EVIDENCE]
        if self.trace.reasons:
            raise Refusal(self.trace.reasons[0])
        if self.guards.refusal is not None:
            raise Refusal(self.guards.refusal)
        changed = chain.from_iterable(step.changes for step in self.trace.steps)
        if any(map(self.guards.watches, changed)):
            raise Refusal("it reads settings of an optimizer that a schedule changes meanwhile")
        if not earlier:
            name = self.guards.difference(last.guards)
            raise Refusal(f"{name} differs from call to call")
        if earlier[-1].key != found.key or earlier[-1].constants != found.constants:
            raise Refusal("it makes numbers or tensors that differ from call to call")

    def replay(
        self,
        subgraph: Subgraph,
        roots: list[Call],
        leaves: list[Call],
        numbers: dict[Call, int],
        copied: tuple[int, ...],
        handles: list[Any],
        result: Any,
    ) -> Replay:
        if any(_is_tracked(call) for call in roots):
            raise Refusal("a gradient can still be taken through its results")
        steps, stepped = self._steps(leaves)
        sources, arguments = self._sources(leaves, stepped)
        before = Before(self.read_set.before, self.tensors, self.hidden, self.place, self._owner_of)
        results = Results(before, numbers)
        gradients = self._gradients(numbers, results.kept)
        targets = self._targets(numbers)
        makes = results.making(result)
        self._check_escapes(handles, results.kept)
        known = self.hidden.union(self.positions)
        touched = [tensor for tensor in self.read_set.before if tensor not in known]
        reached = self.guards.tensors.union(touched)
        return Replay(
            program_of(subgraph), arguments, steps, sources, copied, targets, gradients,
            self._gradients_read(), makes, configuration.number, self.guards,
            touched, results.fresh,
            aliases_in(reached, self.tensors), reached, sharing((*self.tensors, *touched)),
        )  # fmt: skip

    # --- where values come from -------------------------------------------------------------

    def _constants(self, leaves: list[Call]) -> dict[int, bytes]:
        """The data and the numbers that this call itself made, by slot."""
        stepped = {call for step in self.trace.steps for call in step.calls}
        constants = {}
        for slot, call in enumerate(leaves):
            if call in stepped or self._handle(call) is not None:
                continue
            if call.buffer is None:
                constants[slot] = repr(call.scalar).encode()
            else:
                content = blake2b(memoryview(call.buffer.view((call.buffer.nbytes,), "u1")))
                constants[slot] = content.digest()
        return constants

    def _handle(self, call: Call) -> Tensor | None:
        """The tensor that had this value, or the memory of this value, before the call."""
        handle = self.read_set.handles.get(call)
        if handle is None and call.buffer is not None:
            for known, tensor in self.read_set.handles.items():
                if known.buffer is call.buffer and known.type is call.type:
                    return tensor
        return handle

    def _steps(self, leaves: list[Call]) -> tuple[list[Any], set[Call]]:
        slots = {call: slot for slot, call in enumerate(leaves)}
        spare = len(leaves)
        steps = []
        stepped: set[Call] = set()
        for step in self.trace.steps:
            stepped.update(step.calls)
            # A number that nothing reads goes into a slot after the arguments.
            steps.append((step, tuple(slots.get(call, spare) for call in step.calls)))
        return steps, stepped

    def _sources(self, leaves: list[Call], stepped: set[Call]) -> tuple[list[Source], list[Any]]:
        sources = []
        arguments: list[Any] = []
        for slot, call in enumerate(leaves):
            arguments.append(call.buffer if call.scalar is None else call.scalar)
            if call in stepped:
                continue
            handle = self._handle(call)
            if handle is not None:
                arguments[-1] = None
                sources.append(Source(slot, self.place(handle), call.type))
            elif call.scalar is None and call.sequence < self.trace.started:
                raise Refusal("it reads a value whose tensor is not known")
        return sources, [*arguments, None]

    # --- where values go --------------------------------------------------------------------

    def _targets(self, numbers: dict[Call, int]) -> list[Target]:
        targets = []
        for tensor, before in self.read_set.before.items():
            after = tensor._call
            self._check_form(tensor, before, after)
            if after is before or tensor._base is not None or after.scalar is not None:
                continue
            if after.requires_grad and not is_leaf_call(after):
                raise Refusal("it writes a tensor in place whose gradient is tracked")
            if after in numbers:
                targets.append(Target(numbers[after], self.place(tensor), after.type))
            elif after.buffer is not before.buffer:
                raise Refusal("it gives a tensor the memory of another one")
        return targets

    def _gradients(self, numbers: dict[Call, int], kept: set[int]) -> list[Gradient]:
        changes = []
        for owner, before in self.read_set.gradients.items():
            after = owner.grad
            if after is before:
                continue
            if after is None:
                changes.append(Gradient(None, self.place(owner), None))
                continue
            kept.add(id(after))
            if after.is_sparse:
                raise Refusal("it leaves a sparse gradient: call zero_grad() at its end")
            if after._call not in numbers:
                raise Refusal("it sets a gradient that it did not compute")
            number = numbers[after._call]
            changes.append(Gradient(number, self.place(owner), after._call.type))
        return changes

    def _gradients_read(self) -> list[tuple[Place, bool]]:
        return [
            (self.place(owner), gradient is not None)
            for owner, gradient in self.read_set.gradients_read()
        ]

    def _check_form(self, tensor: Tensor, before: Call, after: Call) -> None:
        """Refuses changes of an existing tensor that later calls would not repeat."""
        if self.read_set.forms[tensor] != form_of(tensor):
            raise Refusal("it changes the shape of a tensor in place")
        if after.requires_grad != before.requires_grad:
            raise Refusal("it changes whether a tensor requires a gradient")
        if after is not before and tensor._base is not None and tensor in self.positions:
            raise Refusal("it writes an argument that is a view")

    def _owner_of(self, tensor: Tensor) -> Tensor | None:
        """The tensor whose gradient this tensor is."""
        return next((one for one in self.read_set.gradients if one.grad is tensor), None)

    def _check_escapes(self, handles: list[Any], kept: set[int]) -> None:
        """Refuses tensors that outlive the call elsewhere: later calls would not change them."""
        if not self._escaped(handles, kept):
            return
        # Objects that only cycles hold are not alive.
        watched = [_reference(handle) for handle in handles]
        handles.clear()
        gc.collect()
        alive = [handle for handle in (one() for one in watched) if handle is not None]
        if self._escaped(alive, kept):
            raise Refusal("it keeps a new tensor outside its results and gradients")

    def _escaped(self, handles: list[Any], kept: set[int]) -> bool:
        return any(
            isinstance(handle, Tensor)
            and handle not in self.read_set.before
            and id(handle) not in kept
            for handle in handles
        )
