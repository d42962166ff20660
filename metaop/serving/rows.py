"""Determines which axis of a program's tensors holds independent rows.

Requests may be joined along an axis only if each row of the results depends only on the same row of
the inputs, in the same way for every position and every number of rows. The index maps of the graph
prove that, with a symbol for the number of rows. Along an axis of `rows * block` elements, those of
row r are `r * block + k`; a map that reads one of them must have exactly this form for the row that
it writes, and no other index, guard or number may depend on r or on the count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from metaop.elementwise.meta_op import Elementwise
from metaop.export.graph_reader import GraphReader
from metaop.export.numbers import Numbers
from metaop.export.program import Program, Size
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.reindex.order import Order
from metaop.serialization.damage import Damage
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.index_atoms import Atom, Axis, Lookup, Quotient, Remainder
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import Constant, Index, Input, Node, Shape, topological
from metaop.unified_graph.shape_env import ShapeEnv
from metaop.unified_graph.symbolic import NotGeneralError, is_symbolic


class Place(NamedTuple):
    """Where the rows of a tensor are: row r is `r * block … (r + 1) * block` of an axis."""

    axis: int
    block: int


class Rows(NamedTuple):
    """The size that counts rows, and where they are in each input and output (None: nowhere)."""

    size: str
    inputs: tuple[Place | None, ...]
    outputs: tuple[Place | None, ...]


class DependentError(Exception):
    """Raised if rows depend on each other, on their position or on their number; says where."""


def rows_of(program: Program, size: Size, others: Mapping[str, int]) -> Rows:
    """The rows of a program that are counted by `size`, where the other sizes are `others`.

    Raises DependentError if the graph does not show that rows are independent.
    """
    env = ShapeEnv()
    symbol = env.symbol(max(size.example // size.multiple, 2))
    count = symbol * size.multiple
    try:
        inputs, outputs = _nodes(program, {**others, size.name: count})
        proof = Proof(count)
        for node in topological(outputs):
            proof.check(node)
        found = [tuple(proof.place(node.shape) for node in nodes) for nodes in (inputs, outputs)]
    except (Damage, NotGeneralError) as reason:
        raise DependentError(str(reason)) from None
    if env.guards or env.pins:
        raise DependentError(f"the graph depends on the number of rows: {[*env.guards, *env.pins]}")
    if not any(found[0]) or not any(found[1]):
        raise DependentError(f"no input or no output has the axis {size.name!r}")
    return Rows(size.name, *found)


def _nodes(program: Program, sizes: Mapping[str, Any]) -> tuple[list[Node], list[Node]]:
    """The nodes of the inputs and outputs, without guards, which do not involve rows."""
    content = program.content
    numbers = Numbers(content["numbers"], sizes)
    inputs, weights = program.placeholders(numbers)
    reader = GraphReader(numbers, inputs, weights)
    return inputs, reader.read(content["nodes"], [one["node"] for one in content["outputs"]])


class Proof:
    """The rules, one per kind of node; all sizes except the row count are plain integers."""

    def __init__(self, count: Any) -> None:
        self._count = count
        self._row = Axis("row", count)

    def place(self, shape: Shape) -> Place | None:
        """Where the rows of a tensor are."""
        found = None
        for axis, extent in enumerate(shape):
            if not is_symbolic(extent):
                continue
            block, rest = divmod(extent, self._count)
            if found or type(block) is not int or type(rest) is not int or rest:
                raise DependentError(f"a tensor has the shape {list(shape)}")
            found = Place(axis, block)
        return found

    def check(self, node: Node) -> None:
        """Raises DependentError unless a node maps rows to rows."""
        op, place = node.op, self.place(node.shape)
        if isinstance(op, (Input, Elementwise)):
            return
        if isinstance(op, Constant):
            self._require(not op.is_symbolic, node)
        elif isinstance(op, Index):
            moved = _Substitution(self, place, node)
            self._require(self._is_local(moved.of(op.expr)), node)
        elif isinstance(op, Reindex):
            self._map(node, op.map, place, node.inputs[0].shape)
        elif isinstance(op, Reduce):
            source = self.place(node.inputs[0].shape)
            self._require((source is None) == (place is None) and not op.is_sorted, node)
            self._map(node, op.map, source, node.shape)
        elif isinstance(op, Loop):
            # Its steps compute rows of rows, one after another; how many there are is no matter of
            # rows, nor is what ends it, which is a single value.
            self._require(not is_symbolic(op.definition.length), node)
            roots = [*op.definition.carried, *([] if op.stacked is None else [op.stacked])]
            for inner in topological(roots):
                self.check(inner)
        else:
            is_sorted_across = place is not None and place.axis == len(node.shape) - 1
            self._require(isinstance(op, Order) and not is_sorted_across, node)

    def _map(self, node: Node, index_map: IndexMap, domain: Place | None, target: Shape) -> None:
        """Checks a map over a box whose rows are at `domain` into a tensor of a shape."""
        moved = _Substitution(self, domain, node)
        self.check_indices([moved.of(one) for one in index_map.indices], target, node)
        for guard in index_map.guards:
            bound = guard.extent if isinstance(guard, Within) else guard.divisor
            is_plain = not is_symbolic(bound)
            self._require(is_plain and self._is_local(moved.of(guard.expr)), node)

    def check_indices(self, indices: Sequence[IndexExpr], shape: Shape, node: Node) -> None:
        """Checks that an element of a tensor belongs to the current row, if the tensor has rows."""
        place = self.place(shape)
        for axis, index in enumerate(indices):
            if place is not None and axis == place.axis:
                self._require(index // place.block is index_expr.of(self._row), node)
                index = index % place.block
            self._require(self._is_local(index), node)

    def element(self, place: Place) -> IndexExpr:
        """The index of an element of the current row along an axis of rows."""
        return index_expr.of(self._row) * place.block + index_expr.axis("element", place.block)

    def _is_local(self, expr: IndexExpr) -> bool:
        """Whether an expression depends neither on the row nor on the number of rows."""
        if is_symbolic(expr.constant):
            return False
        return all(
            not is_symbolic(factor) and self._is_local_atom(atom) for atom, factor in expr.terms
        )

    def _is_local_atom(self, atom: Atom) -> bool:
        if isinstance(atom, (Quotient, Remainder)):
            return not is_symbolic(atom.divisor) and self._is_local(atom.dividend)
        return atom is not self._row and not is_symbolic(atom.high)

    def _require(self, holds: bool, node: Node) -> None:
        if not holds:
            raise DependentError(f"rows are not independent in {node!r}")


class _Substitution:
    """Rewrites expressions over a box as expressions over the elements of one of its rows.

    An element of an index operand that is shown to belong to the row is treated as any number.
    """

    def __init__(self, proof: Proof, place: Place | None, node: Node) -> None:
        self._proof, self._place, self._node = proof, place, node
        self._memo: dict[Atom, IndexExpr] = {}

    def of(self, expr: IndexExpr) -> IndexExpr:
        """The expression over the elements of a row."""
        return index_expr.substitute(expr, self._replaced, self._memo)

    def _replaced(self, atom: Atom) -> IndexExpr | None:
        if isinstance(atom, Axis) and self._place is not None and atom.name == self._place.axis:
            return self._proof.element(self._place)
        if isinstance(atom, Lookup):
            inside = [self.of(one) for one in atom.indices]
            self._proof.check_indices(inside, self._node.inputs[atom.operand].shape, self._node)
            return index_expr.symbol(f"element {len(self._memo)}", 0, atom.bound - 1)
        return None
