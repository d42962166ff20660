"""The schedule of scans: reductions over a triangle, computed by one running result.

`y[i]` combines all `x[j]` with `j <= i` (or `j >= i`, from the end). A reduction over `j` under a
guard that compares it with `i` takes quadratically many steps; a running result takes one per
element.
"""

from __future__ import annotations

import contextlib
import math

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.base.loops import Loop, plain_plan
from metaop.codegen.lowering.reductions.rows import RowReduction
from metaop.codegen.machine import Thresholds
from metaop.codegen.nest import ir
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import index_expr
from metaop.unified_graph.node import Node


class Scan(RowReduction):
    """One running result for each row.

    Lanes run along the innermost kept axis, or along all others if `lanes_are_tasks`. If the axis
    of the triangle is the innermost one, each lane is combined with those before it.
    """

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        thresholds: Thresholds,
        lanes_are_tasks: bool,
    ) -> None:
        super().__init__(kernel, storage, uses, plain_plan(kernel), thresholds)
        assert kernel.scan is not None
        self.triangle = kernel.scan
        self.lanes_are_tasks = lanes_are_tasks

    def lower(self) -> LoweredKernel:
        extent = self.kernel.shape[self.triangle.kept]
        running = Loop("s", extent, False)
        outer = [one for one in self.plan.kept() if one.name != f"i{self.triangle.kept}"]
        is_last = all(int(loop.name[1:]) < self.triangle.kept for loop in outer)
        lanes = [] if is_last else [outer.pop()]
        if lanes and self.lanes_are_tasks:
            outer, lanes = [], [self._joined([*outer, *lanes], "p")]
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
        """The loop over one row, which stores in each iteration what follows from the result."""
        values, (root, *others) = self.values, self.kernel.roots
        assert isinstance(root.op, Reduce)
        name = values.fresh("a")
        carried = ir.Accumulator(name, root.op.reducer.name, root.dtype, running=True)
        with values.loop(loop.name, loop.extent, accumulators=[carried], vector=vector):
            values.emit(ir.Accumulate(name, values.value(root.inputs[0], self.axes)))
            # On a GPU, lanes wait for each other here: what they know is computed again.
            values.scopes[-1].known.clear()
            result = values.bind_reduced(root, name)
            if root in self.kernel.private:
                self.waiting.discard(root)
            else:
                self._store(root, self._indices(root), result)
            self._compute_roots(others)
