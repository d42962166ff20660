"""Exports calls without an ONNX operator as their meta-operators.

The templates of all recordings are traversed in parallel; numbers that differ are sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.elementwise.meta_op import Elementwise
from metaop.errors import UnsupportedError
from metaop.onnx.exporting import scalars
from metaop.onnx.exporting.loops import written_loop
from metaop.onnx.exporting.recordings import Together
from metaop.onnx.exporting.sizes import Sizes
from metaop.onnx.exporting.writer import Writer
from metaop.onnx.values import element_type
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.index_atoms import Axis, Lookup, Quotient, Remainder
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import Constant, Index, Node, topological

_REDUCERS = {
    "add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin",
    "amax": "ReduceMax", "amin": "ReduceMin",
}  # fmt: skip


def expanded(w: Writer, call: Together, inputs: Sequence[str]) -> list[str]:
    """Writes a call as its meta-operators; returns the names of its results."""
    signatures = [one.signature for one in call.calls if one.signature is not None]
    names = dict(zip(signatures[0].inputs, inputs))
    roots = [[*one.inputs, *one.outputs[: one.result_count]] for one in signatures]
    return Walk(w, call.sizes, names).values(roots)[len(inputs) :]


class Walk:
    """Names of the values of nodes, by the node in the first recording."""

    def __init__(self, w: Writer, sizes: Sizes, names: dict[Node, str]) -> None:
        self.w, self.sizes, self.names = w, sizes, names
        self._shapes: dict[Node, tuple[Any, ...]] = {}

    def values(self, roots: Sequence[Sequence[Node]]) -> list[str]:
        """Writes the graphs with these roots in each recording; returns the names of the roots."""
        graphs = [topological(nodes) for nodes in roots]
        if len({len(graph) for graph in graphs}) > 1:
            raise UnsupportedError(
                "an operator expands differently for other sizes of the dynamic axes",
                fix="remove the axis that it depends on from dynamic_axes",
            )
        rows = list(zip(*graphs))
        for nodes in rows:
            if nodes[0] in self.names:
                continue
            if isinstance(nodes[0].op, Loop):
                alike = [row for row in rows if _are_of_one_loop(row[0], nodes[0])]
                self.names.update(zip((row[0] for row in alike), written_loop(self, alike)))
            else:
                self.names[nodes[0]] = self.write(nodes)
        return [self.names[node] for node in roots[0]]

    def inside(self, names: dict[Node, str]) -> Walk:
        """A walk through a graph within this one, whose inputs have these names."""
        return Walk(self.w, self.sizes, names)

    def shape(self, nodes: Sequence[Node]) -> tuple[Any, ...]:
        """The shape of a node, with sizes."""
        if nodes[0] not in self._shapes:
            self._shapes[nodes[0]] = self.sizes.unified([tuple(node.shape) for node in nodes])
        return self._shapes[nodes[0]]

    def write(self, nodes: Sequence[Node]) -> str:
        """Writes a node."""
        node, op = nodes[0], nodes[0].op
        if any(type(other.op) is not type(op) for other in nodes):
            raise UnsupportedError(f"{node} differs for other sizes")
        if isinstance(op, Elementwise):
            return self._elementwise(node, op)
        if isinstance(op, Constant):
            return self._constant(nodes)
        if isinstance(op, Index):
            value = self._expression([other.op.expr for other in nodes], self.shape(nodes), [], [])  # type: ignore[attr-defined]
            return self._whole(value, self.shape(nodes))
        if isinstance(op, Reindex):
            return self._reindex(nodes)
        if isinstance(op, Reduce):
            return self._reduce(nodes)
        raise UnsupportedError(f"{op.name} cannot be written in ONNX")

    def _elementwise(self, node: Node, op: Elementwise) -> str:
        operands = [self.names[one] for one in node.inputs]
        if op.function.name == "cast":
            return self.w.cast(operands[0], node.inputs[0].dtype, node.dtype)
        dtype = node.inputs[-1].dtype
        return scalars.written(self.w, op.function.name, dtype, operands)

    def _constant(self, nodes: Sequence[Node]) -> str:
        values = [node.op.value(node.dtype) for node in nodes]  # type: ignore[attr-defined]
        node = nodes[0]
        if not all(value == values[0] or value != value for value in values):
            size = self.sizes.size([int(value) for value in values])
            whole = self.w.cast(self.w.size(size), dtypes.int64, node.dtype)
            return self._whole(whole, self.shape(nodes))
        return self._whole(self.w.number(values[0], node.dtype), self.shape(nodes))

    def _whole(self, name: str, shape: Sequence[Any]) -> str:
        return self.w.node("Expand", name, self.w.integers(list(shape))) if shape else name

    # --- index expressions ------------------------------------------------------------------

    def _expression(
        self,
        exprs: Sequence[IndexExpr],
        shape: Sequence[Any],
        operands: Sequence[str],
        operand_nodes: Sequence[Sequence[Node]],
    ) -> str:
        """The values of an index expression over axes of a shape, which broadcast to it."""
        first = exprs[0]
        if any(len(one.terms) != len(first.terms) for one in exprs):
            raise UnsupportedError("an index is another expression for other sizes")
        total: str | None = None
        for terms in zip(*(one.terms for one in exprs)):
            value = self._atom([atom for atom, _ in terms], shape, operands, operand_nodes)
            factor = self.sizes.unified([int(coefficient) for _, coefficient in terms])
            if factor != 1:
                value = self.w.node("Mul", value, self.w.size(factor))
            total = value if total is None else self.w.node("Add", total, value)
        constant = self.sizes.unified([int(one.constant) for one in exprs])
        if total is None:
            return self.w.size(constant)
        return total if constant == 0 else self.w.node("Add", total, self.w.size(constant))

    def _atom(
        self,
        atoms: Sequence[Any],
        shape: Sequence[Any],
        operands: Sequence[str],
        operand_nodes: Sequence[Sequence[Node]],
    ) -> str:
        w, atom = self.w, atoms[0]
        if any(type(other) is not type(atom) for other in atoms):
            raise UnsupportedError("an index is another expression for other sizes")
        if isinstance(atom, Axis):
            return self._axis(int(atom.name), shape)
        if isinstance(atom, (Quotient, Remainder)):
            inner = self._expression(
                [one.dividend for one in atoms], shape, operands, operand_nodes
            )
            divisor = w.size(self.sizes.unified([int(one.divisor) for one in atoms]))
            rest = w.node("Mod", inner, divisor)
            if isinstance(atom, Remainder):
                return rest
            return w.node("Div", w.node("Sub", inner, rest), divisor)
        if isinstance(atom, Lookup):
            source = operand_nodes[atom.operand]
            places = [
                self._expression([one.indices[k] for one in atoms], shape, operands, operand_nodes)
                for k in range(len(atom.indices))
            ]
            name = w.cast(operands[atom.operand], source[0].dtype, dtypes.int64)
            return self._read(name, self.shape(source), places)
        raise UnsupportedError(f"the index {atom!r} cannot be written in ONNX")

    def _axis(self, axis: int, shape: Sequence[Any]) -> str:
        """0, 1, 2 … along one axis of a shape."""
        w, extent = self.w, shape[axis]
        places = [-1 if k == axis else 1 for k in range(len(shape))]
        if isinstance(extent, int):
            return w.array(np.arange(extent, dtype=np.int64).reshape(places))
        zero, one = w.array(np.array(0, np.int64)), w.array(np.array(1, np.int64))
        run = w.node("Range", zero, w.squeeze(w.size(extent), [0]), one)
        return w.node("Reshape", run, w.integers(places))

    def _offset(self, places: Sequence[str], shape: Sequence[Any]) -> str:
        """The flat index of an element, from its position."""
        w = self.w
        total: str | None = None
        for place, extent in zip(places, shape):
            if total is not None and extent != 1:
                total = w.node("Mul", total, w.size(extent))
            total = place if total is None else w.node("Add", total, place)
        return total or w.size(0)

    def _read(self, name: str, shape: Sequence[Any], places: Sequence[str]) -> str:
        """The elements of a tensor at positions."""
        flat = self.w.node("Reshape", name, self.w.integers([-1]))
        return self.w.node("Gather", flat, self._offset(places, shape), axis=0)

    def _guards(self, maps: Sequence[IndexMap], shape: Sequence[Any], *operands: Any) -> str | None:
        """Where the guards of a map hold; None if they always do."""
        w = self.w
        found: str | None = None
        for guards in zip(*(one.guards for one in maps)):
            value = self._expression([guard.expr for guard in guards], shape, *operands)
            zero = w.size(0)
            if isinstance(guards[0], Within):
                extent = w.size(self.sizes.unified([int(guard.extent) for guard in guards]))
                above = w.node("GreaterOrEqual", value, zero)
                holds = w.node("And", above, w.node("Less", value, extent))
            else:
                divisor = w.size(self.sizes.unified([int(guard.divisor) for guard in guards]))
                holds = w.node("Equal", w.node("Mod", value, divisor), zero)
            found = holds if found is None else w.node("And", found, holds)
        return found

    def _places(
        self, nodes: Sequence[Node], shape: Sequence[Any], target: Sequence[Any]
    ) -> tuple[str, str | None]:
        """The offsets in the target of a node's map, and where its guards hold."""
        maps = [node.op.map for node in nodes]  # type: ignore[attr-defined]
        operand_nodes = list(zip(*(node.inputs for node in nodes)))
        operands = [self.names[one[0]] for one in operand_nodes]
        if len({len(one.guards) for one in maps}) > 1:
            raise UnsupportedError("an index has other guards for other sizes")
        mask = self._guards(maps, shape, operands, operand_nodes)
        places = [
            self._expression([one.indices[k] for one in maps], shape, operands, operand_nodes)
            for k in range(len(maps[0].indices))
        ]
        offset = self._offset(places, target)
        if mask is not None:
            offset = self.w.node("Where", mask, offset, self.w.size(0))
        return offset, mask

    def _reindex(self, nodes: Sequence[Node]) -> str:
        w, node = self.w, nodes[0]
        shape = self.shape(nodes)
        source = [one.inputs[0] for one in nodes]
        plain = self._broadcast(nodes, source)
        if plain is not None:
            return plain
        if node.op.map.never:  # type: ignore[attr-defined]
            return self._whole(w.number(node.op.fill, node.dtype), shape)  # type: ignore[attr-defined]
        offset, mask = self._places(nodes, shape, self.shape(source))
        flat = w.node("Reshape", self.names[source[0]], w.integers([-1]))
        found = w.node("Gather", flat, self._whole(offset, shape), axis=0)
        if mask is None:
            return w.reshape(found, shape)
        return w.node("Where", mask, found, w.number(node.op.fill, node.dtype))  # type: ignore[attr-defined]

    def _broadcast(self, nodes: Sequence[Node], source: Sequence[Node]) -> str | None:
        """Writes a map that only permutes, repeats and adds dimensions; None for other maps."""
        w, index_map = self.w, nodes[0].op.map  # type: ignore[attr-defined]
        if index_map.guards or index_map.never:
            return None
        axes: list[int | None] = []
        extents = self.shape(source)
        shape = self.shape(nodes)
        for k, expr in enumerate(index_map.indices):
            if not expr.terms and expr.constant == 0 and extents[k] == 1:
                axes.append(None)
                continue
            is_axis = len(expr.terms) == 1 and expr.constant == 0 and expr.terms[0][1] == 1
            if not is_axis or not isinstance(expr.terms[0][0], Axis):
                return None
            axis = int(expr.terms[0][0].name)
            if shape[axis] != extents[k] or axis in axes:
                return None
            axes.append(axis)
        name = w.squeeze(self.names[source[0]], [k for k, axis in enumerate(axes) if axis is None])
        kept = [axis for axis in axes if axis is not None]
        if kept != sorted(kept):
            name = w.node("Transpose", name, perm=[kept.index(axis) for axis in sorted(kept)])
        name = w.unsqueeze(name, [k for k in range(len(shape)) if k not in kept])
        is_whole = all(k in kept or shape[k] == 1 for k in range(len(shape)))
        return name if is_whole else self._whole(name, shape)

    def _reduce(self, nodes: Sequence[Node]) -> str:
        w, node = self.w, nodes[0]
        op: Any = node.op
        source = [one.inputs[0] for one in nodes]
        name, dtype = self.names[source[0]], node.dtype
        plain = self._over_axes(op, name, dtype, self.shape(nodes), self.shape(source))
        if plain is not None:
            return plain
        if op.reducer.name in ("and", "or"):
            raise UnsupportedError("a scatter of bools cannot be written in ONNX")
        domain, shape = self.shape(source), self.shape(nodes)
        offset, mask = self._places(nodes, domain, shape)
        identity = op.reducer.identity(dtype)
        if mask is not None:
            name = w.node("Where", mask, name, w.number(identity, dtype))
        minus = w.integers([-1])
        total = w.node("ReduceProd", w.integers(list(shape)), keepdims=1) if shape else w.size(1)
        start = w.node("Expand", w.number(identity, dtype), total)
        reduction = {"add": "add", "mul": "mul"}.get(op.reducer.name) or (
            "max" if op.reducer.combine == "maximum" else "min"
        )
        flat = w.node("Reshape", self._whole(offset, domain), minus)
        values = w.node("Reshape", name, minus)
        found = w.node("ScatterElements", start, flat, values, axis=0, reduction=reduction)
        return w.reshape(found, shape)

    def _over_axes(
        self, op: Any, name: str, dtype: Any, shape: Sequence[Any], domain: Sequence[Any]
    ) -> str | None:
        """Writes a reduction over whole axes; None for others."""
        w, kept = self.w, []
        if op.map.guards or op.map.never:
            return None
        for expr in op.map.indices:
            if not expr.terms and expr.constant == 0:
                continue
            if len(expr.terms) != 1 or expr.constant or expr.terms[0][1] != 1:
                return None
            if not isinstance(expr.terms[0][0], Axis):
                return None
            kept.append(int(expr.terms[0][0].name))
        sizes = [extent for extent in shape if extent != 1]
        if kept != sorted(kept) or [domain[k] for k in kept if domain[k] != 1] != sizes:
            return None
        axes = [k for k in range(len(domain)) if k not in kept]
        if op.reducer.name in ("and", "or"):
            operator = "ReduceMin" if op.reducer.name == "and" else "ReduceMax"
            whole = w.node("Cast", name, to=element_type(dtypes.int32))
            found = w.reduce(operator, whole, axes, False)
            found = w.node("Cast", found, to=element_type(dtype))
        else:
            found = w.reduce(_REDUCERS[op.reducer.name], name, axes, False)
        return found if len(shape) == len(kept) else w.reshape(found, shape)


def _are_of_one_loop(node: Node, other: Node) -> bool:
    """Whether two nodes are results of one loop, which computes them together."""
    ops = node.op, other.op
    alike = all(isinstance(op, Loop) for op in ops) and node.inputs == other.inputs
    return alike and ops[0].definition == ops[1].definition  # type: ignore[attr-defined]
