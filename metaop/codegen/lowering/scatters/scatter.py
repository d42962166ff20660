"""The schedule of scatters: writes through index operands."""

from __future__ import annotations

import contextlib
import math

from metaop.codegen.lowering.base.blocks import exact_block
from metaop.codegen.lowering.base.checks import checked_index
from metaop.codegen.lowering.base.kernel import LoweredKernel, Lowering
from metaop.codegen.lowering.base.loops import Loop, plain_plan
from metaop.codegen.machine import OPERATIONS
from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import NestBuilder, RuntimeExtent
from metaop.fusion.inline import map_at
from metaop.fusion.kernel import Kernel
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Lookup
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of, maximum

# The columns of a task: whole vectors, and few cache lines of each row.
_FEWEST_COLUMNS, _MOST_COLUMNS = 16, 64


def lower_fill(root: Node) -> LoweredKernel:
    """The launch that fills the result of a scatter with the reducer's identity."""
    op = root.op
    assert isinstance(op, Reduce)
    return fill_with(root, ir.Number(op.reducer.identity(root.dtype), root.dtype))


def fill_with(root: Node, number: ir.Number) -> LoweredKernel:
    """The same number in every element."""
    builder = NestBuilder()
    with builder.loop("i0", root.size, "parallel", vector=True, counted=True):
        builder.emit(ir.Store(0, ir.Sum(((ir.LoopIndex("i0"), 1),), 0), number))
    roles = (ir.Parameter(root.dtype, "write"),)
    nest = ir.LoopNest("fill", roles, (), builder.body, work=OPERATIONS)
    return LoweredKernel(nest, (root,))


class Scatter(Lowering):
    """Writes through index operands, in parallel along an independent axis of the target.

    Lanes go along independent columns, row after row. Independent rows have no lanes: each is
    written from its start to its end.
    """

    def lower(self) -> LoweredKernel:
        kernel, values = self.kernel, self.values
        root = kernel.roots[0]
        op = root.op
        assert isinstance(op, Reduce)
        free = _independent_axes(op, kernel)
        plan = plain_plan(kernel)
        self.axes = plan.axes
        apart = next((loop for loop in reversed(plan.loops) if loop.name in free), None)
        are_neighbours = apart is not None and free[apart.name] == len(op.map.indices) - 1
        serial = [loop for loop in plan.loops if loop is not apart]
        points = math.prod(loop.extent for loop in serial)
        width = _columns_of_task(apart.extent) if apart and are_neighbours else None
        with contextlib.ExitStack() as nest:
            if apart and width:
                blocks = nest.enter_context(
                    values.loop(f"{apart.name}o", apart.extent // width, "parallel")
                )
                self._place(apart, blocks * width + index_expr.axis("c", width))
            elif apart:
                nest.enter_context(
                    values.loop(apart.name, apart.extent, "parallel", vector=are_neighbours)
                )
            for loop in serial:
                nest.enter_context(values.loop(loop.name, loop.extent))
            if width:
                nest.enter_context(values.loop("c", width, vector=True))
            self._update(op)
        return self.finish("scatter", values.body, points * (width or 1))

    def _place(self, loop: Loop, place: IndexExpr) -> None:
        """Replaces the variable of a loop."""

        def replaced(atom: Atom) -> IndexExpr | None:
            return place if isinstance(atom, Axis) and atom.name == loop.name else None

        self.axes = tuple(axis.substitute(replaced) for axis in self.axes)

    def _update(self, op: Reduce, atomic: bool = False) -> None:
        """The write of one point of the box."""
        values, root = self.values, self.kernel.roots[0]
        targets, guards = map_at(
            op.map,
            self.axes,
            lambda atom, inside, own: checked_index(
                values, root.inputs[atom.operand], atom, inside, own
            ),
        )
        value = values.value(root.inputs[0], self.axes, guards)
        number = self.parameter(root, "update")
        offset = values.sum(index_expr.linear_offset(targets, root.shape))
        conditions = values.conditions(guards)
        values.emit(ir.Update(number, offset, op.reducer.name, value, conditions, atomic))
        self.waiting.discard(root)


class Segments(Scatter):
    """Reductions of points that are sorted by the row to which they go: a row is a task."""

    def lower(self) -> LoweredKernel:
        values, root = self.values, self.kernel.roots[0]
        op = root.op
        assert isinstance(op, Reduce)
        self.axes = plain_plan(self.kernel).axes
        source, starts = root.inputs[0], root.inputs[-1]
        points = Loop("i0", source.shape[0], False)
        columns = [loop for loop in plain_plan(self.kernel).loops if loop.name != points.name]
        total = ir.Accumulator(values.fresh("a"), op.reducer.name, root.dtype)
        with contextlib.ExitStack() as nest:
            row = nest.enter_context(values.loop("r", root.shape[0], "parallel", counted=True))
            first, last = (
                checked_index(
                    values, starts, Lookup(0, (row + k,), points.extent + 1), (row + k,), ()
                )
                for k in range(2)
            )
            count = values.fresh("n")
            values.bind_index(count, values.sum(last - first), points.extent)
            for loop in columns:
                is_last = loop is columns[-1]
                nest.enter_context(values.loop(loop.name, loop.extent, vector=is_last))
            extent = RuntimeExtent(ir.ValueIndex(count), points.extent)
            with values.loop("e", extent, accumulators=[total], counted=True) as number:
                around = self.axes
                self._place(points, first + number)
                values.emit(ir.Accumulate(total.name, values.value(source, self.axes)))
                self.axes = around
            self._store(root, (row, *self.axes[1:]), ir.Name(total.name, root.dtype))
        work = source.size // maximum([root.shape[0], 1])
        return self.finish("segments", values.body, work)


def _columns_of_task(columns: int) -> int | None:
    """How many columns a task handles, in few cache lines of each row; None for short rows."""
    if hint_of(columns) < _FEWEST_COLUMNS:
        return None
    return exact_block(columns, min(_MOST_COLUMNS, max(hint_of(columns) // 2, _FEWEST_COLUMNS)))


def _independent_axes(op: Reduce, kernel: Kernel) -> dict[str, int]:
    """Axes that alone determine a dimension of the target, so different points never collide.

    With the number of that dimension.
    """
    free: dict[str, int] = {}
    for k, extent in enumerate(kernel.shape):
        expr = index_expr.axis(k, extent)
        if expr.is_constant or expr not in op.map.indices:
            continue
        atom = expr.terms[0][0]
        elsewhere = [other for other in op.map.indices if other is not expr]
        if all(atom not in set(other.atoms()) for other in elsewhere):
            free[f"i{k}"] = op.map.indices.index(expr)
    return free
