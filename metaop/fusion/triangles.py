"""Reductions over a triangle, which are scans: `y[i]` combines all `x[j]` with `j <= i`.

In a scan from the end, `j >= i`. Such a reduction is recognised by a guard that compares the two
axes, so gradients of scans are recognised too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metaop.fusion.kernel import reduced_axes
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.access import Guard, IndexMap, Within
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node


class Triangle(NamedTuple):
    """The axis of the result, the reduced axis that is compared with it, and the direction."""

    kept: int
    reduced: int
    backwards: bool


def triangle_of(node: Node, has_buffer: Callable[[Node], bool]) -> Triangle | None:
    """The triangle over which a node reduces something without a buffer, if it is one."""
    reduced = reduced_axes(node)
    if reduced is None or len(reduced) != 1:
        return None
    op, source = node.op, node.inputs[0]
    if not (isinstance(op, Reduce) and isinstance(source.op, Reindex)):
        return None
    if has_buffer(source) or source.op.fill != op.reducer.identity(source.dtype):
        return None
    shape, axes = source.shape, IndexMap.axes(source.shape)
    (over,) = reduced
    for kept in range(len(shape)):
        if kept == over or shape[kept] != shape[over]:
            continue
        for backwards in (False, True):
            later, earlier = (over, kept) if backwards else (kept, over)
            distance = axes[later] - axes[earlier]
            guards = source.op.map.guards
            rest = [one for one in guards if not _compares(one, distance, shape[kept])]
            used = [*source.op.map.indices, *(guard.expr for guard in rest)]
            if len(rest) < len(guards) and not any(_uses(expr, kept) for expr in used):
                return Triangle(kept, over, backwards)
    return None


def _compares(guard: Guard, distance: IndexExpr, extent: int) -> bool:
    return isinstance(guard, Within) and guard.expr == distance and guard.extent >= extent


def _uses(expr: IndexExpr, axis: int) -> bool:
    return any(isinstance(atom, Axis) and atom.name == axis for atom in expr.atoms())
