"""Traces a Python function to the graph of one step: it runs once, on placeholders."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from metaop.errors import ArgumentTypeError, ControlFlowError
from metaop.operators.basic import constant_fill
from metaop.operators.steps import FixedStep, GeneralStep, StepCall, Wires, stopped
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.creation import as_tensor
from metaop.trees import TreeSpec, tree_flatten, tree_unflatten
from metaop.unified_graph.cut import recorder, walk
from metaop.unified_graph.node import input_node
from metaop.unified_graph.recording import Call, modes, record
from metaop.unified_graph.tensor_type import TensorType
from metaop.unified_graph.tracing import Trace, state

Flow = tuple[list[Tensor], TreeSpec]


class _DerivedError(Exception):
    """Raised for a step with a composite that was derived for some sizes, a gradient for one."""


class Step(NamedTuple):
    """The trace of a function.

    `results` are calls that depend on `arguments` and on `closed`, earlier values that the function
    uses; `structure` is the nesting of the results. If gradients were off around the loop, as
    during the export of a program, no call of the step tells that it `stops` them.
    """

    name: str
    arguments: list[Call]
    results: list[Call]
    structure: TreeSpec
    closed: list[Call]
    stops: bool

    @property
    def types(self) -> list[TensorType]:
        return [call.type for call in self.results]

    def graph(self, closed: Sequence[Call]) -> GeneralStep | FixedStep:
        """The step as a graph whose inputs are its arguments and then `closed`."""
        inputs = [*self.arguments, *closed]
        order = _order(self.results, set(inputs))
        try:
            return self._general(inputs, order)
        except _DerivedError:
            return self._fixed(inputs, order)

    def _general(self, inputs: Sequence[Call], order: Sequence[Call]) -> GeneralStep:
        known = {call: position for position, call in enumerate(inputs)}
        end = len(inputs)
        calls = []
        for call in order:
            signature = call.signature
            if signature is None:
                source = call.inputs[0]
                if source.signature is not None and call.index >= source.signature.result_count:
                    raise _DerivedError
                known[call] = known[source] + call.index
                continue
            if signature.composite.derivation is not None:
                raise _DerivedError
            present = iter(call.inputs)
            sources = [
                None if kind is None else known[next(present)] for kind in signature.input_types
            ]
            calls.append(
                StepCall(
                    signature.composite,
                    signature.attributes,
                    Wires(tuple(sources)),
                    self._ends_history(call),
                )
            )
            known[call] = end
            end += signature.result_count
        return GeneralStep(tuple(calls), Wires(tuple([known[call] for call in self.results])))

    def _fixed(self, inputs: Sequence[Call], order: Sequence[Call]) -> FixedStep:
        nodes = [input_node(k, call.type.shape, call.type.dtype) for k, call in enumerate(inputs)]
        known = {call: [node] for call, node in zip(inputs, nodes)}
        for call, signature, arguments in walk(order, known):
            made = signature.instantiate(arguments)
            known[call] = list(map(stopped, made)) if self._ends_history(call) else made
        return FixedStep(tuple(nodes), tuple([known[call][0] for call in self.results]))

    def _ends_history(self, call: Call) -> bool:
        """Whether no gradient flows through a call, though its inputs have one."""
        is_leaf = call.tape is not None and call.tape.accumulate is not None
        has_none = not call.requires_grad and any(x.requires_grad for x in call.inputs)
        return self.stops and (is_leaf or has_none)


def flattened(what: str, value: Any) -> Flow:
    """The tensors of a nest, with numbers converted to tensors."""
    leaves, structure = tree_flatten(value)
    return [_tensor(what, leaf) for leaf in leaves], structure


def _tensor(what: str, value: Any) -> Tensor:
    if isinstance(value, (bool, int, float, complex)):
        value = as_tensor(value)
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(
            f"{what} contains a {type(value).__name__}, and only tensors and numbers can pass "
            "through a loop or a conditional",
            fix="nest tensors in tuples, lists and dicts",
        )
    return value


def traced(
    name: str, function: Callable[..., Any], types: Sequence[TensorType], structure: TreeSpec
) -> Step:
    """Runs `function` once, on placeholders of the given types, nested as one tuple by `structure`.

    Raises ControlFlowError if it reads a value, draws random numbers, or changes something that it
    does not return.
    """

    def read() -> None:
        raise ControlFlowError(
            f"{name}: the function reads a value, but it runs once for all steps and has none yet",
            fix="choose with metaop.where or metaop.cond, or read the result outside",
        )

    own = recorder.own
    outer, handles, paused = state.trace, own.handles, own.paused
    trace = state.trace = Trace(read)
    own.handles, own.paused = [], True
    try:
        arguments = [_argument(kind) for kind in types]
        tensors = [wrap(call) for call in arguments]
        result = function(*tree_unflatten(tensors, structure))
        leaves, made = flattened(f"{name}: the result", result)
        results = [leaf.call for leaf in leaves]
        written = any(tensor._call is not call for tensor, call in zip(tensors, arguments))
        seen = own.handles
    finally:
        state.trace = outer
        own.handles, own.paused = handles, paused
    del tensors, result, leaves
    known = set(arguments)
    order = _order(results, known, trace.started)
    _check(name, trace, order, written or _is_kept(seen, known, trace.started))
    # Values that do not depend on the arguments may outlive the trace; they are computed as usual.
    own.handles += [one for one in seen if one() is not None]
    inside = known.union(order)
    closed = [x for call in order for x in call.inputs if x not in inside]
    closed += [call for call in results if call not in inside]
    return Step(name, arguments, results, made, list(dict.fromkeys(closed)), modes.gradients)


def _argument(kind: TensorType) -> Call:
    """A placeholder for an argument; its value is zeros, in case user code keeps it."""
    call = record(constant_fill, (), (0, kind.shape, kind.dtype))
    call.type = kind
    call.requires_grad = modes.gradients and kind.differentiable
    return call


def _check(name: str, trace: Trace, order: Sequence[Call], is_written: bool) -> None:
    if trace.reasons or trace.steps:
        reason = trace.reasons[0] if trace.reasons else "it draws random numbers"
        raise ControlFlowError(
            f"{name}: the function runs once for all steps, and {reason}",
            fix="do that outside, and pass the result as an argument",
        )
    if is_written:
        raise ControlFlowError(
            f"{name}: the function writes or keeps a tensor that it does not return",
            fix="write to a clone, and return everything that must be kept",
        )
    for call in order:
        if call.tape is not None and call.tape.has_user_code:
            raise ControlFlowError(
                f"{name}: the function uses a gradient or a hook of its own, which a loop cannot "
                "run step by step",
                fix="use operators whose gradients are derived from their definitions",
            )


def _is_kept(seen: Sequence[Any], arguments: set[Call], started: int) -> bool:
    """Whether a tensor that was computed from the arguments is alive somewhere."""
    for _ in range(2):
        alive = [handle for handle in (one() for one in seen) if handle is not None]
        order = _order([handle._call for handle in alive], arguments, started)
        reached = set(arguments)
        for call in order:
            if not reached.isdisjoint(call.inputs):
                reached.add(call)
        if not any(handle._call in reached for handle in alive):
            return False
        # Objects that only cycles hold are not alive.
        del alive
        gc.collect()
    return True


def _order(results: Sequence[Call], known: set[Call], started: int = 0) -> list[Call]:
    """The calls since `started` between the `known` ones and the results, inputs first."""
    seen: set[Call] = set()
    stack = list(results)
    while stack:
        call = stack.pop()
        is_made = call.signature is not None or bool(call.inputs)
        if call in seen or call in known or not is_made or call.sequence < started:
            continue
        if call.buffer is None:
            seen.add(call)
            stack.extend(call.inputs)
    return sorted(seen, key=lambda call: call.sequence)
