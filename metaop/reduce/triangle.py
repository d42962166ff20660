"""Reductions over a triangle: every element combined with those before it.

Every machine scans them in its own way. In steps, which keep every partial result, n elements are
log2(n) combinations of the tensor with itself shifted (D. Hillis and G. Steele, "Data parallel
algorithms", 1986).
"""

from __future__ import annotations

from metaop.elementwise.meta_op import apply
from metaop.reduce.meta_op import Reduce, reduce_axes
from metaop.reduce.reducers import REDUCERS
from metaop.reindex import views
from metaop.reindex.meta_op import Reindex, reindex
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.node import Node, Scalar


def reduce_triangle(reducer: str, source: Node, dim: int, backwards: bool = False) -> Node:
    """Element `i` along `dim` combines the elements `j <= i`; `j >= i`, if `backwards`."""
    length = source.shape[dim]
    shape = (*source.shape[: dim + 1], length, *source.shape[dim + 1 :])
    axes = IndexMap.axes(shape)
    distance = axes[dim + 1] - axes[dim] if backwards else axes[dim] - axes[dim + 1]
    guards = [Within(distance, length)]
    index_map = IndexMap(shape, (*axes[:dim], *axes[dim + 1 :]), guards)
    identity = REDUCERS[reducer].identity(source.dtype)
    return reduce_axes(reducer, reindex(source, index_map, identity), [dim + 1])


def shifted(source: Node, dim: int, offset: int, fill: Scalar) -> Node:
    """`source` shifted by `offset` towards the end of `dim`, with `fill` at the start."""
    before = [0] * source.ndim
    before[dim] = offset
    return views.pad(source, before, [-width for width in before], fill)


def combined_in_steps(function: str, source: Node, dim: int, start: Scalar) -> Node:
    """Element `i` along `dim` combines the elements `j <= i`; `start` changes nothing."""
    offset = 1
    while offset < source.shape[dim]:
        source = apply(function, shifted(source, dim, offset, start), source)
        offset *= 2
    return source


def product_in_steps(node: Node) -> Node:
    """A running product in steps; any other node as it is."""
    if not (isinstance(node.op, Reduce) and node.op.reducer.name == "mul"):
        return node
    source = node.inputs[0]
    if isinstance(source.op, Reindex) and len(source.inputs) == 1:
        (scanned,) = source.inputs
        for dim in range(scanned.ndim):
            if scanned.shape == node.shape and node == reduce_triangle("mul", scanned, dim):
                return combined_in_steps("mul", scanned, dim, 1)
    return node
