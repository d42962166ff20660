"""Gradients of which only the rows that were looked up are kept.

The transposition of a lookup is a sum: rows are added up where the index operands say. Such a sum
costs as much as the table. Left undone it is the pair of its operands: places, and rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from metaop.elementwise.meta_op import cast
from metaop.reduce.meta_op import Reduce, reduce_with_map
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import concatenate, reshape
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_atoms import Lookup
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Constant, Node, Shape, constant, index_node
from metaop.unified_graph.recording import Call, part, record
from metaop.unified_graph.tensor_type import TensorType


class Unsummed(NamedTuple):
    """A gradient of `type`: `values` (count, …) that add up at `places` (dimensions, count)."""

    places: Call
    values: Call
    type: TensorType

    def joined(self, other: Unsummed) -> Unsummed:
        """The sum of two gradients, the rows of the other behind these."""
        rows = record(joined_rows, (self.places, self.values, other.places, other.values))
        return Unsummed(rows, part(rows, 1), self.type)

    def fits(self, other: Unsummed) -> bool:
        """Whether the rows of both have as many dimensions."""
        return self.places.type.shape[0] == other.places.type.shape[0]


def summed(gradient: Call | Unsummed) -> Call:
    """A gradient as one value."""
    if isinstance(gradient, Call):
        return gradient
    return record(sum_of_rows, (gradient.places, gradient.values), (gradient.type.shape,))


@composite
def sum_of_rows(places: Node, values: Node, shape: Shape) -> Node:
    """A tensor of `shape` in which `values` (count, …) are added up at `places` (dims, count)."""
    axes = IndexMap.axes(values.shape)
    index = [
        index_expr.lookup(1, (index_expr.constant(dim), axes[0]), shape[dim])
        for dim in range(places.shape[0])
    ]
    index_map = IndexMap(values.shape, [*index, *axes[1:]])
    return reduce_with_map("add", values, index_map, shape, (places,))


@composite
def joined_rows(
    places: Node, values: Node, more_places: Node, more_values: Node
) -> tuple[Node, Node]:
    """Two lists of places and values as one."""
    return concatenate([places, more_places], 1), concatenate([values, more_values], 0)


def rows_of(gradient: Node) -> tuple[Node, Node] | None:
    """The places (dimensions, count) and values (count, …) whose sum a gradient is.

    None for a gradient that is no such sum: it has no form but the dense one.
    """
    op = gradient.op
    if isinstance(op, Constant):  # nothing was looked up
        values = constant(0, gradient.dtype, (0, *gradient.shape[1:]))
        return constant(0, dtypes.int64, (1, 0)), values
    if not isinstance(op, Reduce) or op.reducer.name != "add" or op.map.is_guarded:
        return None
    values, *operands = gradient.inputs
    dense = _dense_dimensions(op.map, gradient.shape)
    outer = values.shape[: values.ndim - dense]
    count = math.prod(outer)
    places = []
    for expr in op.map.indices[: gradient.ndim - dense]:
        place = _place(expr, outer, operands)
        if place is None:
            return None
        places.append(reshape(place, (1, count)))
    return concatenate(places, 0), reshape(values, (count, *values.shape[len(outer) :]))


def _dense_dimensions(index_map: IndexMap, shape: Shape) -> int:
    """How many dimensions at the end are written as they are read; never all."""
    axes, indices = IndexMap.axes(index_map.domain), index_map.indices
    count = 0
    while count < min(len(axes), len(shape) - 1):
        place = -1 - count
        if indices[place] != axes[place] or index_map.domain[place] != shape[place]:
            break
        own = set(axes[place].atoms())
        if any(own.intersection(expr.atoms()) for expr in indices[:place]):
            break
        count += 1
    return count


def _place(expr: IndexExpr, outer: Shape, operands: Sequence[Node]) -> Node | None:
    """The index `expr` at every point of `outer`, if it is one lookup or none at all."""
    lookups = [atom for atom in expr.atoms() if isinstance(atom, Lookup)]
    if not lookups:
        return index_node(expr, outer)
    if len(lookups) > 1 or expr != index_expr.of(lookups[0]):
        return None
    (atom,) = lookups
    return cast(reindex(operands[atom.operand - 1], IndexMap(outer, atom.indices)), dtypes.int64)
