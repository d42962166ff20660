"""Slices of stacks that the steps of a loop read: where they are, without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.index_expr import axis
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import Input, Node
from metaop.unified_graph.rewrite import rebuild


def read_slices(outputs: Sequence[Node]) -> list[Node]:
    """The outputs, with loops that read rows of a stack from some row on from the stack itself."""
    return rebuild(outputs, transform=_on_wholes)


def _on_wholes(node: Node) -> Node:
    op = node.op
    if not isinstance(op, Loop):
        return node
    body, inputs = op.definition, list(node.inputs)
    first = len(body.carried)
    starts: list[Any] = list(body.starts or [0] * len(body.sliced))
    for number, is_sliced in enumerate(body.sliced):
        found = _rows_of(inputs[first + number]) if is_sliced else None
        if found is not None:
            inputs[first + number], start = found
            starts[number] = starts[number] + start
    if tuple(inputs) == node.inputs:
        return node
    changed = replace(op, definition=body._replace(starts=tuple(starts)))
    return Node(changed, tuple(inputs), node.shape, node.dtype)


def _rows_of(node: Node) -> tuple[Node, Any] | None:
    """What a node has consecutive rows of, and the first of them; None if it is no such slice.

    The whole must be in memory anyway, as arguments and results of loops are.
    """
    op = node.op
    if not isinstance(op, Reindex) or op.map.guards or op.map.never or not node.ndim:
        return None
    (whole, *others) = node.inputs
    if others or not isinstance(whole.op, Input | Loop) or whole.shape[1:] != node.shape[1:]:
        return None
    distances = [index - axis(k, n) for k, (index, n) in enumerate(zip(op.map.indices, node.shape))]
    if any(one.terms for one in distances) or any(one.constant != 0 for one in distances[1:]):
        return None
    return whole, distances[0].constant
