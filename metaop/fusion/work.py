"""How much arithmetic a meta-operator is, for the models that choose and predict."""

from __future__ import annotations

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import function_cost
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of


def operations_of(node: Node) -> int:
    """Operations of a node, counted as multiplications; moving elements about counts nothing."""
    if isinstance(node.op, Elementwise):
        return function_cost(node.op.function.name) * hint_of(node.size)
    if isinstance(node.op, Reduce):
        return hint_of(node.inputs[0].size)
    return 0
