"""Running cuts: finds or compiles the program of a subgraph, binds its buffers and runs it."""

from __future__ import annotations

import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from metaop import settings
from metaop.codegen.backend import Program, Watchable, observers, telling
from metaop.codegen.budget import budget, current_budget
from metaop.codegen.checks import unchecked
from metaop.codegen.memory.buffers import Buffer
from metaop.compiler import compile_subgraph
from metaop.differentiation.tape import live_residuals
from metaop.execution import specialisation
from metaop.execution.pieces import Pieces
from metaop.execution.refusals import explainer, located
from metaop.execution.specialisation import Family, Found, Trial, program_for
from metaop.garbage import collection_paused
from metaop.operators.basic import alias
from metaop.rerolling import rerolled
from metaop.shortcuts import go_without
from metaop.unified_graph.composite import Signature
from metaop.unified_graph.cut import (
    MANY_OPERANDS,
    Subgraph,
    apart,
    cut_at,
    finish,
    frontier,
    recorder,
)
from metaop.unified_graph.faults import Fault
from metaop.unified_graph.recording import Call, results, save_part
from metaop.unified_graph.tensor_type import CPU
from metaop.unified_graph.tracing import state

# Called with a computed call and the buffer of its value, or with None twice.
Watch = Callable[[Call | None, Any], None]


class Compiled(NamedTuple):
    """A program, and for each input whose memory a result can take over, how often calls read it.

    It keeps its signatures alive, because the program's key consists of their numbers. A program
    for any size is on trial, and so is one that runs in pieces.
    """

    program: Program
    donor_uses: tuple[tuple[int, int], ...]
    signatures: frozenset[Signature | None]
    trial: Trial | None
    family: Family | None


class Watcher:
    """Observes cuts; times are in nanoseconds of the monotonic clock."""

    def begun(self, subgraph: Subgraph) -> None:
        """Called before the program of a cut is found and run."""

    def compiled(self, subgraph: Subgraph, start: int, end: int) -> None:
        """Called after a program has been compiled for a subgraph."""

    def computed(self, subgraph: Subgraph, start: int, end: int) -> None:
        """Called when a cut has run; the time covers finding its program and handing out values."""


def _holders(items: Sequence[object], position: int) -> int:
    return sys.getrefcount(items[position])


# The most recently used programs, the latest at the end.
_programs: OrderedDict[Hashable, Compiled] = OrderedDict()
_KEPT_PROGRAMS = 512
# The programs of calls that can run alone, by what decides on the program.
_programs_alone: dict[tuple[int, ...], Program | None] = {}
_running: list[Subgraph] = []
# Each of these observes every cut; an empty list costs nothing.
watchers: list[Watcher] = []
# Polled after every run; each is dropped as soon as what it waits for has arrived.
awaited: deque[Callable[[], bool]] = deque()

# What `_holders` counts for an object that only the sequence holds.
_ONLY_THE_SEQUENCE = _holders([object()], 0)


def realize(*calls: Call) -> None:
    """Computes the values of `calls`, and everything pending that a handle of this thread sees."""
    realize_and_watch(calls)


def realize_alone(call: Call) -> None:
    """Computes the value of a call, but nothing that is pending beside it.

    The step around it stays in one piece: reading data inside a step does not cut the step.
    """
    if state.trace is not None:
        realize(call)
    elif call.is_pending:
        with recorder.lock:
            _run_to([call])


def realize_at_once(call: Call) -> None:
    """Computes all results of a call, but nothing that is beside it."""
    maker = call.maker
    made = results(maker)
    with recorder.lock:
        if len(made) > 1 or not _run_alone(maker):
            _run_to(made)
    for value in made[1:]:
        save_part(maker, value)


def _run_to(calls: Sequence[Call]) -> None:
    # What handles see on the way is kept, so that nothing is computed twice.
    roots = dict.fromkeys((*recorder.seen(calls), *calls))
    run(cut_at(list(roots), live_residuals), is_all=False)


