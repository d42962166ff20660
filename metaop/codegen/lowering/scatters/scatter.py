"""The schedule of scatters: writes through index operands."""

from __future__ import annotations

import contextlib
import math

from metaop.codegen.lowering.base.checks import checked_index
from metaop.codegen.lowering.base.kernel import LoweredKernel, Lowering
from metaop.codegen.lowering.base.loops import plain_plan
from metaop.codegen.machine import OPERATIONS
from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import NestBuilder
from metaop.fusion.inline import map_at
from metaop.fusion.kernel import Kernel
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import index_expr
from metaop.unified_graph.node import Node


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
    """Writes through index operands: row after row, with lanes along independent columns."""

    def lower(self) -> LoweredKernel:
        kernel, values = self.kernel, self.values
        root = kernel.roots[0]
        op = root.op
        assert isinstance(op, Reduce)
        free = _independent_axes(op, kernel)
        plan = plain_plan(kernel)
        self.axes = plan.axes
        lanes = [loop for loop in plan.loops if loop.name in free][-1:]
        serial = [loop for loop in plan.loops if loop not in lanes]
        with contextlib.ExitStack() as nest:
            for loop in lanes:
                nest.enter_context(values.loop(loop.name, loop.extent, "parallel", vector=True))
            for loop in serial:
                nest.enter_context(values.loop(loop.name, loop.extent))
            self._update(op)
        others = math.prod(loop.extent for loop in serial)
        return self.finish("scatter", values.body, others)

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


def _independent_axes(op: Reduce, kernel: Kernel) -> set[str]:
    """Axes that alone determine a dimension of the target, so different points never collide."""
    free: set[str] = set()
    for k, extent in enumerate(kernel.shape):
        expr = index_expr.axis(k, extent)
        if expr.is_constant or expr not in op.map.indices:
            continue
        atom = expr.terms[0][0]
        elsewhere = [other for other in op.map.indices if other is not expr]
        if all(atom not in set(other.atoms()) for other in elsewhere):
            free.add(f"i{k}")
    return free
