"""A small NumPy interpreter of node graphs: the oracle of the tests in this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from metaop.unified_graph.node import Node, topological


def evaluate(outputs: Sequence[Node], values: Mapping[Node, np.ndarray]) -> list[np.ndarray]:
    """The values of the outputs, given those of the input nodes."""
    known = dict(values)
    for node in topological(outputs, known):
        known[node] = np.asarray(node.op.reference(node, [known[x] for x in node.inputs]))
    return [known[node] for node in outputs]


def backward(y: Node, g: Node, inputs: Sequence[Node]) -> list[Node | None]:
    """The cotangents of `inputs` when `g` is that of `y`; elementwise nodes and constants only."""
    cotangents: dict[Node, Node] = {y: g}
    for node in reversed(topological([y])):
        arrived = cotangents.get(node)
        if arrived is None or not node.inputs:
            continue
        gradient = node.op.function.gradient  # type: ignore[attr-defined]
        parts = gradient(arrived, node, *node.inputs) if gradient else ()
        for source, part in zip(node.inputs, parts):
            if part is not None:
                cotangents[source] = cotangents[source] + part if source in cotangents else part
    return [cotangents.get(node) for node in inputs]
