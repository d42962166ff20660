"""A loop for a whole batch: its steps compute all elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from metaop.elementwise.meta_op import where
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import reshape, transpose
from metaop.unified_graph.loop import Loop, body_inputs, last, stack
from metaop.unified_graph.node import Node, topological
from metaop.unified_graph.rewrite import rebuild

Batched = Callable[[Sequence[Node], Mapping[Node, Node], frozenset[Node], int], list[Node]]


def batch_loop(
    node: Node, sources: Sequence[Node], flags: Sequence[bool], size: int, batched: Batched
) -> Node:
    """The result of a loop on `sources`, of which those with a flag have the batch first.

    Where a condition varies, the loop goes on while it holds for an element, and the values of the
    others stay. What is carried varies from the start if it does later.
    """
    op = node.op
    assert isinstance(op, Loop)
    body = op.definition
    count = len(body.carried)
    inputs = body_inputs(node.inputs, count, body.sliced)
    varies = {x for x, flag in zip(inputs[1:], flags) if flag}
    while True:
        reached = set(varies)
        for one in topological(body.carried):
            if not reached.isdisjoint(one.inputs):
                reached.add(one)
        pairs = zip(inputs[1:], body.carried)
        # With a guard that varies, everything that is carried ends at a time of its own.
        all_end = body.guarded and inputs[1] in varies
        more = {x for x, new in pairs if new in reached or all_end} - varies
        if not more:
            break
        varies |= more
    operands = [
        _stacked(source, flag) if is_sliced else source
        for source, flag, is_sliced in zip(sources, flags, (*(False,) * count, *body.sliced))
    ]
    for k, x in enumerate(inputs[1 : 1 + count]):
        if x in varies and not flags[k]:
            operands[k] = batched([x], {x: operands[k]}, frozenset(), size)[0]
    ends_apart = body.guarded and inputs[1] in varies
    if ends_apart:
        # The loop itself asks whether it has to go on for any element.
        operands.insert(0, reduce_axes("or", operands[0], (0,)))
    carried_inputs = body_inputs(operands, count + ends_apart, body.sliced)
    own = [carried_inputs[0], *carried_inputs[1 + ends_apart :]]
    known, moved = dict(zip(inputs, own)), frozenset(varies)
    steps = []
    for x, new in zip(inputs[1:], body.carried):
        made = batched([new], known, moved, size)[0] if x in varies else rebuild([new], known)[0]
        steps.append(_held(known[inputs[1]], made, known[x]) if ends_apart else made)
    if ends_apart:
        steps.insert(0, reduce_axes("or", steps[0], (0,)))
    turned = body._replace(carried=tuple(steps))
    if op.stacked is not None:
        value = batched([op.stacked], known, moved, size)[0]
        return transpose(stack(turned, operands, value), 0, 1)
    result = last(turned, operands, op.number + ends_apart)
    if inputs[1 + op.number] in varies:
        return result
    return batched([inputs[1]], {inputs[1]: result}, frozenset(), size)[0]


def _stacked(source: Node, is_batched: bool) -> Node:
    """A stack with the steps before the batch."""
    return transpose(source, 0, 1) if is_batched else source


def _held(runs: Node, new: Node, old: Node) -> Node:
    """The new value of the elements for which a loop goes on."""
    flags = reshape(runs, (*runs.shape, *(1,) * (new.ndim - 1)))
    return where(flags, new, old)
