"""Index-set splitting: a map that chooses by position becomes one map per stretch of positions.

`where(position < b, left, right)` is how concatenation looks in meta-operators. Over a stretch of
positions on one side of every bound the choice is known, so each piece reads only what it needs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.kernel import Kernel
from metaop.reindex.meta_op import Reindex, reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.index_expr import Axis
from metaop.unified_graph.node import Constant, Index, Node, constant

# Stretches shorter than this, in elements, are cheaper chosen lane by lane.
_SHORTEST = 16

HasBuffer = Callable[[Node], bool]


@dataclass(frozen=True)
class Piece:
    """The part of a root behind `start` along `dim`, as a node of its own."""

    node: Node
    dim: int
    start: int


def pieces_of(kernel: Kernel, has_buffer: HasBuffer) -> list[Piece]:
    """The pieces of a kernel's only root; empty when there is nothing to gain."""
    if kernel.reduced or len(kernel.roots) != 1:
        return []
    root = kernel.roots[0]
    bounds: dict[int, set[int]] = {}
    for dim, bound in _choices(root, has_buffer):
        if 0 < bound < root.shape[dim]:
            bounds.setdefault(dim, set()).add(bound)
    if not bounds:
        return []
    dim = max(bounds, key=lambda k: len(bounds[k]))
    cuts = [0, *sorted(bounds[dim]), root.shape[dim]]
    inner = math.prod(root.shape[dim + 1 :])
    if min(stop - start for start, stop in itertools.pairwise(cuts)) * inner < _SHORTEST:
        return []
    return [
        Piece(_stretch(root, dim, start, stop, has_buffer), dim, start)
        for start, stop in itertools.pairwise(cuts)
    ]


def _choices(root: Node, has_buffer: HasBuffer) -> Iterator[tuple[int, int]]:
    """The axes and bounds of the comparisons `position < bound` that choose between branches."""
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen or (node is not root and has_buffer(node)):
            continue
        seen.add(node)
        if isinstance(node.op, Elementwise):
            stack.extend(node.inputs)
            if node.op.function.name == "lt":
                position, bound = node.inputs
                if isinstance(position.op, Index) and isinstance(bound.op, Constant):
                    terms = position.op.expr.terms
                    if len(terms) == 1 and isinstance(terms[0][0], Axis) and terms[0][1] == 1:
                        limit = int(bound.op.value(bound.dtype)) - position.op.expr.constant
                        yield int(terms[0][0].name), limit


def _stretch(root: Node, dim: int, start: int, stop: int, has_buffer: HasBuffer) -> Node:
    shape = (*root.shape[:dim], stop - start, *root.shape[dim + 1 :])
    indices = list(IndexMap.axes(shape))
    indices[dim] = indices[dim] + start
    index_map = IndexMap(shape, indices)
    piece = restrict(root, index_map, lambda node: node is not root and has_buffer(node))
    if has_buffer(piece):
        # The whole of a buffer is copied, not computed once more by the operator that made it.
        whole = IndexMap.identity(piece.shape)
        return Node(Reindex(whole, 0), (piece,), piece.shape, piece.dtype)
    return piece


def restrict(node: Node, index_map: IndexMap, has_buffer: HasBuffer) -> Node:
    """`node` read through an unguarded map, which is pushed through elementwise nodes.

    Comparisons of positions that the map decides become constants, and choices by them become
    the branch that is taken.
    """
    memo: dict[Node, Node] = {}

    def push(current: Node) -> Node:
        found = memo.get(current)
        if found is None:
            found = memo[current] = _push(current)
        return found

    def _push(current: Node) -> Node:
        op = current.op
        if isinstance(op, Elementwise) and not has_buffer(current):
            if op.function.name == "where":
                condition = push(current.inputs[0])
                if isinstance(condition.op, Constant):
                    taken = 1 if condition.op.value(condition.dtype) else 2
                    return push(current.inputs[taken])
            inputs = [push(source) for source in current.inputs]
            return _decided(Node(op, inputs, index_map.domain, current.dtype))
        if isinstance(op, Reindex) and not has_buffer(current):
            return reindex(
                current.inputs[0],
                op.map.after(index_map),
                op.fill,
                current.inputs[1:],
            )
        return reindex(current, index_map)

    return push(node)


def _decided(node: Node) -> Node:
    """A comparison whose outcome the range of the position decides, as a constant."""
    op = node.op
    assert isinstance(op, Elementwise)
    if op.function.name != "lt":
        return node
    position, bound = node.inputs
    if not (isinstance(position.op, Index) and isinstance(bound.op, Constant)):
        return node
    limit = bound.op.value(bound.dtype)
    if position.op.expr.high < limit:
        return constant(True, dtypes.bool_, node.shape)
    if position.op.expr.low >= limit:
        return constant(False, dtypes.bool_, node.shape)
    return node
