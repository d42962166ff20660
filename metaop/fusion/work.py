"""The number of arithmetic operations of a meta-operator, for cost models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import function_cost
from metaop.fusion.storage import Storage
from metaop.fusion.triangles import triangle_of
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of


def operations_of(node: Node) -> int:
    """Operations of a node, in multiplications; moving elements costs none."""
    return _operations(node, hint_of(node.size))


def operations_of_kernel(roots: Iterable[Node], storage: Storage) -> int:
    """Operations of a kernel: those of its roots, and of the elements that they inline."""
    order = storage.computed(roots)
    asked = Counter({root: hint_of(root.size) for root in roots})
    total = 0
    for node in reversed(order):
        total += _operations(node, asked[node])
        for source in set(node.inputs):
            every = hint_of(source.size)
            more = every if isinstance(node.op, Reduce) else asked[node]
            asked[source] = min(asked[source] + more, every)
    return total


def _operations(node: Node, elements: int) -> int:
    """Operations for `elements` elements of a node; a reduction computes all of its elements.

    A scan has a running result.
    """
    if isinstance(node.op, Elementwise):
        return function_cost(node.op.function.name) * elements
    if isinstance(node.op, Reduce):
        is_scan = triangle_of(node, lambda source: False) is not None
        return hint_of(node.size if is_scan else node.inputs[0].size)
    return 0
