"""Evaluation of a graph by NumPy, node by node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaop.unified_graph.node import Input, Node, topological


def evaluate(outputs: Sequence[Node], values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The values of `outputs` when program input `k` has `values[k]`."""
    computed: dict[Node, np.ndarray] = {}
    for node in topological(outputs):
        if isinstance(node.op, Input):
            computed[node] = values[node.op.slot]
        else:
            computed[node] = node.op.reference(node, [computed[x] for x in node.inputs])
    return [computed[output] for output in outputs]
