"""Loops as composites: what a body makes of carried values, step by step."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply
from metaop.unified_graph.composite import composite
from metaop.unified_graph.loop import Body, last, stack
from metaop.unified_graph.node import Node, constant


@composite(variadic=True)
def repeat(operands: tuple[Node, ...], body: Body, stacked: tuple[Node, ...]) -> tuple[Node, ...]:
    """The last of all carried values, then each of the values in `stacked` at all positions.

    The operands are the first carried values, then what the further inputs of the body read.
    """
    count = len(body.carried)
    if body.length == 0:
        empty = [constant(0, node.dtype, (0, *node.shape)) for node in stacked]
        return (*operands[:count], *empty)
    finals = [last(body, operands, number) for number in range(count)]
    return (*finals, *(stack(body, operands, node) for node in stacked))


@composite(variadic=True)
def choose(operands: tuple[Node, ...], chosen: Body, other: Body) -> tuple[Node, ...]:
    """What one of two bodies makes of all operands but the first, a bool that chooses.

    Each is a loop of one step at most, and carries the choice and then its results.
    """
    choice, *rest = operands
    empty = [constant(0, node.dtype, node.shape) for node in chosen.carried[1:]]
    first = [choice, *empty, *rest]
    found = [last(chosen, first, k) for k in range(1, len(chosen.carried))]
    second = [apply("bitwise_not", choice), *found, *rest]
    return tuple(last(other, second, k) for k in range(1, len(other.carried)))
