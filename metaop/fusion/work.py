"""How much arithmetic a meta-operator is, for the models that choose and predict."""

from __future__ import annotations

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import function_cost
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph.node import Node


def operations_of(node: Node) -> int:
    """Operations of a node, counted as multiplications; moving elements about counts nothing."""
    if isinstance(node.op, Elementwise):
        return function_cost(node.op.function.name) * node.size
    if isinstance(node.op, Reduce):
        return node.inputs[0].size
    return 0
