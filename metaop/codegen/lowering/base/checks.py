"""Checks inside a kernel of values known only at run time: indices, and what functions refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import Guards
from metaop.elementwise.scalar_function import Refusal
from metaop.fusion.inline import map_at
from metaop.fusion.kernel import Indices
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.faults import INDEX_OUT_OF_RANGE
from metaop.unified_graph.index_expr import IndexExpr, Lookup
from metaop.unified_graph.node import Node

if TYPE_CHECKING:
    from metaop.codegen.lowering.base.values import Values

# A function from the value of the operand to the value to check.
Make = Callable[[ir.Expr], ir.Expr]


def checked_index(
    values: Values, operand: Node, atom: Lookup, inside: Indices, guards: Guards
) -> IndexExpr:
    """The value of an index operand, checked against its bound, as an index expression."""

    def as_index(value: ir.Expr) -> ir.Expr:
        if operand.dtype is dtypes.int64:
            return value
        return ir.Apply("cast", (value,), dtypes.int64, operand.dtype)

    kind = INDEX_OUT_OF_RANGE.number
    name = _checked(values, operand, inside, guards, atom.bound, kind, as_index)
    return index_expr.symbol(name, 0, atom.bound - 1)


def refuse(values: Values, operand: Node, refusal: Refusal, at: Indices, guards: Guards) -> None:
    """Stops the program at an element of an operand that a function refuses.

    An element that a view repeats is checked once, before the loops that repeat it.
    """
    while isinstance(operand.op, Reindex) and not values.buffers.is_read(operand):
        if operand.op.map.lookups():
            break
        targets, own = map_at(operand.op.map, at, lambda *_: index_expr.constant(0))
        if own:
            break
        operand, at = operand.inputs[0], targets

    def test(value: ir.Expr) -> ir.Expr:
        return ir.Apply(refusal.test, (value,), dtypes.bool_, operand.dtype)

    _checked(values, operand, at, guards, 1, refusal.kind.number, test)


def _checked(
    values: Values, operand: Node, at: Indices, guards: Guards, bound: int, kind: int, make: Make
) -> str:
    """The name of a checked value, which is bound once, where its operand is known."""
    marks = index_expr.constant(bound), index_expr.constant(kind)
    place = (operand, (*at, *marks), guards)
    for scope in reversed(values.scopes):
        found = scope.known.get(place)
        if isinstance(found, ir.Name):
            return found.name
    depth = values.depth_of(operand, at, guards)
    inner, values.scopes = values.scopes, values.scopes[: depth + 1]
    value = make(values.value(operand, at, guards))
    name = values.fresh("k")
    values.emit(ir.CheckedIndex(name, value, bound, kind, values.conditions(guards)))
    values.depth_of_name[name] = depth
    values.scopes[-1].known[place] = ir.Name(name, dtypes.int64)
    values.scopes = inner
    return name