def realize_and_watch(calls: Sequence[Call], watch: Watch | None = None) -> None:
    """Like `realize`, and calls `watch` between kernels, so that computed values can be sent early.

    `watch` gets each call whose value is final, or None after a kernel that completed no value.
    On a GPU the value is ready for later work on its streams. `watch` may never be called.
    """
    trace = state.trace
    if trace is not None:
        if any(call.is_pending for call in calls):
            trace.read()
        if state.trace is not None:
            return
    with recorder.lock:
        roots = dict.fromkeys(recorder.take_roots())
        for call in calls:
            if call not in roots and call.is_pending:
                roots[call] = None
        if len(roots) == 1 and watch is None and _run_alone(*roots):
            return
        roots.update(dict.fromkeys(recorder.seen_elsewhere(list(roots))))
        for group in _by_device(list(roots)):
            subgraph = cut_at(group, live_residuals)
            if not _is_elsewhere(subgraph):
                run(subgraph, watch)


def _run_alone(call: Call) -> bool:
    """Runs a call on the host that reads computed values and that no gradient needs.

    Returns False for any other call. Where Python reads values one by one, the way to a program
    takes longer than its run, so this way leaves out whatever larger subgraphs need.
    """
    signature, inputs = call.signature, call.inputs
    if signature is None or call.requires_grad or watchers or observers or awaited:
        return False
    key, arguments = _operands_alone(signature, inputs)
    if key is None or budget.nbytes is not None:
        return False
    if key not in _programs_alone:
        if len(_programs_alone) == _KEPT_PROGRAMS:
            _programs_alone.clear()
        _programs_alone[key] = _program_alone(call, signature)
    program = _programs_alone[key]
    if program is None:
        return False
    memory = None
    donor = program.donors.get(0)
    if donor is not None and len(arguments) == len(inputs):
        is_last = _holders(inputs, donor) == _ONLY_THE_SEQUENCE
        if is_last and _holders(arguments, donor) == _ONLY_THE_SEQUENCE + 1:
            is_pooled = getattr(arguments[donor], "is_pooled", False)  # numbers are not
            memory = {0: arguments[donor]} if is_pooled else None
    try:
        (value,) = program.run(arguments, memory)
    except Fault as fault:
        raise located(fault, cut_at([call], live_residuals)) from None
    # Another call may own this memory.
    if memory is None and id(value) in map(id, arguments):
        _programs_alone[key] = None
        return False
    call.buffer, call.inputs = value, ()
    return True


def _operands_alone(
    signature: Signature, inputs: tuple[Call, ...]
) -> tuple[tuple[int, ...] | None, list[Any]]:
    """What decides on the program of a call, and its arguments; None if one is not computed."""
    key = [signature.id]
    arguments: list[Any] = []
    for position, source in enumerate(inputs):
        value, first = source.buffer, inputs.index(source)
        if value is None:
            value, first = source.scalar, ~first
            if value is None:
                return None, arguments
        key.append(first)
        if first in (position, ~position):
            arguments.append(value)
    return tuple(key), arguments


def _program_alone(call: Call, signature: Signature) -> Program | None:
    """The program of a call with one result, unless it might make way for another one."""
    if call.type.device is not CPU:
        return None
    if signature.result_count > 1 or len(call.inputs) > MANY_OPERANDS:
        return None
    found = compiled_for(cut_at([call], live_residuals))
    return found.program if found.trial is None else None


def _is_elsewhere(subgraph: Subgraph) -> bool:
    """Whether this process owns none of the ranks and cannot know the values: they are empty here.

    The values come from ranks that have not sent anything to this process.
    """
    placement = subgraph.outputs[0].type.device.placement
    if placement is None or placement.world.owned:
        return False
    if all(leaf.buffer is not None or leaf.scalar is not None for leaf in subgraph.leaves):
        return False
    for call in subgraph.outputs:
        call.buffer = placement.nothing(call.type.shape, call.type.dtype.numpy)
    finish(subgraph)
    return True


recorder.overflow = realize


def realize_in_turns(groups: Sequence[Sequence[Call]]) -> Iterator[None]:
    """Computes everything pending, one group of calls after the other, and yields after each.

    The values of a group can thus be sent while the next group is computed. Values that later
    groups need are kept, so nothing is computed twice. All calls must be on one device.
    """
    with recorder.lock:
        visible = recorder.take_roots()
    rest = [call for call in visible if call.is_pending]
    for group in groups:
        wanted = [call for call in dict.fromkeys(group) if call.is_pending]
        if wanted:
            wanted += frontier(wanted, [*rest, *(call for later in groups for call in later)])
            with recorder.lock:
                run(cut_at(wanted, live_residuals))
        yield
    realize(*rest)


