"""Graphs of meta-operators as plain data: one record for each node, in the order of their use.

A record has `op`, the numbers of its operand nodes in `in`, `shape`, `dtype`, and the fields of its
operator. The domain of a map is the shape of a reindex's result, or of a reduce's first operand. An
index expression is `[constant, [factor, atom], …]`, or only its constant. An atom is
`["axis", k]`, `["//", expression, divisor]`, `["%", expression, divisor]`, or `["at", operand,
[expression, …], bound]`, an element of an index operand. A `loop` is no value, but has results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from metaop.elementwise.meta_op import Elementwise
from metaop.errors import ExportError
from metaop.export.numbers import NumberWriter
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.reindex.order import Order
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.code import Code
from metaop.unified_graph.index_atoms import Atom, Axis, Lookup, Quotient, Remainder
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.loop import Body, Loop, body_inputs
from metaop.unified_graph.node import Constant, Index, Input, Node, topological
from metaop.unified_graph.symbolic import SymFloat


class GraphWriter:
    """Writes nodes. `sources` has the record of each input node, by its slot."""

    def __init__(self, numbers: NumberWriter, sources: Sequence[dict[str, Any]]) -> None:
        self.records: list[dict[str, Any]] = []
        self._numbers, self._sources = numbers, sources
        self._positions: dict[Node, int] = {}
        self._loops: dict[tuple[Body, tuple[Node, ...]], _Loop] = {}

    def write(self, outputs: Sequence[Node]) -> list[int]:
        """Appends all nodes that the outputs need; returns the positions of the outputs."""
        for node in topological(outputs):
            if node not in self._positions:
                self.append(node, self._record(node))
        return [self._positions[node] for node in outputs]

    def append(self, node: Node, record: dict[str, Any]) -> int:
        """Appends the record of a node; returns its position."""
        self._positions[node] = len(self.records)
        self.records.append(record)
        return len(self.records) - 1

    def _record(self, node: Node) -> dict[str, Any]:
        op = node.op
        if isinstance(op, Input):
            return self._sources[op.slot]
        common = {"dtype": node.dtype.name, "shape": self._integers(node.shape)}
        if isinstance(op, Loop):
            loop = self._loop(op.definition, node.inputs)
            number = op.number if op.stacked is None else loop.number_of(op.stacked)
            return {"op": "result", "of": loop.position, "number": number, **common}
        inputs = {"in": [self._positions[source] for source in node.inputs]}
        if isinstance(op, Constant):
            if isinstance(op.bits, SymFloat):
                return {"op": "number", **common, "value": self._numbers.reference(op.bits)}
            return {"op": "constant", **common, "bits": op.bits.hex()}
        if isinstance(op, Index):
            return {"op": "index", **common, "value": self._expression(op.expr)}
        if isinstance(op, Elementwise):
            return {"op": "elementwise", "function": op.function.name, **inputs, **common}
        if isinstance(op, Reindex):
            fill = {"fill": written_scalar(op.fill)} if op.map.is_guarded else {}
            return {"op": "reindex", **inputs, **common, **self._map(op.map), **fill}
        if isinstance(op, Reduce):
            reducer = {"reducer": op.reducer.name}
            inputs["in"] = inputs["in"][: 1 + len(op.index_operands(node))]
            return {"op": "reduce", **reducer, **inputs, **common, **self._map(op.map)}
        if isinstance(op, Order):
            return {"op": "order", **inputs, **common}
        if isinstance(op, Code):
            raise ExportError(
                f"{op.definition.name} is a custom kernel: its code is Python, not data",
                fix="write it with operators to export it",
            )
        raise ExportError(f"a {op.name} node has no form in a file")

    def _loop(self, body: Body, operands: tuple[Node, ...]) -> _Loop:
        """The loop that runs a body on operands, whose record is appended at its first result."""
        known = self._loops.get((body, operands))
        if known is None:
            inputs = body_inputs(operands, len(body.carried), body.sliced)
            sources = [{"op": "input", "number": number} for number in range(len(inputs))]
            step = GraphWriter(self._numbers, sources)
            record = {
                "op": "loop",
                "in": [self._positions[source] for source in operands],
                "sliced": list(body.sliced),
                "length": self._numbers.reference(body.length),
                "reverse": body.reverse,
                "guarded": body.guarded,
                "recompute": body.recompute,
                "carried": step.write(body.carried),
                "stacked": [],
                "nodes": step.records,
            }
            known = self._loops[body, operands] = _Loop(len(self.records), record, step)
            self.records.append(record)
        return known

    def _integers(self, values: Sequence[Any]) -> list[Any]:
        return [self._numbers.reference(value) for value in values]

    def _map(self, index_map: IndexMap) -> dict[str, Any]:
        found: dict[str, Any] = {"map": [self._expression(expr) for expr in index_map.indices]}
        if index_map.guards:
            found["where"] = [
                [
                    "within" if isinstance(guard, Within) else "divisible",
                    self._expression(guard.expr),
                    self._numbers.reference(guard[1]),
                ]
                for guard in index_map.guards
            ]
        return {**found, "never": True} if index_map.never else found

    def _expression(self, expr: IndexExpr) -> Any:
        constant = self._numbers.reference(expr.constant)
        if not expr.terms:
            return constant
        terms = [[self._numbers.reference(c), self._atom(atom)] for atom, c in expr.terms]
        return [constant, *terms]

    def _atom(self, atom: Atom) -> list[Any]:
        if isinstance(atom, Axis) and isinstance(atom.name, int):
            return ["axis", atom.name]
        if isinstance(atom, (Quotient, Remainder)):
            name = "//" if isinstance(atom, Quotient) else "%"
            divisor = self._numbers.reference(atom.divisor)
            return [name, self._expression(atom.dividend), divisor]
        if isinstance(atom, Lookup):
            indices = [self._expression(expr) for expr in atom.indices]
            return ["at", atom.operand, indices, self._numbers.reference(atom.bound)]
        raise ExportError(f"{atom} is known only where a program runs on several ranks")


class _Loop(NamedTuple):
    """The record of a loop, where it stands, and what writes the graph of its step."""

    position: int
    record: dict[str, Any]
    step: GraphWriter

    def number_of(self, value: Node) -> int:
        """The number of the result that has a value of all steps; carried ones come first."""
        (position,) = self.step.write([value])
        stacked = self.record["stacked"]
        if position not in stacked:
            stacked.append(position)
        return len(self.record["carried"]) + int(stacked.index(position))


def written_scalar(value: Any) -> Any:
    """A number for JSON, which has no infinities."""
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return {"float": repr(value)}
    return value
