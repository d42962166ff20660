"""The transposition of a loop: a loop that runs its steps backwards.

Its steps carry the cotangents of what was carried, and sums of those of what all steps read alike.
They read the cotangents of stacked results, and what the steps of the forward loop started from
and made: values that are expensive to compute again are stacked for them, the others are computed
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from metaop.elementwise.meta_op import Elementwise
from metaop.errors import UnsupportedError
from metaop.fusion.inline import is_expensive
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.loop import Body, Loop, body_inputs, last, stack
from metaop.unified_graph.node import (
    Constant,
    Index,
    Node,
    constant,
    input_node,
    topological,
)
from metaop.unified_graph.rewrite import rebuild

Pullback = Callable[[Sequence[Node], Sequence["Node | None"], Sequence[Node]], list["Node | None"]]


def is_cheap(node: Node) -> bool:
    """Whether a value had better be computed again than kept for a gradient."""
    return isinstance(node.op, (Elementwise, Reindex, Constant, Index))


def transpose_loop(
    results: Sequence[Node], cotangents: Sequence[Node], wanted: Sequence[bool], pullback: Pullback
) -> list[Node | None]:
    """The cotangents of the `wanted` operands of a loop, from those of some of its results.

    Raises UnsupportedError for a loop without a bound.
    """
    op, operands = results[0].op, results[0].inputs
    assert isinstance(op, Loop)
    if op.definition.length < 0:
        raise UnsupportedError(
            "a loop that runs until its values end it has no gradient: how many steps have to be "
            "kept is not known before",
            fix="use scan, or fori_loop with plain integers as its bounds",
        )
    return _Transposed(op.definition, operands, wanted, pullback).run(results, cotangents)


class _Gradients(NamedTuple):
    """What flows into a step, placeholders for it, and what flows out by input of the step."""

    arriving: dict[int, Node]
    stacked: list[tuple[Node, Node]]
    leaving: dict[Node, Node]


class _Transposed:
    def __init__(
        self, body: Body, operands: Sequence[Node], wanted: Sequence[bool], pullback: Pullback
    ) -> None:
        self.body, self.operands, self.pullback = body, operands, pullback
        number = len(body.carried)
        self.inputs = body_inputs(operands, number, body.sliced)
        self.carries, self.rest = self.inputs[1 : 1 + number], self.inputs[1 + number :]
        self.active = self._active(wanted)
        self.slots = count(len(self.inputs))

    def _active(self, wanted: Sequence[bool]) -> list[Node]:
        """The inputs of a step that depend on the wanted operands, through other steps too."""
        found = {x for x, flag in zip(self.inputs[1:], wanted) if flag}
        while True:
            reached = set(found)
            for node in topological(self.body.carried):
                if not reached.isdisjoint(node.inputs):
                    reached.add(node)
            pairs = zip(self.carries, self.body.carried)
            more = {x for x, new in pairs if new in reached and x.dtype.is_differentiable} - found
            if not more:
                return [x for x in self.inputs if x in found]
            found |= more

    def _placeholder(self, node: Node) -> Node:
        return input_node(next(self.slots), node.shape, node.dtype)

    def _gradients(self, finals: Sequence[int], stacked: Sequence[Node]) -> _Gradients:
        """The gradients within a step, once it is known which carried values get any."""
        arriving = {k: self._placeholder(self.carries[k]) for k in finals}
        pairs = [(value, self._placeholder(value)) for value in stacked]
        while True:
            outputs = [*(self.body.carried[k] for k in arriving), *(value for value, _ in pairs)]
            given = [*arriving.values(), *(place for _, place in pairs)]
            found = self.pullback(outputs, given, self.active)
            leaving = {x: node for x, node in zip(self.active, found) if node is not None}
            numbers = enumerate(self.carries)
            more = [k for k, x in numbers if x in leaving and k not in arriving]
            if not more:
                return _Gradients(arriving, pairs, leaving)
            arriving.update((k, self._placeholder(self.carries[k])) for k in more)

    def run(self, results: Sequence[Node], cotangents: Sequence[Node]) -> list[Node | None]:
        body = self.body
        final: dict[int, Node] = {}
        stacked: dict[Node, Node] = {}
        for node, cotangent in zip(results, cotangents):
            op = node.op
            assert isinstance(op, Loop)
            if op.stacked is not None:
                stacked[op.stacked] = cotangent
            elif self.carries[op.number] in self.active:
                final[op.number] = cotangent
        found = self._gradients(list(final), list(stacked))
        flags = dict(zip(self.rest, body.sliced))
        alike = [x for x in found.leaving if flags.get(x) is False]
        apart = [x for x in found.leaving if flags.get(x)]
        back = _Builder()
        if body.guarded:
            guard = back.carry(self.operands[0])
            back.outputs.append(guard)
        for k, place in found.arriving.items():
            back.known[place] = back.carry(final.get(k, _zeros(place)))
        sums = [back.carry(_zeros(x)) for x in alike]
        for value, place in found.stacked:
            back.known[place] = back.sliced(stacked[value])
        targets = [found.leaving.get(self.carries[k]) for k in found.arriving]
        nodes = [x for x in (*targets, *found.leaving.values()) if x is not None]
        self._read(found, nodes, back)
        back.outputs += [
            _zeros(place) if node is None else back.moved(node)
            for node, place in zip(targets, found.arriving.values())
        ]
        back.outputs += [own + back.moved(found.leaving[x]) for x, own in zip(alike, sums)]
        turned, operands = back.finish(body)
        position = {k: int(body.guarded) + number for number, k in enumerate(found.arriving)}
        first_sum = int(body.guarded) + len(position)
        gradients: dict[Node, Node] = {}
        for k, number in position.items():
            gradients[self.carries[k]] = last(turned, operands, number)
        for number, x in enumerate(alike, first_sum):
            gradients[x] = last(turned, operands, number)
        for x in apart:
            gradients[x] = stack(turned, operands, back.finished(found.leaving[x]))
        # What no step reads for these shapes, as the weights of a batch without samples.
        read = set(topological([*body.carried, *stacked]))
        for x, operand in zip(self.rest, self.operands[len(self.carries) :]):
            if x in self.active and x not in read:
                gradients[x] = _zeros(operand)
        return [gradients.get(x) for x in self.inputs[1:]]

    def _read(self, found: _Gradients, nodes: Sequence[Node], back: _Builder) -> None:
        """Gives the backward step what it reads of the forward step.

        What is stacked anyway is read where it is, however cheap it is.
        """
        forward = set(topological([*self.body.carried, *self.inputs]))
        stacked = {value for value, _ in found.stacked}
        operand = dict(zip(self.inputs[1:], self.operands))
        flags = dict(zip(self.rest, self.body.sliced))
        seen: set[Node] = set()
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if node in seen or node in back.known:
                continue
            seen.add(node)
            if node is self.inputs[0]:
                back.known[node] = node
            elif node in flags:
                read = back.sliced if flags[node] else back.alike
                back.known[node] = read(operand[node])
            elif node in operand or node in stacked or self._is_kept(node, forward):
                back.known[node] = back.sliced(stack(self.body, self.operands, node))
            else:
                pending.extend(node.inputs)

    def _is_kept(self, node: Node, forward: set[Node]) -> bool:
        is_kept = not is_cheap(node) or is_expensive(node)
        return is_kept and node in forward and not self.body.recompute


class _Builder:
    """The backward step: its operands, and its inputs, numbered when all are known."""

    def __init__(self) -> None:
        self.known: dict[Node, Node] = {}
        self.outputs: list[Node] = []
        self._carries: list[tuple[Node, Node]] = []
        self._rest: list[tuple[Node, Node, bool]] = []
        # Inputs are provisional until it is known how many come before them.
        self._slots = count(1 << 20)

    def _input(self, shape: tuple[int, ...], like: Node) -> Node:
        return input_node(next(self._slots), shape, like.dtype)

    def carry(self, first: Node) -> Node:
        node = self._input(first.shape, first)
        self._carries.append((node, first))
        return node

    def sliced(self, whole: Node) -> Node:
        node = self._input(whole.shape[1:], whole)
        self._rest.append((node, whole, True))
        return node

    def alike(self, operand: Node) -> Node:
        node = self._input(operand.shape, operand)
        self._rest.append((node, operand, False))
        return node

    def moved(self, node: Node) -> Node:
        """A node of the forward step and its gradient on the inputs of the backward step."""
        return rebuild([node], self.known)[0]

    def finished(self, node: Node) -> Node:
        """The same when the step is finished, with the final numbers of its inputs."""
        return rebuild([self.moved(node)], self._final)[0]

    def finish(self, body: Body) -> tuple[Body, list[Node]]:
        provisional = [*(node for node, _ in self._carries), *(node for node, _, _ in self._rest)]
        numbered = enumerate(provisional, 1)
        self._final = {node: input_node(k, node.shape, node.dtype) for k, node in numbered}
        outputs = rebuild(self.outputs, self._final)
        flags = tuple(flag for _, _, flag in self._rest)
        turned = body._replace(carried=tuple(outputs), sliced=flags, reverse=not body.reverse)
        operands = [first for _, first in self._carries] + [whole for _, whole, _ in self._rest]
        return turned, operands


def _zeros(node: Node) -> Node:
    return constant(0, node.dtype, node.shape)
