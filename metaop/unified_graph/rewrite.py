"""Rebuilding a graph with some nodes replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from metaop.unified_graph.node import Node, topological


def rebuild(
    outputs: Sequence[Node],
    replace: Mapping[Node, Node] | None = None,
    transform: Callable[[Node], Node] | None = None,
) -> list[Node]:
    """The outputs rebuilt bottom-up.

    Nodes in `replace` become their replacements; every other node is rebuilt on its new inputs and
    passed to `transform`, which may return another node of the same type.
    """
    known = replace or {}
    done: dict[Node, Node] = {}
    for node in topological(outputs, stops=known):
        inputs = tuple([done[x] if x in done else known[x] for x in node.inputs])
        new = node if inputs == node.inputs else Node(node.op, inputs, node.shape, node.dtype)
        done[node] = transform(new) if transform is not None else new
    return [done[x] if x in done else known[x] for x in outputs]
