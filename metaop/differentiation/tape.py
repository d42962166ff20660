"""The tape: gradients of recorded calls, recorded as composites like any other call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from metaop.differentiation.entries import (
    Cotangent,
    Cotangents,
    Passed,
    TapeEntry,
    Variable,
)
from metaop.differentiation.plan import gradient_plan
from metaop.differentiation.saved_values import overwritten, overwritten_error
from metaop.differentiation.unsummed import Unsummed, summed
from metaop.errors import GradientError, UnsupportedError, describe_location
from metaop.unified_graph.composite import composite
from metaop.unified_graph.cut import forget_released, recorder, residual_parts
from metaop.unified_graph.node import Node
from metaop.unified_graph.recording import Call, modes, part, record


def live_residuals(call: Call) -> list[Call]:
    """What the gradient of a call will read, should it be asked for."""
    signature = call.signature
    assert signature is not None
    wanted = tuple(k for k, source in enumerate(call.inputs) if source.requires_grad)
    outputs = tuple(k for k in range(signature.result_count) if signature.types[k].differentiable)
    try:
        plan = gradient_plan(signature, outputs, wanted, _unsummed(call))
    except UnsupportedError:  # whoever asks for the gradient is told
        return []
    return [] if plan is None else residual_parts(call, plan.residuals)


# The cotangents that have arrived at a variable, by output index.
Pending = dict[Variable, Cotangents]


def _variable(call: Call) -> Variable:
    tape = call.tape
    return call if tape is None or tape.accumulate is None else tape


def leave_unsummed(call: Call, source: int) -> None:
    """Has the gradient of input `source` of a fresh call stay rows, where it is a sum of rows.

    Values of several ranks have dense gradients.
    """
    if call.requires_grad and call.type.device.placement is None:
        call.tape = TapeEntry(unsummed=(source,))


def _unsummed(call: Call) -> tuple[int, ...]:
    return () if call.tape is None else call.tape.unsummed


# Told of every call whose gradient was recorded, and of the gradients that it passes on.
watchers: list[Callable[[Call, Sequence[Call | None]], None]] = []


@dataclass(eq=False)
class Pass:
    """A running backward pass: the calls that it visits, and what hooks want done at its end."""

    order: Sequence[Call]
    at_end: list[Callable[[], None]] = field(default_factory=list)


class Running(threading.local):
    """The backward passes that run in a thread.

    One that a hook or a gradient in user code has started, as checkpoints do, comes after the pass
    that it is within. What concerns all gradients waits for the end of the first.
    """

    def __init__(self) -> None:
        self.passes: list[Pass] = []


running = Running()


@contextmanager
def passing(order: Sequence[Call]) -> Iterator[None]:
    """Counts a backward pass as running, and then does what waits for its end, unless it failed."""
    current = Pass(order)
    running.passes.append(current)
    try:
        yield
    finally:
        running.passes.remove(current)
    for done in current.at_end:
        done()


def pass_through(cotangents: Sequence[Cotangent | None]) -> Sequence[Cotangent | None]:
    """The gradient of a value that stands for another one: it goes on as it is."""
    return cotangents


def as_before(cotangents: Sequence[Cotangent | None]) -> Sequence[Cotangent | None]:
    """The gradient of a value that was replaced outside the tape: as if it had not been."""
    return cotangents


def discard(gradient: Cotangent) -> None:
    """Accumulates nothing: for leaves whose gradient only their maker asks for, by name."""


def origin(call: Call) -> Call:
    """The value whose gradient that of `call` is: the one before all writes outside the tape."""
    while call.tape is not None and call.tape.function is as_before:
        (call,) = call.tape.sources
    return call


@composite
def add_cotangents(left: Node, right: Node) -> Node:
    """The sum of two gradients of one value."""
    return left + right


def backward(
    roots: Sequence[tuple[Call, Call]],
    *,
    retain_graph: bool,
    create_graph: bool,
    targets: Iterable[Call] = (),
    accumulate: bool = True,
    is_part: bool = False,
) -> dict[Call, Cotangent]:
    """Records the gradients of everything that `roots` (pairs of call and cotangent) depend on.

    Leaves accumulate their gradient when `accumulate` is set. Returns the gradients of `targets`:
    where this pass `is_part` of another one, their hooks are left to that one.
    Unless `retain_graph`, the tape is released: a second backward through it is an error.
    """
    asked = {call: _variable(origin(call)) for call in targets}
    wanted = set(asked.values())
    needed = _needed(roots, wanted) if wanted else None
    pending: Pending = {}
    for call, cotangent in roots:
        _accumulate(pending, call, cotangent)
    found: dict[Variable, Cotangent] = {}
    spent: list[tuple[Call, bool]] = []
    previous, modes.gradients = modes.gradients, create_graph
    order = _reverse_order([call for call, _ in roots], needed)
    with passing(order):
        try:
            # Hooks and gradients in user code may read values, in every step of a loop.
            with recorder.holding(lambda: _values_held(pending, found)):
                for call in order:
                    was_computed = call.buffer is not None
                    if _visit(call, pending, found, wanted, accumulate, needed, is_part):
                        spent.append((call, was_computed))
        finally:
            modes.gradients = previous
        if not retain_graph:
            for call, was_computed in spent:
                _release(call, was_computed)
            forget_released(order)
    return {call: found[variable] for call, variable in asked.items() if variable in found}


def _values_held(pending: Pending, found: dict[Variable, Cotangent]) -> Iterator[Call]:
    """The cotangents that a backward pass has recorded and not yet passed on."""
    waiting = (cotangent for slots in pending.values() for cotangent in slots.values())
    for cotangent in (*waiting, *found.values()):
        yield cotangent.values if isinstance(cotangent, Unsummed) else cotangent


def _release(call: Call, was_computed: bool) -> None:
    """Frees what a call saved for its gradient; a second backward through it is an error.

    A call that was computed only since its gradient was recorded, by a hook that read a value, may
    still have to run for further results that the gradient reads.
    """
    call.released = True
    if call.tape is not None and call.tape.function is not None:
        call.tape.function, call.tape.sources = _released_function, ()
        if call.tape.freed is not None:
            call.tape.freed()
    elif was_computed:
        call.inputs = ()
        call.parts = None


def _released_function(cotangents: Sequence[Cotangent | None]) -> Sequence[Cotangent | None]:
    raise AssertionError("a released call is never asked for its gradient")


def _visit(
    call: Call,
    pending: Pending,
    found: dict[Variable, Cotangent],
    wanted: set[Variable],
    accumulate: bool,
    needed: set[Variable] | None,
    is_part: bool,
) -> bool:
    """Passes the cotangents of a call on; True when that used values that the call had saved."""
    variable = _variable(call)
    cotangents = pending.pop(variable, None)
    if cotangents is None:
        return False
    tape = call.tape
    own = cotangents.get(0)
    if own is not None and tape is not None and not (is_part and variable in wanted):
        if tape.hooks:
            own = tape.hooks(own)
        for keep in tape.retains:
            keep(own)
        cotangents[0] = own
    if variable in wanted and own is not None:
        found[variable] = own
    if tape is not None:
        for change in tuple(tape.before):
            cotangents = change(cotangents)
        own = cotangents.get(0)
    if tape is not None and tape.accumulate is not None:
        if accumulate and own is not None:
            tape.accumulate(own)
            tape.has_accumulated(own)
        return False
    if tape is not None and tape.function is not None:
        return _run_function(call, tape, cotangents, pending)
    if call.signature is None:
        _check_not_released(call)
        if call.inputs:
            assert own is not None
            _accumulate(pending, call.inputs[0], own, call.index)
        return False
    return _record_gradient(call, cotangents, pending, needed)


def _run_function(call: Call, tape: TapeEntry, cotangents: Cotangents, pending: Pending) -> bool:
    _check_not_released(call)
    function, sources = tape.function, tape.sources
    assert function is not None
    is_own = function not in (pass_through, as_before)
    given = [cotangents.get(k) for k in range(tape.outputs)]
    gradients = function([x if x is None else summed(x) for x in given] if is_own else given)
    for watch in watchers:
        watch(call, [x.values if isinstance(x, Unsummed) else x for x in gradients])
    _pass_on(tape, sources, gradients, cotangents, pending, tape.index)
    return is_own


def _pass_on(
    tape: TapeEntry | None,
    sources: Sequence[Call | None],
    gradients: Passed,
    cotangents: Cotangents,
    pending: Pending,
    index: int = 0,
) -> None:
    """Gives the gradients that a call computed from `cotangents` to its sources."""
    if tape is not None:
        for change in tuple(tape.passed):
            gradients = change(gradients, cotangents)
    for source, gradient in zip(sources, gradients):
        if source is not None and gradient is not None and source.requires_grad:
            _accumulate(pending, source, gradient, index)


def _record_gradient(
    call: Call, cotangents: Cotangents, pending: Pending, needed: set[Variable] | None
) -> bool:
    _check_not_released(call)
    wanted = tuple(
        k
        for k, source in enumerate(call.inputs)
        if source.requires_grad and (needed is None or _variable(source) in needed)
    )
    outputs = tuple(sorted(cotangents))
    plan = gradient_plan(call.signature, outputs, wanted, _unsummed(call))  # type: ignore[arg-type]
    if plan is None:
        return False
    inputs = residual_parts(call, plan.residuals)
    found = overwritten(call, wanted, inputs)
    if found is not None:
        name = call.signature.composite.name  # type: ignore[union-attr]
        where = describe_location(call.location)
        raise overwritten_error(f"{name}{' at ' + where if where else ''}", found)
    inputs.extend(summed(cotangents[k]) for k in outputs)
    gradient = record(plan.composite, inputs)
    if gradient.location is None:
        gradient.location = call.location
    parts = [part(gradient, k) for k in range(len(plan.targets) + len(plan.unsummed))]
    for watch in watchers:
        watch(call, parts)
    following = iter(parts)
    gradients: list[Cotangent | None] = [None] * len(call.inputs)
    for target in plan.targets:
        first = next(following)
        is_apart = target in plan.unsummed
        kind = call.inputs[target].type
        gradients[target] = Unsummed(first, next(following), kind) if is_apart else first
    _pass_on(call.tape, call.inputs, gradients, cotangents, pending)
    return bool(plan.residuals)


def _accumulate(pending: Pending, call: Call, cotangent: Cotangent, index: int = 0) -> None:
    slots = pending.setdefault(_variable(call), {})
    if index in slots:
        cotangent = _sum(slots[index], cotangent)
    slots[index] = cotangent


def _sum(left: Cotangent, right: Cotangent) -> Cotangent:
    """Rows behind rows; with a dense one, dense."""
    if isinstance(left, Unsummed) and isinstance(right, Unsummed) and left.fits(right):
        return left.joined(right)
    return record(add_cotangents, (summed(left), summed(right)))


def sources_of(call: Call) -> tuple[Call | None, ...]:
    """The calls to which the gradient of a call flows; none for leaves."""
    tape = call.tape
    if tape is not None:
        if tape.accumulate is not None:
            return ()
        if tape.function is not None:
            return tape.sources
    return call.inputs


def _reverse_order(roots: Sequence[Call], needed: set[Variable] | None) -> list[Call]:
    """The calls from the roots back to the leaves, each after all that read it.

    A leaf comes at once after the first call that read it. When its value was made does not
    matter, for optimizers make new ones: the steps of a loop are recorded alike.
    """
    calls: dict[Variable, Call] = {_variable(call): call for call in roots}
    due: dict[Variable, float] = {variable: call.sequence for variable, call in calls.items()}
    stack = list(calls.values())
    while stack:
        call = stack.pop()
        for source in sources_of(call):
            if source is None or not source.requires_grad:
                continue
            variable = _variable(source)
            if needed is not None and variable not in needed:
                continue
            if variable is not source:
                earliest = call.sequence - 0.5
                due[variable] = min(due.get(variable, earliest), earliest)
                calls.setdefault(variable, source)
            elif source not in due:
                due[source] = source.sequence
                calls[source] = source
                stack.append(source)
    return [calls[variable] for variable in sorted(due, key=due.__getitem__, reverse=True)]


def tracked(calls: Sequence[Call]) -> list[bool]:
    """For each call whether gradients flow from it to a leaf that does not discard them.

    What a released call led to is not known any more: a backward pass through it is an error, so it
    counts as such a leaf.
    """
    reached = _reverse_order([call for call in calls if call.requires_grad], None)
    leaves = {_variable(call) for call in reached if call.released or _keeps_gradient(call)}
    needed = _leading_to(leaves, reached)
    return [_variable(call) in needed for call in calls]


def has_released(calls: Sequence[Call]) -> bool:
    """Whether a backward pass has freed something that the gradients of `calls` need."""
    reached = _reverse_order([call for call in calls if call.requires_grad], None)
    return any(call.released for call in reached)


def _keeps_gradient(call: Call) -> bool:
    return call.tape is not None and call.tape.accumulate not in (None, discard)


def _needed(roots: Sequence[tuple[Call, Call]], targets: set[Variable]) -> set[Variable]:
    """The variables on a path from a root to a target."""
    return _leading_to(targets, _reverse_order([call for call, _ in roots], None))


def _leading_to(targets: set[Variable], reached: Sequence[Call]) -> set[Variable]:
    """The targets, and the variables of `reached` (in reverse order) with a path to one."""
    needed = set(targets)
    for call in reversed(reached):
        if any(_variable(source) in needed for source in sources_of(call) if source is not None):
            needed.add(_variable(call))
    return needed


def _check_not_released(call: Call) -> None:
    if call.released:
        name = call.signature.composite.name if call.signature is not None else "this call"
        raise GradientError(
            f"backward through {name} a second time: its saved values have been freed",
            fix="pass retain_graph=True to the first backward, or run the forward pass again",
        )
