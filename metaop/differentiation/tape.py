"""The tape: gradients of recorded calls, recorded as composites like any other call.

The gradient of a composite is a composite again. It reads the cotangents and the *residuals* of
the forward call: its inputs, its results, and interior nodes that are dear to compute again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from metaop.differentiation.loops import is_cheap
from metaop.differentiation.saved_values import Residual, overwritten, overwritten_error
from metaop.differentiation.transposition import pullback
from metaop.errors import GradientError, InternalError, UnsupportedError, describe_location
from metaop.settings import get
from metaop.unified_graph.composite import Composite, Derivation, Signature, composite
from metaop.unified_graph.cut import forget_released, residual_parts
from metaop.unified_graph.node import (
    Constant,
    Index,
    Input,
    Node,
    constant,
    input_node,
    topological,
)
from metaop.unified_graph.recording import Call, modes, part, record
from metaop.unified_graph.rewrite import rebuild
from metaop.unified_graph.symbolic import NotGeneralError

# The outputs that have cotangents, and the inputs whose gradients are wanted.
Asked = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class GradientPlan:
    """How to record the gradient of a signature.

    `composite` takes the residuals followed by the cotangents; `targets` lists the inputs whose
    gradients it returns, in order (inputs that nothing flows to are missing).
    """

    composite: Composite
    residuals: tuple[Residual, ...]
    targets: tuple[int, ...]


def gradient_plan(
    signature: Signature, outputs: tuple[int, ...], wanted: tuple[int, ...]
) -> GradientPlan | None:
    """The plan for the gradients of inputs `wanted` from cotangents of `outputs`; memoised."""
    key = (outputs, wanted)
    if key not in signature.gradients:
        if not _follow_rule(signature, key):
            signature.gradients[key] = _derive(signature, outputs, wanted)
        if get("METAOP_VERIFY"):
            assert signature.outputs
    plan: GradientPlan | None = signature.gradients[key]
    return plan


def _follow_rule(signature: Signature, key: Asked) -> bool:
    """Whether the rule of a signature tells its gradients `key`, which are entered then.

    So are those that other signatures asked the rule for earlier: further outputs have the same
    numbers for all of them.
    """
    rule = signature.rule
    if rule is None:
        return False
    try:
        gradient_plan(rule.template, *key)
        types = rule.types_for(signature.numbers)
    except NotGeneralError:
        types = None
    if types is None:
        signature.rule = None
        return False
    for asked, plan in rule.template.gradients.items():
        if asked not in signature.gradients:
            signature.gradients[asked] = _as_ruled(signature, asked, plan)
            if plan is not None:
                places = [index for kind, index in plan.residuals if kind == "output"]
                count = max([len(signature.types), *(index + 1 for index in places)])
                signature.types += types[len(signature.types) : count]
        if asked == key:
            break
    return True


def _as_ruled(signature: Signature, asked: Asked, plan: GradientPlan | None) -> GradientPlan | None:
    """The gradients of a signature, alike to those in its rule and derived when they are needed."""

    @cache
    def derived() -> GradientPlan | None:
        found = _derive(signature, *asked)
        if _places_of(found) != _places_of(plan):
            raise InternalError(f"the gradient of {signature} is not what its rule says")
        return found

    signature.interior.append(derived)
    if plan is None:
        return None

    def expansion(*nodes: Node) -> tuple[Node, ...]:
        return derived().composite.expansion(*nodes)  # type: ignore[union-attr, return-value]

    return _plan(signature, asked, plan.residuals, plan.targets, expansion)


def _places_of(plan: GradientPlan | None) -> object:
    return None if plan is None else (plan.residuals, plan.targets)


def _plan(
    signature: Signature,
    asked: Asked,
    residuals: tuple[Residual, ...],
    targets: tuple[int, ...],
    expansion: Callable[..., tuple[Node, ...]],
) -> GradientPlan:
    def again(other: Signature) -> Composite | None:
        plan = gradient_plan(other, *asked)
        is_alike = plan is not None and (plan.residuals, plan.targets) == (residuals, targets)
        return plan.composite if is_alike else None  # type: ignore[union-attr]

    derivation = Derivation(signature, ("gradient", *asked, residuals, targets), again)
    name = f"{signature.composite.name}.gradient"
    return GradientPlan(Composite(name, expansion, derivation=derivation), residuals, targets)


def _derive(
    signature: Signature, outputs: tuple[int, ...], wanted: tuple[int, ...]
) -> GradientPlan | None:
    first_slot = len(signature.inputs)
    results = [signature.outputs[k] for k in outputs]
    cotangents = [
        input_node(first_slot + k, node.shape, node.dtype) for k, node in enumerate(results)
    ]
    sources = [signature.inputs[k] for k in wanted]
    gradients = pullback(results, cotangents, sources)
    # A function that is constant nearly everywhere, as rounding is, has the gradient zero. So have
    # operands that the results do not depend on for these shapes, as a convolution of padding.
    is_constant = all(gradient is None for gradient in gradients)
    read = set() if is_constant else set(topological(signature.outputs))
    for k, node in enumerate(sources):
        if gradients[k] is None and node.dtype.kind == "float" and node not in read:
            gradients[k] = _zero(node)
    targets = tuple(k for k, gradient in zip(wanted, gradients) if gradient is not None)
    found = [gradient for gradient in gradients if gradient is not None]
    if not found:
        return None
    residuals = _residuals(signature, found, set(cotangents))
    places = [
        signature.inputs[index] if kind == "input" else signature.outputs[index]
        for kind, index in residuals
    ]

    def expansion(*nodes: Node) -> tuple[Node, ...]:
        return tuple(rebuild(found, dict(zip([*places, *cotangents], nodes))))

    return _plan(signature, (outputs, wanted), residuals, targets, expansion)


def _zero(node: Node) -> Node:
    return constant(0, node.dtype, node.shape)


def _residuals(
    signature: Signature, gradients: Sequence[Node], cotangents: set[Node]
) -> tuple[Residual, ...]:
    """Where the backward graph touches the forward one, past all that is cheap to compute again."""
    forward = set(topological(signature.outputs))
    results = signature.outputs[: signature.result_count]
    places: dict[Residual, None] = {}
    seen: set[Node] = set()
    stack = list(gradients)
    while stack:
        node = stack.pop()
        if node in seen or node in cotangents:
            continue
        seen.add(node)
        if isinstance(node.op, Input):
            places["input", signature.inputs.index(node)] = None
        elif node in forward and node in results and not isinstance(node.op, (Constant, Index)):
            places["output", results.index(node)] = None
        elif node in forward and not is_cheap(node):
            places["output", signature.output_index(node)] = None
        else:
            stack.extend(node.inputs)
    return tuple(places)


def live_residuals(call: Call) -> list[Call]:
    """What the gradient of a call will read, should it be asked for."""
    signature = call.signature
    assert signature is not None
    wanted = tuple(k for k, source in enumerate(call.inputs) if source.requires_grad)
    outputs = tuple(k for k in range(signature.result_count) if signature.types[k].differentiable)
    try:
        plan = gradient_plan(signature, outputs, wanted)
    except UnsupportedError:  # whoever asks for the gradient is told
        return []
    return [] if plan is None else residual_parts(call, plan.residuals)


@dataclass(eq=False)
class TapeEntry:
    """What only some calls need: a leaf's owner, hooks, or a gradient written by the user.

    `accumulate` takes the finished gradient of a leaf; `hooks` see (and may replace) the gradient
    of this call, `retains` get it after them, and `after` is called when a leaf has accumulated it;
    `function` (called `name`) computes the gradients of `sources` (of their output number `index`)
    by user code, from the cotangents of `outputs` outputs, and `freed` is told when it will not be
    called again.
    """

    accumulate: Callable[[Call], None] | None = None
    hooks: list[Callable[[Call], Call | None]] = field(default_factory=list)
    retains: list[Callable[[Call], None]] = field(default_factory=list)
    after: list[Callable[[Call], None]] = field(default_factory=list)
    function: Callable[[Sequence[Call | None]], Sequence[Call | None]] | None = None
    sources: tuple[Call | None, ...] = ()
    outputs: int = 1
    index: int = 0
    name: str = ""
    freed: Callable[[], None] | None = None

    def has_accumulated(self, gradient: Call) -> None:
        """Runs the hooks of a leaf whose gradient has just been added to."""
        for done in tuple(self.after):
            done(gradient)

    @property
    def has_user_code(self) -> bool:
        """Whether something of the user runs when the gradient is known."""
        return bool(self.function or self.hooks or self.retains)


# What gradients arrive at: a call, or the tape that all values of a leaf share. A leaf that was
# written outside the tape has several, and one gradient.
Variable = Call | TapeEntry
# The cotangents that have arrived at a variable, by output index.
Pending = dict[Variable, dict[int, Call]]


def _variable(call: Call) -> Variable:
    tape = call.tape
    return call if tape is None or tape.accumulate is None else tape


# Told of every call whose gradient was recorded, and of the gradients that it passes on.
watchers: list[Callable[[Call, Sequence[Call | None]], None]] = []
# What hooks of the running backward pass want done when it has ended, in order.
at_end: list[Callable[[], None]] = []


def pass_through(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
    """The gradient of a value that stands for another one: it goes on as it is."""
    return cotangents


def as_before(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
    """The gradient of a value that was replaced outside the tape: as if it had not been."""
    return cotangents


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
) -> dict[Call, Call]:
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
    found: dict[Variable, Call] = {}
    spent: list[tuple[Call, bool]] = []
    previous, modes.gradients = modes.gradients, create_graph
    order = _reverse_order([call for call, _ in roots], needed)
    try:
        for call in order:
            was_computed = call.buffer is not None
            if _visit(call, pending, found, wanted, accumulate, needed, is_part):
                spent.append((call, was_computed))
    except BaseException:
        at_end.clear()
        raise
    finally:
        modes.gradients = previous
    if not retain_graph:
        for call, was_computed in spent:
            _release(call, was_computed)
        forget_released(order)
    while at_end:
        at_end.pop(0)()
    return {call: found[variable] for call, variable in asked.items() if variable in found}


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


def _released_function(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
    raise AssertionError("a released call is never asked for its gradient")


def _visit(
    call: Call,
    pending: Pending,
    found: dict[Variable, Call],
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
        for hook in tuple(tape.hooks):
            replaced = hook(own)
            own = own if replaced is None else replaced
        for keep in tape.retains:
            keep(own)
        cotangents[0] = own
    if variable in wanted and own is not None:
        found[variable] = own
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


def _run_function(
    call: Call, tape: TapeEntry, cotangents: dict[int, Call], pending: Pending
) -> bool:
    _check_not_released(call)
    function, sources = tape.function, tape.sources
    assert function is not None
    gradients = function([cotangents.get(k) for k in range(tape.outputs)])
    for watch in watchers:
        watch(call, gradients)
    for source, gradient in zip(sources, gradients):
        if source is not None and gradient is not None and source.requires_grad:
            _accumulate(pending, source, gradient, tape.index)
    return function not in (pass_through, as_before)


def _record_gradient(
    call: Call, cotangents: dict[int, Call], pending: Pending, needed: set[Variable] | None
) -> bool:
    _check_not_released(call)
    wanted = tuple(
        k
        for k, source in enumerate(call.inputs)
        if source.requires_grad and (needed is None or _variable(source) in needed)
    )
    plan = gradient_plan(call.signature, tuple(sorted(cotangents)), wanted)  # type: ignore
    if plan is None:
        return False
    inputs = residual_parts(call, plan.residuals)
    found = overwritten(call, wanted, inputs)
    if found is not None:
        name = call.signature.composite.name  # type: ignore[union-attr]
        where = describe_location(call.location)
        raise overwritten_error(f"{name}{' at ' + where if where else ''}", found)
    inputs.extend(cotangents[k] for k in sorted(cotangents))
    gradient = record(plan.composite, inputs)
    if gradient.location is None:
        gradient.location = call.location
    parts = [part(gradient, position) for position in range(len(plan.targets))]
    for watch in watchers:
        watch(call, parts)
    for target, gradient in zip(plan.targets, parts):
        _accumulate(pending, call.inputs[target], gradient)
    return bool(plan.residuals)


def _accumulate(pending: Pending, call: Call, cotangent: Call, index: int = 0) -> None:
    slots = pending.setdefault(_variable(call), {})
    if index in slots:
        slots[index] = record(add_cotangents, (slots[index], cotangent))
    else:
        slots[index] = cotangent


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


def _needed(roots: Sequence[tuple[Call, Call]], targets: set[Variable]) -> set[Variable]:
    """The variables on a path from a root to a target."""
    reached = _reverse_order([call for call, _ in roots], None)
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
