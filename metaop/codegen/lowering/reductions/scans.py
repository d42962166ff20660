"""The schedule of scans: reductions over a triangle, computed by one running result.

`y[i]` combines all `x[j]` with `j <= i` (or `j >= i`, from the end). A reduction over `j` under a
guard that compares it with `i` takes quadratically many steps; a running result takes one per
element.
"""

from __future__ import annotations

import contextlib
import math
from typing import NamedTuple

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.base.loops import Loop, plain_plan
from metaop.codegen.lowering.reductions.rows import RowReduction
from metaop.codegen.machine import Thresholds
from metaop.codegen.nest import ir
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, IndexMap, Within
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node


class Triangle(NamedTuple):
    """The axis of the result, the reduced axis that is compared with it, and the direction."""

    kept: int
    reduced: int
    backwards: bool


def triangle_of(kernel: Kernel, storage: Storage) -> Triangle | None:
    """The axes of a kernel that is only a reduction over a triangle."""
    if len(kernel.roots) != 1 or len(kernel.reduced) != 1:
        return None
    op, source = kernel.roots[0].op, kernel.roots[0].inputs[0]
    if not (isinstance(op, Reduce) and isinstance(source.op, Reindex)):
        return None
    if storage.has_buffer(source) or source.op.fill != op.reducer.identity(source.dtype):
        return None
    axes = IndexMap.axes(kernel.shape)
    (reduced,) = kernel.reduced
    for kept in kernel.kept:
        if kernel.shape[kept] != kernel.shape[reduced]:
            continue
        for backwards in (False, True):
            later, earlier = (reduced, kept) if backwards else (kept, reduced)
            distance = axes[later] - axes[earlier]
            guards = source.op.map.guards
            rest = [one for one in guards if not _compares(one, distance, kernel.shape[kept])]
            used = [*source.op.map.indices, *(guard.expr for guard in rest)]
            if len(rest) < len(guards) and not any(_uses(expr, kept) for expr in used):
                return Triangle(kept, reduced, backwards)
    return None


def _compares(guard: Guard, distance: IndexExpr, extent: int) -> bool:
    return isinstance(guard, Within) and guard.expr == distance and guard.extent >= extent


def _uses(expr: IndexExpr, axis: int) -> bool:
    return any(isinstance(atom, Axis) and atom.name == axis for atom in expr.atoms())


class Scan(RowReduction):
    """One running result for each row.

    Lanes run along the innermost kept axis. If that is the axis of the triangle, each lane is
    combined with those before it.
    """

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        thresholds: Thresholds,
        triangle: Triangle,
    ) -> None:
        super().__init__(kernel, storage, uses, plain_plan(kernel), thresholds)
        self.triangle = triangle

    def lower(self) -> LoweredKernel:
        extent = self.kernel.shape[self.triangle.kept]
        running = Loop("s", extent, False)
        outer = [one for one in self.plan.kept() if one.name != f"i{self.triangle.kept}"]
        is_last = all(int(loop.name[1:]) < self.triangle.kept for loop in outer)
        lanes = [] if is_last else [outer.pop()]
        step = index_expr.axis(running.name, extent)
        place = extent - 1 - step if self.triangle.backwards else step
        self._replace({f"i{k}": place for k in (self.triangle.kept, self.triangle.reduced)})
        kind = "serial" if outer else "parallel"
        with self._tasks(outer), contextlib.ExitStack() as inner:
            for loop in lanes:
                inner.enter_context(self.values.loop(loop.name, loop.extent, kind, vector=True))
            self._run_along(running, is_last)
        each = extent * math.prod(loop.extent for loop in lanes if outer)
        return self.finish("scan", self.values.body, each)

    def _run_along(self, loop: Loop, vector: bool) -> None:
        """The loop over one row, which stores the running result in each iteration."""
        values, root = self.values, self.kernel.roots[0]
        assert isinstance(root.op, Reduce)
        name = values.fresh("a")
        carried = ir.Accumulator(name, root.op.reducer.name, root.dtype, running=True)
        with values.loop(loop.name, loop.extent, accumulators=[carried], vector=vector):
            values.emit(ir.Accumulate(name, values.value(root.inputs[0], self.axes)))
            self._store(root, self._indices(root), ir.Name(name, root.dtype))
