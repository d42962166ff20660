"""Where values matter: parts of contractions that a comparison of two positions makes superfluous.

Causal attention keeps the scores where the column is not behind the row. Outside, weights are zero,
so nothing need be summed; and nobody reads the scores, so none need be computed. Both follow from
the graph, for any mask that compares positions, and for gradients alike.

A region is a sum of positions, in the axes of a node: it holds where the sum is at least 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from metaop.elementwise.meta_op import Elementwise
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Constant, Index, Node

Regions = frozenset[IndexExpr]
_NONE: Regions = frozenset()
_COMPARISONS = frozenset(("le", "lt", "ge", "gt"))
# Where an operand is -inf, or zero, the results of these are too.
_KEEP_INFINITY = frozenset(("sub", "add", "cast"))
_KEEP_ZERO = frozenset(("mul", "neg", "cast"))


class Masks:
    """The regions of the nodes of a graph, in topological `order`.

    Nodes are visited one after the other, not recursively: graphs may be thousands of nodes deep.
    """

    def __init__(self, order: Sequence[Node], outputs: Iterable[Node]) -> None:
        self._outputs = set(outputs)
        self._readers: dict[Node, list[Node]] = {}
        # By node: its value, which depends on the position alone; where a comparison holds; outside
        # of which regions it is zero; is -inf; need not be known, so that zero may stand there.
        self._positions: dict[Node, IndexExpr] = {}
        self._allowed: dict[Node, Regions] = {}
        self._zero: dict[Node, Regions] = {}
        self._infinite: dict[Node, Regions] = {}
        self._unread: dict[Node, Regions] = {}
        if not any(_compares(node) for node in order):
            return
        for node in order:
            for source in node.inputs:
                self._readers.setdefault(source, []).append(node)
            self._visit(node)
        if self._allowed:
            for node in reversed(order):
                _note(self._unread, node, self._find_unread(node))

    def of_contraction(self, root: Node) -> tuple[IndexExpr, ...]:
        """The regions outside of which the products of a contraction need not be summed.

        They are in the axes of the box.
        """
        op = root.op
        assert isinstance(op, Reduce)
        unread = (_moved(one, op.map.indices) for one in self._unread.get(root, _NONE))
        found = {*self._zero.get(root.inputs[0], _NONE), *unread}
        return tuple(sorted(filter(_compares_two, found), key=repr))

    def _visit(self, node: Node) -> None:
        op = node.op
        if isinstance(op, (Index, Constant)):
            if (position := _position(node)) is not None:
                self._positions[node] = position
        elif isinstance(op, Reindex) and len(node.inputs) == 1 and not op.map.guards:
            (source,) = node.inputs
            if source in self._positions:
                self._positions[node] = _moved(self._positions[source], op.map.indices)
            for known in (self._allowed, self._zero, self._infinite):
                moved = (_moved(one, op.map.indices) for one in known.get(source, _NONE))
                _note(known, node, frozenset(moved))
        elif isinstance(op, Elementwise):
            self._visit_function(node, op.function.name)

    def _visit_function(self, node: Node, name: str) -> None:
        zeros = [self._zero.get(one, _NONE) for one in node.inputs]
        if name in ("add", "sub") and all(one in self._positions for one in node.inputs):
            first, second = (self._positions[one] for one in node.inputs)
            self._positions[node] = first + second if name == "add" else first - second
        if _compares(node) and all(one in self._positions for one in node.inputs):
            first, second = (self._positions[one] for one in node.inputs)
            distance = second - first if name[0] == "l" else first - second
            self._allowed[node] = frozenset((distance if name[1] == "e" else distance - 1,))
        elif name == "where":
            allowed = self._allowed.get(node.inputs[0], _NONE)
            chosen = allowed if _number(node.inputs[2]) == 0 else _NONE
            _note(self._zero, node, chosen | (zeros[1] & zeros[2]))
            if _number(node.inputs[2]) == -math.inf:
                _note(self._infinite, node, allowed)
        elif name == "exp" and self._is_softmax(node.inputs[0]):
            _note(self._zero, node, self._infinite.get(node.inputs[0], _NONE))
        elif name in _KEEP_ZERO:
            _note(self._zero, node, _NONE.union(*zeros))
        if name in _KEEP_INFINITY:
            _note(self._infinite, node, self._infinite.get(node.inputs[0], _NONE))

    def _find_unread(self, node: Node) -> Regions:
        readers = self._readers.get(node)
        if node in self._outputs or not readers:
            return _NONE
        return frozenset.intersection(*(self._unread_by(one, node) for one in readers))

    def _unread_by(self, reader: Node, node: Node) -> Regions:
        """The regions outside of which a reader does not need a node."""
        op = reader.op
        if not isinstance(op, Elementwise):
            return _NONE
        found = self._unread.get(reader, _NONE)
        if op.function.name == "where" and node not in (reader.inputs[0], reader.inputs[2]):
            found |= self._allowed.get(reader.inputs[0], _NONE)
        if op.function.name == "mul":
            others = (self._zero.get(one, _NONE) for one in reader.inputs if one is not node)
            found = found.union(*others)
        return found

    def _is_softmax(self, node: Node) -> bool:
        """Whether a node is the difference of a row and its maximum, which is -inf in no row.

        A row that is -inf as a whole has no zeros: its weights are NaN.
        """
        if not (isinstance(node.op, Elementwise) and node.op.function.name == "sub"):
            return False
        scores, largest = node.inputs
        if isinstance(largest.op, Reindex) and len(largest.inputs) == 1:
            largest = largest.inputs[0]
        op = largest.op
        if not (
            isinstance(op, Reduce) and op.reducer.name == "max" and largest.inputs[0] is scores
        ):
            return False
        kept = {axis for expr in op.map.indices for axis in _axes(expr)}
        return all(
            _compares_two(one) and _holds_somewhere(one, kept, scores.shape)
            for one in self._infinite.get(scores, _NONE)
        )


def _note(known: dict[Node, Regions], node: Node, regions: Regions) -> None:
    if regions:
        known[node] = regions


def _compares(node: Node) -> bool:
    return isinstance(node.op, Elementwise) and node.op.function.name in _COMPARISONS


def _number(node: Node) -> float | None:
    """The number that a node has in every element, if it is known."""
    op = node.op
    return op.value(node.dtype) if isinstance(op, Constant) and not op.is_symbolic else None


def _position(node: Node) -> IndexExpr | None:
    """The value of a source of numbers as an index, if it is one."""
    if isinstance(node.op, Index):
        return node.op.expr
    number = _number(node)
    is_whole = number is not None and node.dtype.kind == "int"
    return index_expr.constant(int(number)) if is_whole else None  # type: ignore[arg-type]


def _holds_somewhere(region: IndexExpr, kept: set[int], shape: Sequence[int]) -> bool:
    """Whether a region has an element for all indices of the kept axes."""

    def best(atom: object) -> IndexExpr | None:
        if not isinstance(atom, Axis) or atom.name in kept:
            return None
        rises = dict(region.terms).get(atom, 0) > 0
        return index_expr.constant(shape[int(atom.name)] - 1 if rises else 0)

    return bool(region.substitute(best).low >= 0)


def _compares_two(region: IndexExpr) -> bool:
    """Whether a region compares two axes of plain extents with each other."""
    plain = all(isinstance(atom, Axis) and type(atom.extent) is int for atom, _ in region.terms)
    steps = sorted(step for _, step in region.terms)
    return plain and steps == [-1, 1] and type(region.constant) is int


def _axes(expr: IndexExpr) -> set[int]:
    return {int(atom.name) for atom in expr.atoms() if isinstance(atom, Axis)}


def _moved(region: IndexExpr, indices: Sequence[IndexExpr]) -> IndexExpr:
    """A region in the axes of which `indices` are the axes of the region."""
    return region.substitute(lambda a: indices[int(a.name)] if isinstance(a, Axis) else None)
