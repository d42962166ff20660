"""Cutting: takes the pending part of the recorded graph as one static subgraph.

A cut runs everything that is pending and that a live handle can see. It also keeps the interior
values that a live backward pass will need, so nothing is computed twice.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol
from weakref import ref

from metaop import settings
from metaop.forking import register_at_fork
from metaop.unified_graph.node import Node, input_node
from metaop.unified_graph.recording import Call, leaf_like, part, save_part
from metaop.unified_graph.tensor_type import META


class Handle(Protocol):
    """What a user holds: something with a call."""

    _call: Call


class Recorder:
    """The pending side of the unified graph: which handles may want a value.

    `lock` serialises cuts; recording itself needs no lock. A program that never reads a value
    must not grow the graph for ever: when many handles were seen since the last cut, the dead ones
    are forgotten, and `overflow` is called should more than METAOP_PENDING_LIMIT calls wait. While
    `paused`, nothing is computed but what is asked for by name.
    """

    def __init__(self) -> None:
        self.handles: list[ref[Any]] = []
        self.lock = threading.RLock()
        self.overflow: Callable[[], None] = lambda: None
        self.paused = False
        self._room = 0

    def watch(self, handle: Handle) -> None:
        """Makes the value of a handle an output of the next cut while the handle lives."""
        self.handles.append(ref(handle))
        if len(self.handles) > self._room:
            self._make_room()

    def _make_room(self) -> None:
        limit = settings.get("METAOP_PENDING_LIMIT")
        if len(self.handles) > limit:
            calls = self.take_roots(keep=True)
            if len(_pending_order(calls)) > limit:
                self.overflow()
        self._room = len(self.handles) + limit

    def take_roots(self, keep: bool = False) -> list[Call]:
        """The pending calls of all live handles; the list starts anew, with `keep` from these."""
        if self.paused:
            return []
        handles, self.handles = self.handles, []
        calls: dict[Call, None] = {}
        for reference in handles:
            handle = reference()
            if handle is not None:
                call = handle._call
                if call.buffer is None and call.is_pending:
                    calls[call] = None
                    if keep:
                        self.handles.append(reference)
        return list(calls)


recorder = Recorder()
# A process forks between cuts, whatever its other threads do: the child finds no half-done work.
register_at_fork(
    before=recorder.lock.acquire,
    after_in_parent=recorder.lock.release,
    after_in_child=recorder.lock.release,
)

# Of calls with more computed operands than this nobody asks which of them are the same tensor.
_MANY_OPERANDS = 8

Residuals = Callable[[Call], Iterable[Call]]

# What programs are found by, and what one of them takes from its call to the next.
Key = tuple[tuple[int, ...], tuple[int, ...]]

_sequence_of = attrgetter("sequence")


@dataclass(slots=True)
class Subgraph:
    """A static piece of the recorded graph.

    `order` lists the calls to compute, inputs first; `leaves` the values they start from, in the
    order of first use; `outputs` the calls whose values are kept. `signatures` has the number of
    the signature of every call, 0 for further outputs, and `wiring` says what the calls read and
    what is kept. `saved` are parts of calls that gradients
    will read; `read_later` are leaves that gradients will read, or calls of a live tape that run
    again. Calls in `spread` have a leaf of their own for each computed operand, so that which of
    many operands are the same tensor (a batch drawn from a replay memory) makes no difference to
    the structure.
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
        """What identifies the structure (not the data): equal keys run the same program."""
        return self.signatures, self.wiring

    def inputs_of(self, call: Call) -> tuple[Call, ...]:
        """What a call of the subgraph reads: leaves and other calls of it."""
        return self.spread.get(call) or call.inputs

    def expand(self) -> tuple[list[Node], list[Node]]:
        """The subgraph in meta-operators: its input nodes and its output nodes."""
        nodes: dict[Call, list[Node]] = {}
        inputs = []
        for slot, call in enumerate(self.leaves):
            node = input_node(slot, call.type.shape, call.type.dtype)
            inputs.append(node)
            nodes[call] = [node]
        for call in self.order:
            if call.signature is None:
                nodes[call] = nodes[call.inputs[0]][call.index :]
            else:
                arguments = [nodes[source][0] for source in self.inputs_of(call)]
                nodes[call] = call.signature.instantiate(arguments)
        return inputs, [nodes[call][0] for call in self.outputs]


def cut_at(roots: Sequence[Call], residuals: Residuals) -> Subgraph:
    """The subgraph that computes the pending `roots`.

    `residuals` gives, for a call whose gradient may still be asked for, the parts and inputs
    that the gradient will read. The outputs stand in the order of their recording, not in that
    in which handles came to them: the steps of a loop make the same program, the first as well.
    """
    order = _pending_order(roots)
    kept: dict[Call, None] = dict.fromkeys(roots)
    saved: list[tuple[Call, Call]] = []
    read_later: set[Call] = set()
    on_tape = _on_live_tapes(order, roots)
    if on_tape:
        alive = [call for call in order if call in on_tape and _derives_gradient(call)]
        makers = {_maker(call) for call in on_tape.difference(order) if call.inputs}
        computed = filter(_derives_gradient, makers)
        read_later.update(value for call in computed for value in residuals(call))
        for call in alive:
            for residual in residuals(call):
                if not residual.is_pending:
                    read_later.add(residual)
                else:
                    if residual.signature is None and residual.inputs[0] is call:
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
) -> Subgraph:
    """The subgraph of the calls of `order`; whatever else they read is a leaf.

    Operands of calls with many are spread unless `spread` says which are.
    """
    leaves: list[Call] = []
    signatures: list[int] = []
    wiring: list[int] = []
    numbers: dict[Call, int] = {}
    for call in order:
        inputs = call.inputs
        if len(inputs) > _MANY_OPERANDS:
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


