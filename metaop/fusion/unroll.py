"""Loops unrolled step by step, for backends that cannot repeat a part of a program."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.elementwise.meta_op import where
from metaop.errors import UnsupportedError
from metaop.reindex.views import concatenate, select, unsqueeze
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.loop import Body, Loop, body_inputs
from metaop.unified_graph.node import Node, constant
from metaop.unified_graph.rewrite import rebuild


def unroll(outputs: Sequence[Node]) -> list[Node]:
    """The outputs with every loop unrolled; a guard selects values and no longer skips steps.

    Raises UnsupportedError for a loop whose length depends on its values.
    """
    written: dict[tuple[Body, tuple[Node, ...]], _Written] = {}

    def step(node: Node) -> Node:
        op = node.op
        if not isinstance(op, Loop):
            return node
        key = op.definition, node.inputs
        if key not in written:
            written[key] = _Written(op.definition, node.inputs)
        return written[key].result(op, node)

    return rebuild(outputs, transform=step)


class _Written:
    """The unrolled steps of a loop: the values carried after each, and what replaces its inputs."""

    def __init__(self, body: Body, operands: Sequence[Node]) -> None:
        if body.length < 0:
            raise UnsupportedError(
                "a loop whose length depends on its values runs on one processor only",
                fix="use fori_loop or scan with a number of steps, or compute it on the CPU",
            )
        self.body = body
        inputs = body_inputs(operands, len(body.carried), body.sliced)
        self.carried = list(operands[: len(body.carried)])
        self.replaced: dict[int, dict[Node, Node]] = {}
        rest = operands[len(body.carried) :]
        for position in body.positions:
            own = [select(x, 0, position) if flag else x for x, flag in zip(rest, body.sliced)]
            nodes = [constant(position, dtypes.int64), *self.carried, *own]
            self.replaced[position] = dict(zip(inputs, nodes))
            found = unroll(rebuild(body.carried, self.replaced[position]))
            if body.guarded:
                runs = self.carried[0]
                found = [where(runs, new, old) for new, old in zip(found, self.carried)]
            self.carried = found

    def result(self, op: Loop, node: Node) -> Node:
        if op.stacked is None:
            return self.carried[op.number]
        if not self.body.length:
            return constant(0, node.dtype, node.shape)
        values = [
            unroll(rebuild([op.stacked], self.replaced[position]))[0]
            for position in range(self.body.length)
        ]
        return concatenate([unsqueeze(value, 0) for value in values], 0)