def _by_device(roots: list[Call]) -> list[list[Call]]:
    """Groups the roots by device: a program runs on one device."""
    if len(roots) == 1:
        return [roots]
    groups = []
    while roots:
        device = roots[0].type.device
        groups.append([call for call in roots if call.type.device is device])
        roots = [call for call in roots if call.type.device is not device]
    return groups


def run(
    subgraph: Subgraph, watch: Watch | None = None, whole: bool = False, is_all: bool = True
) -> tuple[int, ...]:
    """Runs a subgraph and assigns the values to its calls; `watch` as in `realize_and_watch`.

    With `whole`, it never runs in pieces, because the caller will ask for its program. Without
    `is_all`, values that only it seems to need are not overwritten: other calls may need them.
    Returns the indices of the outputs that were copied because another value owns their memory.
    """
    unchecked.raise_first()
    for watcher in tuple(watchers):
        watcher.begun(subgraph)
    begin = time.monotonic_ns() if watchers else 0
    compiled = compiled_for(subgraph, whole)
    arguments = [leaf.buffer if leaf.scalar is None else leaf.scalar for leaf in subgraph.leaves]
    dying = _dying(compiled, subgraph, arguments) if is_all else set()
    memory = None
    if dying:
        donors = compiled.program.donors.items()
        memory = {number: arguments[slot] for number, slot in donors if slot in dying}
    start = time.perf_counter()
    try:
        with _AsRunning(subgraph):
            if isinstance(compiled.program, Pieces) and observers:
                pieces = map(_AsRunning, apart(subgraph))
                buffers = compiled.program.run(arguments, memory, pieces)
            elif watch is None or not isinstance(compiled.program, Watchable):
                buffers = compiled.program.run(arguments, memory)
            else:
                calls = [*subgraph.outputs, None]
                told = telling(compiled.program, lambda k, value: watch(calls[k], value))
                buffers = compiled.program.run(arguments, memory, told)
    except Fault as fault:
        raise located(fault, subgraph) from None
    unchecked.explain(lambda: explainer(subgraph))
    if compiled.trial is not None:
        compiled.trial.seconds += time.perf_counter() - start
    copied = _unshare(subgraph, arguments, dying, buffers)
    for slot in dying:  # overwritten: whoever needs the old value computes it again
        subgraph.leaves[slot].buffer = None
    for call, buffer in zip(subgraph.outputs, buffers):
        call.buffer = buffer
    for watcher in tuple(watchers):
        watcher.computed(subgraph, begin, time.monotonic_ns())
    finish(subgraph)
    for _ in range(len(awaited)):
        is_there = awaited.popleft()
        if not is_there():
            awaited.append(is_there)
    return copied


def _unshare(
    subgraph: Subgraph, arguments: Sequence[object], dying: Collection[int], buffers: list[Any]
) -> tuple[int, ...]:
    """Copies the outputs in `buffers` whose memory another storage owns; returns their indices."""
    made = set(map(id, buffers))
    if dying:  # nothing else holds this memory
        made.difference_update([id(arguments[slot]) for slot in dying])
    if len(made) == len(buffers) - len(dying) and made.isdisjoint(map(id, arguments)):
        return ()
    # Which call owns the memory, by the id of the buffer.
    holders = {
        id(argument): leaf
        for slot, (argument, leaf) in enumerate(zip(arguments, subgraph.leaves))
        if slot not in dying
    }
    copies: dict[tuple[int, int], Buffer] = {}
    copied = []
    for number, (call, buffer) in enumerate(zip(subgraph.outputs, buffers)):
        holder = holders.setdefault(id(buffer), call)
        if holder is call or not isinstance(buffer, Buffer):
            continue
        storage = _storage_of(call)
        if storage != _storage_of(holder):
            place = (id(buffer), storage)
            if place not in copies:
                copies[place] = buffer.copy()
            buffers[number] = copies[place]
            copied.append(number)
    return tuple(copied)


def _dying(compiled: Compiled, subgraph: Subgraph, arguments: Sequence[object]) -> set[int]:
    """The donors that only this subgraph holds: old parameters and optimizer states."""
    leaves = subgraph.leaves
    return {
        slot
        for slot, uses in compiled.donor_uses
        if leaves[slot] not in subgraph.read_later
        and _holders(leaves, slot) == _ONLY_THE_SEQUENCE + uses
        and _holders(arguments, slot) == _ONLY_THE_SEQUENCE + 1
        and getattr(arguments[slot], "is_pooled", False)
    }


