"""Index-set splitting: a map that selects by position becomes one map per range of positions.

In meta-operators, a concatenation is `where(position < b, left, right)`. In a range of positions
on one side of every bound the branch is known, so each piece reads only what it needs. A piece
that has a value of its own is computed in place within the whole, so nothing is copied.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import is_expensive
from metaop.fusion.kernel import Indices, reduced_axes
from metaop.fusion.storage import Part
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex, reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Constant, Index, Input, Node, Shape
from metaop.unified_graph.symbolic import hint_of, surely_equal, surely_less

# Ranges with fewer elements than this are cheaper to select lane by lane.
SHORTEST_PIECE = 16
# An element of a short range takes as long as this many, and a launch as long as so many; of those
# that are chosen lane by lane, so many take as long as one.
_APART, _LAUNCH, _TOGETHER = 2, 4096, 8
# Unless they take this many expensive functions, most of which are for a single range.
_MANY_EXPENSIVE = 4

HasBuffer = Callable[[Node], bool]


class IndexRange(NamedTuple):
    """The positions `start … stop - 1` of dimension `dim`."""

    dim: int
    start: int
    stop: int


def choices(nodes: Sequence[Node]) -> dict[Node, None]:
    """The nodes that select between two others by position, without inner ones of long selects."""
    bounds = {node: _bound(node) for node in nodes}
    inner = {
        node.inputs[2]
        for node, bound in bounds.items()
        if bound is not None and _dim_of(bounds[node.inputs[2]]) == bound[0]
    }
    return {node: None for node, bound in bounds.items() if bound is not None and node not in inner}


def _dim_of(bound: tuple[int, int] | None) -> int | None:
    return None if bound is None else bound[0]


def _bound(node: Node) -> tuple[int, int] | None:
    """The dimension and the position below which a select takes its first branch."""
    if not (isinstance(node.op, Elementwise) and node.op.function.name == "where"):
        return None
    return _compared(node.inputs[0])


def _compared(condition: Node) -> tuple[int, int] | None:
    """The dimension `d` and bound `b` of a comparison `position along d < b`."""
    if not (isinstance(condition.op, Elementwise) and condition.op.function.name == "lt"):
        return None
    position, bound = condition.inputs
    if not isinstance(position.op, Index):
        return None
    expr, limit = position.op.expr, _number(bound)
    if len(expr.terms) != 1 or not isinstance(expr.terms[0][0], Axis) or expr.terms[0][1] != 1:
        return None
    return None if limit is None else (int(expr.terms[0][0].name), limit - expr.constant)


def _number(node: Node) -> int | None:
    """The integer that a node consists of, which may be symbolic."""
    if isinstance(node.op, Constant):
        return None if node.op.is_symbolic else int(node.op.value(node.dtype))
    if isinstance(node.op, Index) and node.op.expr.is_constant:
        return node.op.expr.constant
    return None


def index_ranges(choice: Node) -> list[tuple[IndexRange, Node]]:
    """The ranges of a select along its dimension, each with the node that it selects there."""
    found: list[tuple[IndexRange, Node]] = []
    first = _bound(choice)
    assert first is not None
    dim, start = first[0], 0
    while (
        (bound := _bound(choice)) is not None and bound[0] == dim and surely_less(start, bound[1])
    ):
        found.append((IndexRange(dim, start, bound[1]), choice.inputs[1]))
        choice, start = choice.inputs[2], bound[1]
    found.append((IndexRange(dim, start, choice.shape[dim]), choice))
    return found


def inner_selects(choice: Node) -> list[Node]:
    """The selects inside a long one that decide between its later ranges."""
    dim = index_ranges(choice)[0][0].dim
    found = []
    while _dim_of(_bound(choice.inputs[2])) == dim:
        choice = choice.inputs[2]
        found.append(choice)
    return found


def pieces_of(root: Node, has_buffer: HasBuffer) -> list[tuple[IndexRange, Node]]:
    """The pieces of a node that is computed into a buffer; empty if splitting does not pay.

    Each is a node with the range of the root that it computes.
    """
    return [(span, _restricted(root, span, has_buffer)) for span in cuts_of(root, has_buffer)]


def cuts_of(root: Node, has_buffer: HasBuffer) -> list[IndexRange]:
    """The ranges into which the selects of a root split one of its dimensions."""
    bounds: dict[int, set[int]] = {}
    for dim, bound in _comparisons(root, has_buffer):
        if surely_less(0, bound) and surely_less(bound, root.shape[dim]):
            bounds.setdefault(dim, set()).add(bound)
    for dim in sorted(bounds, key=lambda k: -len(bounds[k])):
        ends = [0, *sorted(bounds[dim], key=hint_of), root.shape[dim]]
        found = [IndexRange(dim, start, stop) for start, stop in itertools.pairwise(ends)]
        if not all(surely_less(start, stop) for _, start, stop in found):
            continue
        if _pays(root, found) or saves_much(root, found, has_buffer):
            return found
    return []


def _pays(root: Node, spans: Sequence[IndexRange]) -> bool:
    """Whether ranges are long, or few of their elements are in short ones.

    Lane by lane, every vector reads what each range has. Elements of short ranges are written one
    by one, as those at the sides of an image that reflection pads.
    """
    inner = hint_of(math.prod(root.shape[spans[0].dim + 1 :]))
    widths = [hint_of(span.stop - span.start) for span in spans]
    short = sum(width for width in widths if width * inner < SHORTEST_PIECE)
    total = hint_of(root.size)
    apart = _APART * total * short // sum(widths) + _LAUNCH * len(spans)
    return not short or total * (len(spans) - 1) // _TOGETHER > apart


def saves_much(root: Node, spans: Sequence[IndexRange], has_buffer: HasBuffer) -> bool:
    """Whether most of a root's expensive functions are for one of its short ranges alone.

    Lane by lane, all of them would be computed for every element.
    """
    before = _expensive(root, has_buffer)
    if before < _MANY_EXPENSIVE:
        return False
    widths = [hint_of(span.stop - span.start) for span in spans]
    pieces = [_restricted(root, span, has_buffer) for span in spans]
    after = sum(w * _expensive(piece, has_buffer) for w, piece in zip(widths, pieces))
    return 2 * after <= before * sum(widths)


def _expensive(root: Node, has_buffer: HasBuffer) -> int:
    """The number of expensive functions that an element of a root takes."""
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in seen and (node is root or not has_buffer(node)):
            seen.add(node)
            stack.extend(node.inputs)
    return sum(map(is_expensive, seen))


def _comparisons(root: Node, has_buffer: HasBuffer) -> Iterator[tuple[int, int]]:
    """The dimensions and bounds of the comparisons of positions on which a root depends."""
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen or (node is not root and has_buffer(node)):
            continue
        seen.add(node)
        if isinstance(node.op, Elementwise):
            stack.extend(node.inputs)
            found = _compared(node)
            if found is not None:
                yield found


def _restricted(root: Node, span: IndexRange, has_buffer: HasBuffer) -> Node:
    """A range of `root`, pushed as a view through elementwise nodes without a buffer.

    Comparisons of positions that the range decides disappear, with the branch that they exclude.
    """
    dim, start, stop = span
    shape = (*root.shape[:dim], stop - start, *root.shape[dim + 1 :])
    indices = list(IndexMap.axes(shape))
    indices[dim] = indices[dim] + start
    index_map = IndexMap(shape, indices)
    memo: dict[Node, Node] = {}

    def push(node: Node) -> Node:
        node = chosen(node, index_map, lambda inner: inner is not root and has_buffer(inner))
        found = memo.get(node)
        if found is None:
            found = memo[node] = push_new(node)
        return found

    def push_new(node: Node) -> Node:
        op = node.op
        if has_buffer(node) and node is not root:
            return reindex(node, index_map)
        if isinstance(op, Elementwise):
            return Node(op, [push(source) for source in node.inputs], shape, node.dtype)
        if isinstance(op, Reindex):
            composed = op.map.after(index_map)
            return reindex(node.inputs[0], composed, op.fill, node.inputs[1:])
        return reindex(node, index_map)

    return push(root)


def chosen(node: Node, view: IndexMap, is_opaque: HasBuffer = lambda node: False) -> Node:
    """A view of a node that selects by position, reduced to the branch that it always reads.

    Selects that the view does not decide, and those in `opaque` nodes, stay.
    """
    while (bound := _bound(node)) is not None and not is_opaque(node):
        position = view.indices[bound[0]]
        if surely_less(position.high, bound[1]):
            node = node.inputs[1]
        elif surely_less(bound[1] - 1, position.low):
            node = node.inputs[2]
        else:
            break
    return node


def as_part(piece: Node, span: IndexRange, whole: Node, has_buffer: HasBuffer) -> tuple[Node, Part]:
    """The node that computes a piece of `whole`, and where its elements are in that.

    A piece that is another node with a buffer, or a view of all of it, is that node itself if it
    can be computed there, and otherwise a copy.
    """
    start = {span.dim: span.start}
    source, inverse = piece, IndexMap.axes(piece.shape)
    if not has_buffer(piece) and isinstance(piece.op, Reindex) and has_buffer(piece.inputs[0]):
        found = _inverse(piece.op.map, piece.inputs[0].shape)
        if found is not None and _can_move(piece.inputs[0]):
            source, inverse = piece.inputs[0], found
    elif has_buffer(piece) and not _can_move(piece):
        source = Node(Reindex(IndexMap.identity(piece.shape)), (piece,), piece.shape, piece.dtype)
    indices = [index + start.get(k, 0) for k, index in enumerate(inverse)]
    return source, Part(whole, IndexMap(source.shape, indices))


def as_reshaped(whole: Node, has_buffer: HasBuffer) -> tuple[Node, Part] | None:
    """The node with a buffer that has the elements of `whole` in the same order, and its place.

    It can be computed in the buffer of `whole`, so nothing is copied. None without such a node.
    """
    if not isinstance(whole.op, Reindex) or whole.op.map.is_guarded or not whole.size:
        return None
    (source, *_), places = whole.inputs, IndexMap.axes(whole.shape)
    offset = index_expr.linear_offset(whole.op.map.indices, source.shape)
    in_order = offset is index_expr.linear_offset(places, whole.shape)
    is_possible = in_order and has_buffer(source) and _can_move(source)
    if not (is_possible and surely_equal(source.size, whole.size)):
        return None
    position = index_expr.linear_offset(IndexMap.axes(source.shape), source.shape)
    inside = index_expr.unravel(position, whole.shape)
    return source, Part(whole, IndexMap(source.shape, inside))


def _can_move(node: Node) -> bool:
    """Whether a node can be computed within another buffer.

    Inputs, nodes with a kernel of their own, and scatters, which fill their buffer first, cannot.
    """
    if isinstance(node.op, Reduce):
        return reduced_axes(node) is not None
    return not (isinstance(node.op, Input) or node.op.is_alone)


def _inverse(view: IndexMap, shape: Shape) -> Indices | None:
    """The index in a view of each element of a tensor, if the view only permutes axes.

    Axes of extent 1 may be added or dropped.
    """
    if view.is_guarded or math.prod(view.domain) != math.prod(shape):
        return None
    positions: dict[IndexExpr, IndexExpr] = {}
    for k, index in enumerate(view.indices):
        if not index.is_constant:
            positions[index] = index_expr.axis(k, shape[k])
    axes = IndexMap.axes(view.domain)
    if any(not axis.is_constant and axis not in positions for axis in axes):
        return None
    return tuple(positions.get(axis, axis) for axis in axes)
