"""Graphs of meta-operators as stable, readable text."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.unified_graph.node import Input, Node, topological


def show_graph(outputs: Sequence[Node]) -> str:
    """One line per node, each after its inputs, numbered in this order.

    Example:

        %0 = input 0                       float32[3]
        %1 = exp %0                        float32[3]
        return %1
    """
    order = topological(outputs)
    numbers = {node: f"%{number}" for number, node in enumerate(order)}
    left = []
    for node in order:
        text = node.op.describe(node)
        if not isinstance(node.op, Input) and node.inputs:
            text += " " + " ".join(numbers[source] for source in node.inputs)
        left.append(f"{numbers[node]} = {text}")
    width = min(max(map(len, left), default=0), 72)
    lines = [
        f"{text.ljust(width)}  {node.dtype.name}{list(node.shape)}"
        for text, node in zip(left, order)
    ]
    results = ", ".join(numbers[node] for node in outputs)
    return "\n".join([*lines, f"return {results}"]) + "\n"
