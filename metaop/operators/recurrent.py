"""Recurrent cells, and layers that run them over time.

A layer projects the inputs of all steps in one contraction; what remains of each step is one
contraction with the hidden state and elementwise functions of the gates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import ShapeError
from metaop.operators.linear import linear
from metaop.reindex.views import concatenate, select, slice_dimension, unsqueeze
from metaop.unified_graph.composite import composite
from metaop.unified_graph.loop import Body, body_inputs, last, stack
from metaop.unified_graph.node import Node

# The states of a cell: hidden, and for LSTM the cell's memory.
States = tuple[Node, ...]


class Cell(NamedTuple):
    """The number of gates and states of a cell, and its step from gates to new states."""

    gates: int
    states: int
    step: Callable[[Node, Node, States], States]


def _plain(function: str) -> Callable[[Node, Node, States], States]:
    def step(of_input: Node, of_hidden: Node, states: States) -> States:
        return (apply(function, of_input + of_hidden),)

    return step


def _split(gates: Node, count: int) -> list[Node]:
    last = gates.ndim - 1
    size = gates.shape[last] // count
    return [slice_dimension(gates, last, k * size, size) for k in range(count)]


def _long_short_term(of_input: Node, of_hidden: Node, states: States) -> States:
    enter, forget, candidate, leave = _split(of_input + of_hidden, 4)
    memory = apply("sigmoid", forget) * states[1]
    memory = memory + apply("sigmoid", enter) * apply("tanh", candidate)
    return apply("sigmoid", leave) * apply("tanh", memory), memory


def _gated(of_input: Node, of_hidden: Node, states: States) -> States:
    reset, update, candidate = _split(of_input, 3)
    own_reset, own_update, own_candidate = _split(of_hidden, 3)
    kept = apply("sigmoid", update + own_update)
    new = apply("tanh", candidate + apply("sigmoid", reset + own_reset) * own_candidate)
    return (new + kept * (states[0] - new),)


CELLS = {
    "rnn_tanh": Cell(1, 1, _plain("tanh")),
    "rnn_relu": Cell(1, 1, _plain("relu")),
    "lstm": Cell(4, 2, _long_short_term),
    "gru": Cell(3, 1, _gated),
}


@composite
def recurrent_cell(
    input: Node,
    hidden: Node,
    memory: Node | None,
    of_input: Node,
    of_hidden: Node,
    input_bias: Node | None,
    hidden_bias: Node | None,
    kind: str,
) -> States:
    """One step: (N, I) and states (N, H) -> new states (N, H); a key of CELLS names the kind."""
    cell = CELLS[kind]
    states: States = (hidden,) if memory is None else (hidden, memory)
    _check(kind, cell, input, states, of_input, of_hidden)
    projected = linear(input, of_input, input_bias)
    return cell.step(projected, linear(hidden, of_hidden, hidden_bias), states)


@composite
def recurrent_layer(
    input: Node,
    lengths: Node | None,
    hidden: Node,
    memory: Node | None,
    of_input: Node,
    of_hidden: Node,
    input_bias: Node | None,
    hidden_bias: Node | None,
    projection: Node | None,
    kind: str,
    reverse: bool,
    is_loop: bool,
) -> States:
    """A cell over a sequence (T, N, I): outputs (T, N, H), then the last states.

    Samples end at `lengths` (N): beyond them, outputs are 0 and states do not change. An LSTM may
    project its hidden state by `projection` (P, H). The steps are unrolled, or form a loop whose
    step is compiled once, however long the sequence is.
    """
    cell = CELLS[kind]
    states: States = (hidden,) if memory is None else (hidden, memory)
    _check(kind, cell, input, states, of_input, of_hidden)
    projected = linear(input, of_input, input_bias)
    run = _repeated if is_loop else _written_out
    return run(cell, projected, lengths, states, of_hidden, hidden_bias, projection, reverse)


def _written_out(
    cell: Cell,
    projected: Node,
    lengths: Node | None,
    states: States,
    of_hidden: Node,
    hidden_bias: Node | None,
    projection: Node | None,
    reverse: bool,
) -> States:
    outputs: dict[int, Node] = {}
    steps = range(projected.shape[0])
    for step in reversed(steps) if reverse else steps:
        given = select(projected, 0, step)
        new = _advanced(cell, given, states, of_hidden, hidden_bias, projection)
        outputs[step], states = _ended(lengths, step, new, states)
    return concatenate([unsqueeze(outputs[step], 0) for step in steps], 0), *states


def _repeated(
    cell: Cell,
    projected: Node,
    lengths: Node | None,
    states: States,
    of_hidden: Node,
    hidden_bias: Node | None,
    projection: Node | None,
    reverse: bool,
) -> States:
    given = select(projected, 0, 0)
    first = _advanced(cell, given, states, of_hidden, hidden_bias, projection)
    # The carried states must have the types that a step returns.
    states = tuple(cast(state, new.dtype) for state, new in zip(states, first))
    optional = [x for x in (hidden_bias, projection, lengths) if x is not None]
    operands = (*states, projected, of_hidden, *optional)
    sliced = (True, *(False for _ in (of_hidden, *optional)))
    step, *inputs = body_inputs(operands, len(states), sliced)
    own, (at_step, weight, *rest) = tuple(inputs[: len(states)]), inputs[len(states) :]
    supply = iter(rest)
    bias, narrow, ends = (
        next(supply) if x is not None else None for x in (hidden_bias, projection, lengths)
    )
    output, new = _ended(ends, step, _advanced(cell, at_step, own, weight, bias, narrow), own)
    body = Body(new, sliced, projected.shape[0], reverse)
    outputs = stack(body, operands, output)
    return outputs, *(last(body, operands, k) for k in range(len(states)))


def _ended(
    lengths: Node | None, step: Node | int, new: States, states: States
) -> tuple[Node, States]:
    """The output and the states of a step: ended samples output 0 and keep their states."""
    if lengths is None:
        return new[0], new
    running = unsqueeze(lengths > step, 1)
    kept = tuple(where(running, after, before) for after, before in zip(new, states))
    return where(running, new[0], 0), kept


def _advanced(
    cell: Cell,
    of_input: Node,
    states: States,
    of_hidden: Node,
    hidden_bias: Node | None,
    projection: Node | None,
) -> States:
    """The states after a step whose input is projected."""
    new = cell.step(of_input, linear(states[0], of_hidden, hidden_bias), states)
    return new if projection is None else (linear(new[0], projection, None), *new[1:])


def _check(
    kind: str, cell: Cell, input: Node, states: States, of_input: Node, of_hidden: Node
) -> None:
    rows = of_input.shape[0]
    if len(states) != cell.states:
        raise ShapeError(
            f"{kind}: expected {cell.states} states, got {len(states)}", fix="LSTM has two states"
        )
    if rows % cell.gates or of_hidden.shape[0] != rows:
        raise ShapeError(
            f"{kind}: weights {list(of_input.shape)} and {list(of_hidden.shape)} must have "
            f"{cell.gates} rows for each hidden unit",
            fix="weights are (gates * hidden, input) and (gates * hidden, hidden)",
        )
    if input.shape[-1] != of_input.shape[1] or states[0].shape[-1] != of_hidden.shape[1]:
        raise ShapeError(
            f"{kind}: input {list(input.shape)} and hidden state {list(states[0].shape)} do not "
            f"fit weights {list(of_input.shape)} and {list(of_hidden.shape)}",
            fix="weights are (gates * hidden, input) and (gates * hidden, hidden)",
        )
