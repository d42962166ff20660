"""Cutting: takes the pending part of the recorded graph as one static subgraph.

A cut runs everything that is pending and visible to a live handle. It also keeps the intermediate
values that a live backward pass will need, so nothing is computed twice.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol, TypeVar
from weakref import ref

from metaop import settings
from metaop.forking import register_at_fork
from metaop.unified_graph.composite import Signature
from metaop.unified_graph.node import Node, input_node
from metaop.unified_graph.recording import Call, exposed, leaf_like, part, save_part
from metaop.unified_graph.tensor_type import META

T = TypeVar("T")


class Handle(Protocol):
    """An object that users hold, with a call."""

    _call: Call


class _Recording:
    """What one thread has recorded: its handles, and whether it computes only what is requested.

    `room` is how many handles there may be before dead ones are dropped.
    """

    __slots__ = ("handles", "holders", "paused", "room", "thread")

    def __init__(self) -> None:
        self.thread = ref(threading.current_thread())
        self.handles: list[ref[Any]] = []
        # What gives the values that backward passes in progress hold without a handle.
        self.holders: list[Callable[[], Iterable[Call]]] = []
        self.paused = False
        self.room = 0

    @property
    def has_ended(self) -> bool:
        """Whether the thread runs no more."""
        thread = self.thread()
        return thread is None or not thread.is_alive()

    def pending(self) -> list[tuple[Call, ref[Any]]]:
        """The pending calls of live handles, with the handles."""
        found = []
        for reference in tuple(self.handles):
            handle = reference()
            if handle is not None:
                call = handle._call
                if call.buffer is None and call.is_pending:
                    found.append((call, reference))
        return found


class _OfThread(threading.local):
    """The recording of a thread, which `known` lists as well."""

    def __init__(self, known: list[_Recording]) -> None:
        self.recording = _Recording()
        known.append(self.recording)


class Recorder:
    """The pending side of the unified graph: the handles whose values may be needed.

    Every thread has handles of its own, so what one thread computes does not depend on how far
    others are; a thread also takes over the handles of those that have ended. `lock` serialises
    cuts; recording itself needs no lock. A program that never reads a value must not let the graph
    grow forever: after many handles since the last cut, dead ones are dropped, and `overflow` is
    called if more than METAOP_PENDING_LIMIT calls are pending.
    """

    def __init__(self) -> None:
        self.overflow: Callable[[], None] = lambda: None
        self.restart()

    def restart(self) -> None:
        """Forgets everything that is pending, as a new process does that inherits nothing."""
        self.lock = threading.RLock()
        self._all: list[_Recording] = []
        self._of_thread = _OfThread(self._all)

    @property
    def own(self) -> _Recording:
        """What this thread has recorded."""
        return self._of_thread.recording

    def watch(self, handle: Handle) -> None:
        """Makes the value of a handle an output of the next cut, if the handle is still alive."""
        if exposed.due:
            exposed.compute(handle._call)  # type: ignore[misc]
        own = self._of_thread.recording
        own.handles.append(ref(handle))
        if len(own.handles) > own.room:
            self._make_room(own)

    def _make_room(self, own: _Recording) -> None:
        limit = settings.get("METAOP_PENDING_LIMIT")
        if len(own.handles) > limit:
            calls = self.take_roots(keep=True)
            if len(_pending_order(calls)) > limit:
                self.overflow()
        own.room = len(own.handles) + limit

    def take_roots(self, keep: bool = False) -> list[Call]:
        """The pending calls of all live handles of this thread, which are forgotten without `keep`.

        There are none while the thread's recording is paused.
        """
        own = self.own
        if own.paused:
            return []
        for other in self._others():
            if other.has_ended:
                own.handles += other.handles
                self._all.remove(other)
        pending = own.pending()
        own.handles = [handle for _, handle in pending] if keep else []
        roots = dict.fromkeys(call for call, _ in pending)
        for held in own.holders:
            roots.update(dict.fromkeys(call for call in held() if call.is_pending))
        return list(roots)

    @contextmanager
    def holding(self, held: Callable[[], Iterable[Call]]) -> Iterator[None]:
        """Inside, every cut of this thread also computes the values that `held` gives then.

        Otherwise each cut would compute again what the ones before it computed on the way.
        """
        holders = self.own.holders
        holders.append(held)
        try:
            yield
        finally:
            holders.pop()

    def reads(self, buffer: Any) -> bool:
        """Whether a pending call that this thread can see reads a buffer."""
        if not self.own.handles:
            return False
        pending = _pending_order([call for call, _ in self.own.pending()])
        return any(source.buffer is buffer for call in pending for source in call.inputs)

    def _others(self) -> list[_Recording]:
        return [one for one in self._all if one is not self.own] if len(self._all) > 1 else []

    def seen_elsewhere(self, roots: Sequence[Call]) -> list[Call]:
        """What a cut computes on the way to `roots` and handles of other threads can see."""
        return _on_the_way(roots, self._others())

    def seen(self, roots: Sequence[Call]) -> list[Call]:
        """What a cut computes on the way to `roots` and handles of any thread can see."""
        return _on_the_way(roots, self._all)


def depends_on(call: Call, others: Sequence[Call]) -> list[bool]:
    """Whether computing a pending call computes each of some others."""
    inside = set(_pending_order([call]))
    return [one in inside for one in others]


def _on_the_way(roots: Sequence[Call], recordings: Sequence[_Recording]) -> list[Call]:
    inside = set(_pending_order(roots)).difference(roots) if recordings else ()
    if not inside:
        return []
    return [call for one in recordings for call, _ in one.pending() if call in inside]


recorder = Recorder()
# A process forks only between cuts, whatever its other threads do, so the child is consistent.
register_at_fork(
    before=recorder.lock.acquire,
    after_in_parent=recorder.lock.release,
    after_in_child=recorder.lock.release,
)

# Calls with more computed operands than this ignore which operands are the same tensor.
MANY_OPERANDS = 8

Residuals = Callable[[Call], Iterable[Call]]

# The key of a program: the signatures of its calls, and how the calls are connected.
Key = tuple[tuple[int, ...], tuple[int, ...]]

_sequence_of = attrgetter("sequence")


@dataclass(slots=True)
class Subgraph:
    """A static piece of the recorded graph.

    `order` lists the calls to compute, inputs first; `leaves` the values that they start from, in
    the order of first use; `outputs` the calls whose values are kept. `signatures` has the id of
    each call's signature (0 for further outputs), and `wiring` encodes what the calls read and
    what is kept. `saved` are parts of calls that gradients will read; `read_later` are leaves that
    gradients, or calls of a live tape that run again, will read. Calls in `spread` have a separate
    leaf for each computed operand, so the structure does not depend on which of many operands are
    the same tensor (a batch drawn from a replay memory).
    """

    order: list[Call]
    leaves: list[Call]
    outputs: list[Call]
    signatures: tuple[int, ...]
    wiring: tuple[int, ...]
    saved: list[tuple[Call, Call]] = field(default_factory=list)
    read_later: frozenset[Call] = frozenset()
    spread: dict[Call, tuple[Call, ...]] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """The identity of the structure (not the data): equal keys run the same program."""
        return self.signatures, self.wiring

    @property
    def operators(self) -> list[tuple[Call, Signature]]:
        """The calls of `order` with their signatures, without further outputs."""
        return [(call, call.signature) for call in self.order if call.signature is not None]

    def inputs_of(self, call: Call) -> tuple[Call, ...]:
        """The inputs of a call: leaves and other calls of the subgraph."""
        return self.spread.get(call) or call.inputs

    def expand(self) -> tuple[list[Node], list[Node]]:
        """Expands the subgraph into meta-operators; returns its input and output nodes."""
        inputs = [
            input_node(slot, call.type.shape, call.type.dtype)
            for slot, call in enumerate(self.leaves)
        ]
        nodes = self.nodes_of(inputs)
        return inputs, [nodes[call][0] for call in self.outputs]

    def nodes_of(self, inputs: Sequence[Node]) -> dict[Call, list[Node]]:
        """The nodes of all calls, first that of the call itself, with `inputs` for the leaves."""
        nodes = {leaf: [node] for leaf, node in zip(self.leaves, inputs)}
        for call, signature, arguments in walk(self.order, nodes, self.inputs_of):
            nodes[call] = signature.instantiate(arguments)
        return nodes


def walk(
    order: Iterable[Call],
    results: dict[Call, list[T]],
    inputs_of: Callable[[Call], Iterable[Call]] = attrgetter("inputs"),
) -> Iterator[tuple[Call, Signature, list[T]]]:
    """Each call with its signature and arguments; who takes it adds its `results`, all of them."""
    for call in order:
        if call.signature is None:
            results[call] = results[call.inputs[0]][call.index :]
        else:
            yield call, call.signature, [results[source][0] for source in inputs_of(call)]


def cut_at(roots: Sequence[Call], residuals: Residuals) -> Subgraph:
    """The subgraph that computes the pending `roots`.

    For a call whose gradient may still be requested, `residuals` gives the parts and inputs that
    the gradient will read. The outputs are in recording order, not in the order in which handles
    got them, so all steps of a loop make the same program, including the first.
    """
    order = _pending_order(roots)
    kept: dict[Call, None] = dict.fromkeys(roots)
    saved: list[tuple[Call, Call]] = []
    read_later: set[Call] = set()
    on_tape = _on_live_tapes(order, roots)
    if on_tape:
        alive = [call for call in order if call in on_tape and _derives_gradient(call)]
        makers = {call.maker for call in on_tape.difference(order) if call.inputs}
        computed = filter(_derives_gradient, makers)
        read_later.update(value for call in computed for value in residuals(call))
        for call in alive:
            for residual in residuals(call):
                if not residual.is_pending:
                    read_later.add(residual)
                else:
                    if residual.is_projection and residual.maker is call:
                        saved.append((call, residual))
                    kept[residual] = None
        if alive:
            order = _pending_order(list(kept))
        again = {call for call in on_tape if _may_run_again(call)}
        if again:
            read_later |= _inputs_of_all(again, order)
    found = assemble(order, sorted(kept, key=_sequence_of))
    found.saved, found.read_later = saved, frozenset(read_later)
    return found


def assemble(
    order: list[Call],
    outputs: list[Call],
    spread: dict[Call, tuple[Call, ...]] | None = None,
    first: Sequence[Call] = (),
) -> Subgraph:
    """The subgraph of the calls of `order`; whatever else they read is a leaf.

    The operands of calls with many are spread, unless `spread` gives them. The leaves in `first`
    come first, even if no call reads them.
    """
    leaves = list(first)
    signatures: list[int] = []
    wiring = [-1 if leaf.scalar is None else -2 for leaf in leaves]
    numbers = {leaf: number + 1 for number, leaf in enumerate(leaves)}
    for call in order:
        inputs = call.inputs
        if len(inputs) > MANY_OPERANDS:
            if spread is None:
                spread = _spread(order)
            inputs = spread.get(call) or inputs
        signature = call.signature
        signatures.append(0 if signature is None else signature.id)
        if signature is None:
            wiring.append(-call.index)
        for source in inputs:
            known = numbers.get(source)
            if known is None:
                known = numbers[source] = len(numbers) + 1
                leaves.append(source)
                wiring.append(-1 if source.scalar is None else -2)
            wiring.append(known)
        numbers[call] = len(numbers) + 1
    wiring.append(0)
    wiring.extend([numbers[call] for call in outputs])
    found = Subgraph(order, leaves, outputs, tuple(signatures), tuple(wiring))
    found.spread = spread or {}
    return found


def apart(subgraph: Subgraph, starts: Collection[int] | None = None) -> list[Subgraph]:
    """Splits a subgraph into parts: one per call, each with its further results.

    With `starts`, parts of several calls, which begin with the calls of these numbers.
    """
    parts: list[list[Call]] = []
    place: dict[Call, int] = {}
    needed = set(subgraph.outputs)
    count = 0
    for call in subgraph.order:
        if call.is_projection:
            place[call] = place[call.maker]
        else:
            if starts is None or count in starts:
                parts.append([])
            count += 1
            place[call] = len(parts) - 1
            for source in subgraph.inputs_of(call):
                if place.get(source) != place[call]:
                    needed.add(source)
        parts[place[call]].append(call)
    return [
        assemble(
            calls,
            [call for call in calls if call in needed],
            {call: subgraph.spread[call] for call in calls if call in subgraph.spread},
        )
        for calls in parts
    ]


def _spread(order: Sequence[Call]) -> dict[Call, tuple[Call, ...]]:
    """The inputs of calls with many operands, with a separate leaf for each use of a computed one.

    The updates of optimizers are exempt: their results overwrite their operands, which is only
    possible if nothing else in the program reads the same memory.
    """
    wide = [call for call in order if len(call.inputs) > MANY_OPERANDS and _joins(call)]
    inside = set(order)
    found = {}
    for call in wide:
        computed = [x not in inside and x.scalar is None for x in call.inputs]
        if sum(computed) > MANY_OPERANDS:
            found[call] = tuple(
                leaf_like(source) if own else source for own, source in zip(computed, call.inputs)
            )
    return found


def _joins(call: Call) -> bool:
    """Whether a call takes any number of tensors and is not an update."""
    if call.signature is None:
        return False
    composite = call.signature.composite
    return composite.variadic and composite.differentiable


def _pending_order(roots: Sequence[Call]) -> list[Call]:
    seen = set(roots)
    stack = list(roots)
    while stack:
        call = stack.pop()
        # A further output of a call that has already run requires running the call again.
        is_further = call.signature is None
        for source in call.inputs:
            # This is `is_pending`, inlined because a cut evaluates it for every operand.
            if source not in seen and (
                is_further
                or (
                    source.buffer is None
                    and (source.signature is not None or source.inputs)
                    and source.type.device is not META
                )
            ):
                seen.add(source)
                stack.append(source)
    return sorted(seen, key=_sequence_of)


def frontier(first: Sequence[Call], wanted: Sequence[Call]) -> list[Call]:
    """The pending calls that a cut for `first` computes on the way and that `wanted` will need."""
    inside = set(_pending_order(first))
    needed = {call for call in wanted if call in inside}
    for call in _pending_order([call for call in wanted if call.is_pending]):
        if call in inside:
            continue
        sources = [source for source in call.inputs if source in inside]
        # A further result of a call is kept itself: otherwise the call would have to run again.
        needed.update([call] if call.is_projection and sources else sources)
    return [call for call in needed.difference(first) if call.is_pending]


def _on_live_tapes(order: Sequence[Call], roots: Sequence[Call]) -> set[Call]:
    """The calls whose gradient can still be requested: on a path to a live handle that tracks.

    They are calls of `order`, and computed calls that these read, whose gradient may read their
    result.
    """
    alive = {call for call in roots if call.requires_grad and not _ends_tape(call)}
    if not alive:
        return alive
    for call in reversed(order):
        if call not in alive:
            continue
        sources = call.inputs if call.tape is None else (*call.inputs, *call.tape.sources)
        for source in sources:
            if source is not None and source.requires_grad and not source.released:
                alive.add(source)
    return alive


def _inputs_of_all(calls: set[Call], order: Sequence[Call]) -> set[Call]:
    """Everything needed to run those calls of `order` that are in `calls`."""
    needed = set(calls)
    for call in reversed(order):
        if call in needed:
            needed.update(call.inputs)
    return needed


def _may_run_again(call: Call) -> bool:
    """Whether a call of a live tape has further results, or a gradient that is user code.

    Both, and what the user code saved, may be requested later.
    """
    if not call.inputs:
        return False
    signature = call.maker.signature
    has_further = signature is not None and signature.result_count > 1
    return has_further or (call.tape is not None and call.tape.function is not None)


def _derives_gradient(call: Call) -> bool:
    """Whether the gradient of a call is derived from its definition."""
    return call.signature is not None and not _has_own_gradient(call)


def _has_own_gradient(call: Call) -> bool:
    """Whether a call is a leaf or has a gradient in user code: its inputs only give the value."""
    tape = call.tape
    return tape is not None and (tape.accumulate is not None or tape.function is not None)


def _ends_tape(call: Call) -> bool:
    """Whether a backward pass stops here: the tape is released, or this is a leaf's new value."""
    return call.released or (call.tape is not None and call.tape.accumulate is not None)


