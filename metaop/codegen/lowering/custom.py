"""The launches of a user's kernel, which has its own nests."""

from __future__ import annotations

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.scatters.scatter import fill_with
from metaop.codegen.nest import ir
from metaop.unified_graph.code import Code, results_of
from metaop.unified_graph.node import Node


def lower_code(root: Node, backend: str) -> list[LoweredKernel]:
    """The launches that compute all results of the kernel of `root`."""
    op = root.op
    assert isinstance(op, Code)
    results = results_of(root)
    buffers = (*root.inputs, *results)
    launches = [
        fill_with(node, ir.Number(result.initial, node.dtype))
        for node, result in zip(results, op.definition.results)
        if result.initial is not None
    ]
    for nest, numbers in op.definition.nests(backend):
        launches.append(LoweredKernel(nest, tuple(buffers[k] for k in numbers)))
    return launches
