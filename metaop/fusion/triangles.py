"""Reductions over a triangle, which are scans: `y[i]` combines all `x[j]` with `j <= i`.

In a scan from the end, `j >= i`. Such a reduction is recognised by a guard that compares the two
axes, so gradients of scans are recognised too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.kernel import reduced_axes
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.access import Guard, IndexMap, Within
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Constant, Node

# Functions that are zero where one operand is.
_KEEP_ZEROS = frozenset(("mul", "neg", "cast"))


class Triangle(NamedTuple):
    """The axis of the result, the reduced axis that is compared with it, and the direction."""

    kept: int
    reduced: int
    backwards: bool


def triangle_of(node: Node, has_buffer: Callable[[Node], bool]) -> Triangle | None:
    """The triangle over which a node reduces something without a buffer, if it is one.

    What is reduced may be a product of which one factor is zero outside of the triangle.
    """
    reduced = reduced_axes(node)
    if reduced is None or len(reduced) != 1:
        return None
    op, source = node.op, node.inputs[0]
    assert isinstance(op, Reduce)
    shape, axes, (over,) = source.shape, IndexMap.axes(source.shape), reduced
    others = [k for k in range(len(shape)) if k != over and shape[k] == shape[over]]
    leaves = list(_leaves(source, has_buffer)) if others else []
    fill = op.reducer.identity(source.dtype)
    if op.reducer.name != "add" and len(leaves) > 1:
        return None
    for kept, backwards in product(others, (False, True)):
        later, earlier = (over, kept) if backwards else (kept, over)
        distance = axes[later] - axes[earlier]
        is_masked = False
        for leaf, decides in leaves:
            if leaf is None:
                return None
            assert isinstance(leaf.op, Reindex)
            guards = leaf.op.map.guards
            rest = [one for one in guards if not _compares(one, distance, shape[kept])]
            used = [guard.expr for guard in rest]
            if not isinstance(leaf.inputs[0].op, Constant):
                used.extend(leaf.op.map.indices)
            if any(_uses(expr, kept) for expr in used):
                break
            is_masked |= decides and len(rest) < len(guards) and leaf.op.fill == fill
        else:
            if is_masked:
                return Triangle(kept, over, backwards)
    return None


def _leaves(
    source: Node, has_buffer: Callable[[Node], bool], decides: bool = True
) -> Iterator[tuple[Node | None, bool]]:
    """The reindexes from which a value without a buffer is computed, element by element.

    Beside each stands whether the value is zero where that is; None stands for anything else.
    """
    op = source.op
    if isinstance(op, Constant):
        return
    if has_buffer(source) or not isinstance(op, (Reindex, Elementwise)):
        yield None, False
    elif isinstance(op, Reindex):
        yield source, decides
    else:
        for x in source.inputs:
            yield from _leaves(x, has_buffer, decides and op.function.name in _KEEP_ZEROS)


def _compares(guard: Guard, distance: IndexExpr, extent: int) -> bool:
    return isinstance(guard, Within) and guard.expr == distance and guard.extent >= extent


def _uses(expr: IndexExpr, axis: int) -> bool:
    return any(isinstance(atom, Axis) and atom.name == axis for atom in expr.atoms())