def _storage_of(call: Call) -> int:
    """Identifies the memory that a call shows; views and detached values share it.

    No other values may share memory, because users can write host memory through NumPy. That
    includes equal values, which a program computes only once.
    """
    while call.inputs and _shows_input(call):
        call = call.inputs[0]
    return id(call) if call.buffer is None else id(call.buffer)


def _shows_input(call: Call) -> bool:
    """Whether a call is a view of its input, or its input detached."""
    if call.signature is None:
        return False
    same_epoch = call.epoch is not None and call.epoch is call.inputs[0].epoch
    return same_epoch or call.signature.composite is alias


def running() -> Subgraph | None:
    """The subgraph whose program is running, for observers of programs."""
    return _running[-1] if _running else None


class _AsRunning:
    """A scope in which the program of a subgraph runs; a generator would take longer."""

    __slots__ = ("_subgraph",)

    def __init__(self, subgraph: Subgraph) -> None:
        self._subgraph = subgraph

    def __enter__(self) -> None:
        _running.append(self._subgraph)

    def __exit__(self, *_: object) -> None:
        _running.pop()


def compiled_for(subgraph: Subgraph, whole: bool = False) -> Compiled:
    """The compiled program of a subgraph, from the cache if its structure was seen before.

    With `whole`, only a program for the whole subgraph, never one that runs in pieces.
    """
    # Environment variables that affect programs are read when a program is made.
    key = subgraph.key if budget.nbytes is None else (*subgraph.key, budget.key)
    found = _programs.get(key)
    is_over = found is not None and found.trial is not None and found.trial.is_over
    if found is None or is_over or (whole and isinstance(found.program, Pieces)):
        begin = time.monotonic_ns()
        with collection_paused():
            program, trial, is_new, family = _made(subgraph, whole, is_over)
            if program is None:
                program = Pieces(subgraph, program_of, family.steps if family else None)
        uses = Counter(chain.from_iterable(map(subgraph.inputs_of, subgraph.order)))
        donors = sorted(set(program.donors.values()))
        donor_uses = tuple((slot, uses[subgraph.leaves[slot]]) for slot in donors)
        signatures = frozenset(call.signature for call in subgraph.order)
        found = _programs[key] = Compiled(program, donor_uses, signatures, trial, family)
        if len(_programs) > _KEPT_PROGRAMS:
            _programs.popitem(last=False)
        for watcher in tuple(watchers) if is_new else ():
            watcher.compiled(subgraph, begin, time.monotonic_ns())
    else:
        _programs.move_to_end(key)
        if found.family is not None:
            found.family.is_repeated = True
    return found


def _made(subgraph: Subgraph, whole: bool, is_over: bool) -> Found:
    """A program for a subgraph, with loops where steps repeat; one for its sizes if `is_over`."""
    loops = None
    try:
        if settings.get("METAOP_REROLL") and not current_budget():
            loops = rerolled(subgraph, whole)
        if loops is not None:
            found = _made_alone(loops.subgraph, whole, is_over)
            if found.program is None:
                return found
            return found._replace(program=loops.program(found.program, len(subgraph.leaves)))
    except Exception as fault:
        go_without("a loop of repeated steps", fault)
    return _made_alone(subgraph, whole, is_over)


def _made_alone(subgraph: Subgraph, whole: bool, is_over: bool) -> Found:
    return Found(compile_subgraph(subgraph)) if is_over else program_for(subgraph, whole)


def program_of(subgraph: Subgraph) -> Program:
    """The compiled program of a whole subgraph."""
    return compiled_for(subgraph, whole=True).program


def clear_programs() -> None:
    """Forgets all compiled programs, as if in a new process."""
    _programs.clear()
    _programs_alone.clear()
    specialisation.clear()


def pending_subgraph(calls: Sequence[Call]) -> Subgraph:
    """The subgraph that `realize(*calls)` would cut, for inspection."""
    return cut_at([call for call in calls if call.is_pending], live_residuals)


def with_loops(subgraph: Subgraph) -> Subgraph:
    """The subgraph for which a program is made: with loops where steps repeat."""
    loops = rerolled(subgraph, whole=True) if settings.get("METAOP_REROLL") else None
    return subgraph if loops is None else loops.subgraph