def apart(subgraph: Subgraph) -> list[Subgraph]:
    """The calls of a subgraph, each as a subgraph of its own with its further results."""
    parts: dict[Call, list[Call]] = {}
    needed = set(subgraph.outputs)
    for call in subgraph.order:
        if call.signature is None:
            parts[call.inputs[0]].append(call)
        else:
            parts[call] = [call]
            needed.update(subgraph.inputs_of(call))
    return [
        assemble(
            results,
            [call for call in results if call in needed],
            {maker: subgraph.spread[maker]} if maker in subgraph.spread else {},
        )
        for maker, results in parts.items()
    ]


def _spread(order: Sequence[Call]) -> dict[Call, tuple[Call, ...]]:
    """The inputs of calls with many, where every computed one is a leaf for this use alone.

    Not those of an optimizer's update: its results are written over them, which takes knowing that
    nothing else in the program reads the same memory.
    """
    wide = [call for call in order if len(call.inputs) > _MANY_OPERANDS and _joins(call)]
    inside = set(order)
    found = {}
    for call in wide:
        computed = [x not in inside and x.scalar is None for x in call.inputs]
        if sum(computed) > _MANY_OPERANDS:
            found[call] = tuple(
                leaf_like(source) if own else source for own, source in zip(computed, call.inputs)
            )
    return found


def _joins(call: Call) -> bool:
    """Whether a call is one of those that take any number of tensors, and not an update."""
    return call.signature is not None and call.signature.composite.differentiable


def _pending_order(roots: Sequence[Call]) -> list[Call]:
    seen = set(roots)
    stack = list(roots)
    while stack:
        call = stack.pop()
        # A further output of a call that has run already takes running it again.
        is_further = call.signature is None
        for source in call.inputs:
            # This is `is_pending`, of which a cut asks for every operand.
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
    """What a cut that computes `first` passes on its way and `wanted` will need afterwards."""
    inside = set(_pending_order(first))
    needed = {call for call in wanted if call in inside}
    for call in _pending_order([call for call in wanted if call.is_pending]):
        if call in inside:
            continue
        sources = [source for source in call.inputs if source in inside]
        # A further result of a call is kept itself: the call would have to run again for it.
        needed.update([call] if call.signature is None and sources else sources)
    return [call for call in needed.difference(first) if call.is_pending]


def _on_live_tapes(order: Sequence[Call], roots: Sequence[Call]) -> set[Call]:
    """The calls whose gradient can still be asked for: on a path to a live handle that tracks.

    Those of `order`, and the computed ones that these read, whose gradient may read their result.
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
    """Everything that running the calls of `order` among `calls` takes."""
    needed = set(calls)
    for call in reversed(order):
        if call in needed:
            needed.update(call.inputs)
    return needed


def _may_run_again(call: Call) -> bool:
    """Whether a call of a live tape has further results, or a gradient that is user code.

    These may be asked for, and what that has saved.
    """
    if not call.inputs:
        return False
    signature = _maker(call).signature
    has_further = signature is not None and signature.result_count > 1
    return has_further or (call.tape is not None and call.tape.function is not None)


def _maker(call: Call) -> Call:
    """The call that computed a value: a further result has none of its own."""
    return call if call.signature is not None else call.inputs[0]


def _derives_gradient(call: Call) -> bool:
    """Whether the gradient of a call follows from its definition."""
    return call.signature is not None and not _has_own_gradient(call)


def _has_own_gradient(call: Call) -> bool:
    """Leaves, and values whose gradient is user code: their inputs only compute the value."""
    tape = call.tape
    return tape is not None and (tape.accumulate is not None or tape.function is not None)


def _ends_tape(call: Call) -> bool:
    """Whether a backward pass stops here: its tape is released, or it is a leaf's new value."""
    return call.released or (call.tape is not None and call.tape.accumulate is not None)


def finish(subgraph: Subgraph) -> None:
    """After the run: saved parts become reachable, inputs that no tape needs are forgotten."""
    for call, value in subgraph.saved:
        save_part(call, value)
    further = [call.inputs[0] for call in subgraph.outputs if call.signature is None]
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
    """Drops what the computed calls of `order` still hold for gradients that have been taken.

    Not those of calls with several results, which may have to run again for a further one.
    """
    for call in order:
        signature = call.signature
        if call.buffer is not None and (signature is None or signature.result_count == 1):
            _forget_released(call)


def _forget_released(call: Call) -> None:
    """The gradient of the call itself may be asked for again; it then meets a released leaf."""
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