def finish(subgraph: Subgraph) -> None:
    """Makes saved parts reachable after the run, and drops inputs that no tape needs."""
    for call, value in subgraph.saved:
        save_part(call, value)
    further = [call.maker for call in subgraph.outputs if call.is_projection]
    kept_further = Counter(further) if further else {}
    for call in subgraph.outputs:
        signature = call.signature
        if signature is not None and signature.result_count > 1:
            if 1 + kept_further.get(call, 0) < signature.result_count:
                continue  # It may have to run again for a further result.
        if not call.requires_grad or call.released or _has_own_gradient(call):
            call.inputs = ()
        else:
            _forget_released(call)


def forget_released(order: Sequence[Call]) -> None:
    """Drops what the computed calls of `order` still hold for gradients that have been computed.

    Calls with several results keep it, because they may have to run again for a further result.
    """
    for call in order:
        signature = call.signature
        if call.buffer is not None and (signature is None or signature.result_count == 1):
            _forget_released(call)


def _forget_released(call: Call) -> None:
    """The gradient of the call itself may be requested again; it then meets a released leaf."""
    inputs = call.inputs
    if any(source.released and source.buffer is None for source in inputs):
        call.inputs = tuple(
            [_released_leaf(x) if x.released and x.buffer is None else x for x in inputs]
        )


def _released_leaf(call: Call) -> Call:
    leaf = Call(None, (), call.type, True)
    leaf.released = True
    leaf.sequence = call.sequence
    return leaf


def residual_parts(call: Call, plan: Sequence[tuple[str, int]]) -> list[Call]:
    """The calls that a gradient plan reads: inputs of the call, or parts of it."""
    return [call.inputs[index] if kind == "input" else part(call, index) for kind, index in plan]
