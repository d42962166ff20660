"""`Loop`: a node that runs a graph of its own repeatedly, each step on the results of the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from metaop.errors import UnsupportedError
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import Access
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import MetaOp, Node, input_node, topological
from metaop.unified_graph.tensor_type import Device

# The length of a loop that only its first carried value ends.
ENDLESS = -1


def can_repeat(device: Device) -> bool:
    """Whether programs on a device repeat the steps of loops, rather than being unrolled."""
    return device.type != "cuda" and device.placement is None


class Body(NamedTuple):
    """The graph of one step, and how often it runs.

    Input 0 of the graph is the position of the step, an int64. The carried values follow, then one
    input for each flag in `sliced`: if it is set, each step reads its own element, else all steps
    read the same value. `carried` are the values for the next step. `length` steps run, from the
    last position to the first if `reverse`. A `guarded` loop ends before the step for which its
    first carried value, a bool, is False. With `recompute`, gradients keep only carried values.
    `starts` says for every flag in `sliced` which element position 0 reads; 0 if it is empty.
    """

    carried: tuple[Node, ...]
    sliced: tuple[bool, ...]
    length: int
    reverse: bool = False
    guarded: bool = False
    recompute: bool = False
    starts: tuple[int, ...] = ()

    @property
    def positions(self) -> range:
        """The positions in the order of the steps."""
        steps = range(self.length)
        return steps[::-1] if self.reverse else steps


@dataclass(frozen=True)
class Loop(MetaOp):
    """One result of a loop, whose operands are the initial carried values and the further inputs.

    It is a value of the body at all positions if `stacked`, else the final value of carried value
    `number`. Results of the same body and operands are computed together. If a guard ends a loop
    early, the rest of a stack is undefined.
    """

    definition: Body
    stacked: Node | None = None
    number: int = 0
    name: ClassVar[str] = "loop"
    is_alone: ClassVar[bool] = True

    def access(self, node: Node) -> Access:
        raise UnsupportedError("no index map describes what a loop reads and writes")

    def can_fail(self, operands: Sequence[Node]) -> bool:
        roots = [*self.definition.carried, *([] if self.stacked is None else [self.stacked])]
        return any(node.op.can_fail(node.inputs) for node in topological(roots))

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        body = self.definition
        count = len(body.carried)
        carried, rest = list(inputs[:count]), inputs[count:]
        values: dict[int, np.ndarray] = {}
        roots = [*body.carried, *([] if self.stacked is None else [self.stacked])]
        step = 0
        while step != body.length and not (body.guarded and not carried[0]):
            position = body.positions[step] if body.length >= 0 else step
            starts = body.starts or (0,) * len(rest)
            own = [
                x[start + position] if flag else x
                for x, flag, start in zip(rest, body.sliced, starts)
            ]
            found = evaluate(roots, [np.asarray(position, np.int64), *carried, *own])
            carried, values[position] = found[:count], found[-1]
            step += 1
        if self.stacked is None:
            return np.asarray(carried[self.number])
        result = np.zeros(node.shape, node.dtype.numpy)
        for position, value in values.items():
            result[position] = value
        return result

    def describe(self, node: Node) -> str:
        what = f"last {self.number}" if self.stacked is None else f"all {self.stacked!r}"
        steps = "while its first value holds" if self.definition.guarded else ""
        return f"loop of {self.definition.length} {steps}: {what}"


def body_inputs(operands: Sequence[Any], carried: int, sliced: Sequence[bool]) -> list[Node]:
    """The inputs of a body for operands (nodes or types), the first `carried` of them carried."""
    flags = [False] * carried + list(sliced)
    shapes = [x.shape[1:] if flag else x.shape for x, flag in zip(operands, flags)]
    inputs = [input_node(0, (), dtypes.int64)]
    for x, shape in zip(operands, shapes):
        inputs.append(input_node(len(inputs), shape, x.dtype))
    return inputs


def last(body: Body, operands: Sequence[Node], number: int) -> Node:
    """The carried value `number` after all steps."""
    node = body.carried[number]
    return Node(Loop(body, None, number), operands, node.shape, node.dtype)


def stack(body: Body, operands: Sequence[Node], value: Node) -> Node:
    """A value of the body at all positions, one after another along a new first dimension."""
    return Node(Loop(body, value), operands, (body.length, *value.shape), value.dtype)
