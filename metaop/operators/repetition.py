"""Loops and choices as composites, whose steps update carried values repeatedly."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply
from metaop.operators.steps import FixedStep, GeneralStep, RecordedStep
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import composite
from metaop.unified_graph.loop import Body, body_inputs, last, stack
from metaop.unified_graph.node import Node, constant, input_node


@composite(variadic=True)
def repeat(
    operands: tuple[Node, ...],
    step: GeneralStep | FixedStep | RecordedStep,
    hidden: int,
    sliced: tuple[bool, ...],
    length: int,
    reverse: bool,
    guarded: bool,
    recompute: bool,
) -> tuple[Node, ...]:
    """The final carried values, then the further results of the step at all positions.

    The operands are the initial carried values, then one for each flag in `sliced`. Of the position
    and what follows it, the step does not take the first `hidden`. See `Body` for the rest.
    """
    count = len(operands) - len(sliced)
    made = step.nodes(body_inputs(operands, count, sliced)[hidden:])
    body = Body(tuple(made[:count]), sliced, length, reverse, guarded, recompute)
    stacked = made[count:]
    if length == 0:
        empty = [constant(0, node.dtype, (0, *node.shape)) for node in stacked]
        return (*operands[:count], *empty)
    finals = [last(body, operands, number) for number in range(count)]
    return (*finals, *(stack(body, operands, node) for node in stacked))


@composite(variadic=True)
def choose(
    operands: tuple[Node, ...], chosen: GeneralStep | FixedStep, other: GeneralStep | FixedStep
) -> tuple[Node, ...]:
    """The results of one of two steps; the first operand, a bool, chooses between them.

    Each is a loop of at most one step that carries the choice and then its results.
    """
    choice, *rest = operands
    # The position and the choice are followed by the results so far, then by what both steps read.
    inputs = [input_node(2 + chosen.result_count + k, x.shape, x.dtype) for k, x in enumerate(rest)]
    flag, alike = input_node(1, (), dtypes.bool_), (False,) * len(rest)
    bodies = [Body((flag, *step.nodes(inputs)), alike, 1, guarded=True) for step in (chosen, other)]
    empty = [constant(0, node.dtype, node.shape) for node in bodies[0].carried[1:]]
    first = [choice, *empty, *rest]
    found = [last(bodies[0], first, k) for k in range(1, 1 + chosen.result_count)]
    second = [apply("bitwise_not", choice), *found, *rest]
    return tuple(last(bodies[1], second, k) for k in range(1, 1 + chosen.result_count))
