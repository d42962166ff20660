"""Scans in blocks: the blocks side by side, then their totals, which are scanned in turn.

A scan of few long rows leaves processors idle. Blocks also bound the rounding error of long sums,
because no result combines more partial results than there are in the blocks of all levels.
"""

from __future__ import annotations

from collections.abc import Callable

from metaop.elementwise.meta_op import Elementwise, apply
from metaop.fusion.triangles import Triangle
from metaop.reduce.meta_op import Reduce
from metaop.reduce.triangle import reduce_triangle
from metaop.reindex import views
from metaop.reindex.meta_op import reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.node import Node

# Cuts a scan further, or leaves it as it is.
Again = Callable[[Node], Node]


def in_blocks(node: Node, triangle: Triangle, size: int, again: Again) -> Node:
    """A reduction over a triangle, computed in blocks of some elements.

    `again` may cut the scan of their totals.
    """
    op = node.op
    assert isinstance(op, Reduce)
    term, dim = _scanned(node, triangle)
    name, backwards = op.reducer.name, triangle.backwards
    length, identity = term.shape[dim], op.reducer.identity(term.dtype)
    count = -(-length // size)
    outer, inner = term.shape[:dim], term.shape[dim + 1 :]
    after = [0] * term.ndim
    after[dim] = count * size - length
    padded = views.pad(term, [0] * term.ndim, after, identity)
    inside = views.reshape(padded, (*outer, count, size, *inner))
    scanned = reduce_triangle(name, inside, dim + 1, backwards)
    last = 0 if backwards else size - 1
    totals = views.reshape(
        views.slice_dimension(scanned, dim + 1, last, 1), (*outer, count, *inner)
    )
    others = again(reduce_triangle(name, totals, dim, backwards))
    before = [0] * term.ndim
    before[dim] = -1 if backwards else 1
    shifted = views.pad(others, before, [-width for width in before], identity)
    around = views.reshape(shifted, (*outer, count, 1, *inner))
    whole = views.reshape(apply(op.reducer.combine, around, scanned), padded.shape)
    return _placed(views.slice_dimension(whole, dim, 0, length), node, triangle)


def _scanned(node: Node, triangle: Triangle) -> tuple[Node, int]:
    """What a triangle scans, without the axis of the result, and the dimension along which.

    It is the diagonal of what the node reduces, where no element is left out.
    """
    source = node.inputs[0]
    own = [k for k in range(source.ndim) if k != triangle.kept]
    shape = tuple(source.shape[k] for k in own)
    axes = dict(zip(own, IndexMap.axes(shape)))
    axes[triangle.kept] = axes[triangle.reduced]
    index_map = IndexMap(shape, [axes[k] for k in range(source.ndim)])
    return _at(source, index_map), own.index(triangle.reduced)


def _at(source: Node, index_map: IndexMap) -> Node:
    """The elements of a value without a buffer at some places."""
    if not isinstance(source.op, Elementwise):
        return reindex(source, index_map)
    inputs = tuple(_at(x, index_map) for x in source.inputs)
    return Node(source.op, inputs, index_map.domain, source.dtype)


def _placed(scanned: Node, node: Node, triangle: Triangle) -> Node:
    """A scan with its dimensions where the reduction has them."""
    op = node.op
    assert isinstance(op, Reduce)
    box, axes = IndexMap.axes(op.map.domain), IndexMap.axes(node.shape)
    own = [k for k in range(len(box)) if k != triangle.kept]
    wanted = (box[triangle.kept if k == triangle.reduced else k] for k in own)
    places = [
        index_expr.constant(0) if axis.is_constant else axes[op.map.indices.index(axis)]
        for axis in wanted
    ]
    return reindex(scanned, IndexMap(node.shape, places))
