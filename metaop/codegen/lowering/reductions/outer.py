"""The schedule of reductions along outer axes: many neighbouring columns at a time."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable

from metaop.codegen.lowering.base.blocks import exact_block
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.base.loops import Loop, LoopPlan, plain_plan
from metaop.codegen.lowering.reductions.rows import RowReduction
from metaop.codegen.machine import Thresholds
from metaop.codegen.nest import ir
from metaop.fusion.inline import is_expensive
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.reduce.reducers import Reducer
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import divides, hint_of, is_symbolic

# Reductions over fewer elements read few cache lines in parallel.
_SHORTEST = 32
# The bytes of one row in a block of columns: enough for the hardware prefetcher.
_LONGEST_ROW, _SHORTEST_ROW = 4096, 512
# The share of the first-level cache for partial results, besides the rows.
_SCRATCH = 2
# The number of rows that are combined between accesses to partial results.
_ROWS_AT_ONCE = (4, 3, 2, 1)
# The same where values are expensive: more rows take longer to compile, and gain nothing.
_EXPENSIVE_AT_ONCE = 2


def column_width(
    kernel: Kernel,
    plan: LoopPlan,
    places: Iterable[IndexExpr],
    threads: int,
    thresholds: Thresholds,
) -> int | None:
    """The columns of a task; None if the reductions of a kernel are not along outer axes.

    `places` are index expressions of the axes of the box at which buffers are read.
    """
    roots = [root for root in kernel.roots if isinstance(root.op, Reduce)]
    reduced = math.prod(loop.extent for loop in plan.reduced())
    if not roots or not plan.kept() or hint_of(reduced) < _SHORTEST:
        return None
    if plan.loops[-1].reduced and not _rows_lie_apart(kernel, places):
        return None
    if any(root.dtype.compute is not root.dtype for root in roots):
        return None
    *outer, last = plan.kept()
    size = max(root.dtype.itemsize for root in roots)
    longest = min(_LONGEST_ROW, thresholds.first_bytes // _SCRATCH // len(roots)) // size
    found = None
    while longest * size >= _SHORTEST_ROW:
        width = exact_block(last.extent, longest)
        if width is not None and width * size >= _SHORTEST_ROW:
            found = width
            blocks = math.prod(loop.extent for loop in outer) * (last.extent // width)
            if hint_of(blocks) >= threads:
                return width
        longest //= 2
    return found


class OuterReduction(RowReduction):
    """Reductions that read memory row by row, with partial results in scratch memory.

    Lanes, and then neighbouring vectors, run along a block of columns inside the reduced loops.
    """

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        plan: LoopPlan,
        thresholds: Thresholds,
        width: int,
    ) -> None:
        super().__init__(kernel, storage, uses, plan, thresholds)
        self.width = width
        self.column = index_expr.axis("c", width)
        # The scratch buffers with the results of earlier passes, and what is stored row by row.
        self.scratch: dict[Node, int] = {}
        self.stored: list[Node] = []

    def lower_columns(self, threads: int) -> LoweredKernel | None:
        """The kernel; None if it does not access memory along its columns, or has other needs.

        Values of points are stored in the only pass, by tasks for all threads: several passes over
        narrow columns find them in a near cache.
        """
        last_pass = max(self.stage_of.values())
        inside = [root for root in self.kernel.roots if self._is_inside(root)]
        others = [root for root in self.kernel.roots if root not in inside]
        if any(self.stage_of[root] < last_pass for root in others):
            return None
        *outer, last = self.plan.kept()
        blocks = Loop(f"{last.name}o", last.extent // self.width, False)
        tasks = hint_of(math.prod(loop.extent for loop in [*outer, blocks]))
        is_plain = all(isinstance(root.op, Reduce) for root in inside)
        if not is_plain and (last_pass or tasks < threads):
            return None
        place = index_expr.axis(blocks.name, blocks.extent) * self.width + self.column
        self._replace({last.name: place})
        with self._tasks([*outer, blocks]):
            for stage in range(last_pass + 1):
                self._pass([root for root in inside if self.stage_of[root] == stage])
            if not self._is_along_columns():
                return None
            self._finish(others)
        reduced = math.prod(loop.extent for loop in self.plan.reduced())
        return self.finish("columns", self.values.body, reduced * self.width)

    def _pass(self, members: list[Node]) -> None:
        """One pass over all rows: sums start from the identity, and values of rows are stored."""
        values, at = self.values, self.values.sum(self.column)
        self.stored = [root for root in members if not isinstance(root.op, Reduce)]
        reductions = [root for root in members if root not in self.stored]
        first = len(self.scratch) + 1
        found = {root: -number for number, root in enumerate(reductions, start=first)}
        for root, number in found.items():
            values.emit(ir.Alloc(number, self.width, root.dtype))
        with values.loop("c", self.width, vector=True):
            for root, number in found.items():
                identity = _reducer(root).identity(root.dtype)
                values.emit(ir.Store(number, at, ir.Number(identity, root.dtype)))
        self._accumulate(found)
        self.scratch.update(found)

    def _accumulate(self, reductions: dict[Node, int]) -> None:
        """The loops over all rows, several of which are combined at once."""
        last = self.plan.reduced()[-1]
        most = _EXPENSIVE_AT_ONCE if any(map(is_expensive, self.computed())) else _ROWS_AT_ONCE[0]
        together = next(n for n in _ROWS_AT_ONCE if n <= most and divides(n, last.extent))
        if together == 1 and is_symbolic(last.extent):
            # No number of rows divides symbolic ones, so the last ones are handled one by one.
            together = most
        whole = last.extent // together
        self._rows(reductions, together, (0, whole))
        rest = last.extent % together
        if is_symbolic(rest):
            self._rows(reductions, 1, (whole * together, rest))

    def _rows(self, reductions: dict[Node, int], together: int, stretch: tuple[int, int]) -> None:
        """The loops over a range of rows, given by its start and the number of groups."""
        values, (start, extent), (*outer, last) = self.values, stretch, self.plan.reduced()
        rows = f"{last.name}r"
        with contextlib.ExitStack() as nest:
            for loop in outer:
                nest.enter_context(values.loop(loop.name, loop.extent))
            # For some sizes a loop runs once, which needs no separate program.
            first = nest.enter_context(values.loop(rows, extent, counted=True)) * together + start
            nest.enter_context(values.loop("c", self.width, vector=True))
            self._recall()
            known = len(values.reads)
            found = self._at_rows(reductions, [{last.name: first + k} for k in range(together)])
            if any(_reducer(root).name != "add" for root in reductions):
                # Comparisons fill the processor's reorder window, so they need prefetches; sums do
                # not, because hardware prefetching suffices.
                column = Axis("c", self.width)
                moving = (one for one in values.reads[known:] if one[1].coefficient(column) == 1)
                values.prefetch(dict.fromkeys(moving), rows)
            place = values.sum(self.column)
            for (root, number), parts in zip(reductions.items(), found):
                values.emit(ir.Update(number, place, _reducer(root).name, _combined(root, parts)))

    def _at_rows(
        self, roots: Iterable[Node], rows: Iterable[dict[str, IndexExpr]]
    ) -> Iterable[tuple[ir.Expr, ...]]:
        """The combined contribution of some rows to each reduction; stores values of the rows."""
        around, found = self.axes, []
        for row in rows:
            self._replace(row)
            found.append([self.values.value(root.inputs[0], self.axes) for root in roots])
            self._compute_roots(self.stored)
            self.waiting.update(self.stored)
            self.axes = around
        return zip(*found)

    def _is_along_columns(self) -> bool:
        """Whether all accesses that change from row to row are along the columns."""
        rows = {f"{loop.name}r" for loop in self.plan.reduced()}
        rows |= {loop.name for loop in self.plan.reduced()}
        places = [*(place for _, place in self.values.reads), *self.values.targets]
        moving = [place for place in places if not rows.isdisjoint(_axes_of(place))]
        column = Axis("c", self.width)
        return any(place.coefficient(column) == 1 for place in moving) and all(
            place.coefficient(column) in (0, 1) for place in moving
        )

    def _recall(self) -> None:
        """Binds the results of earlier passes."""
        values, at = self.values, self.values.sum(self.column)
        for root, number in self.scratch.items():
            name = values.fresh("a")
            values.emit(ir.Let(name, ir.Load(number, at, root.dtype)))
            values.bind_reduced(root, name)

    def _finish(self, others: list[Node]) -> None:
        """Stores the results, and what is computed from them alone."""
        with self.values.loop("c", self.width, vector=True):
            self._recall()
            for root in self.scratch:
                self.waiting.discard(root)
                if root not in self.kernel.private:
                    self._store(root, self._indices(root), self.values.reduced[root])
            self._compute_roots(others)


def _rows_lie_apart(kernel: Kernel, places: Iterable[IndexExpr]) -> bool:
    """Whether the last kept axis is contiguous in memory, and reduced axes are not.

    A matrix whose rows a vector weighs is read like this.
    """
    loops = plain_plan(kernel).loops
    kept, reduced = (
        [Axis(loop.name, loop.extent) for loop in loops if loop.reduced is is_reduced]
        for is_reduced in (False, True)
    )
    return any(
        place.coefficient(kept[-1]) == 1 and abs(place.coefficient(reduced[-1])) > ir.LONGEST_STRIDE
        for place in places
    )


def _reducer(root: Node) -> Reducer:
    assert isinstance(root.op, Reduce)
    return root.op.reducer


def _combined(root: Node, parts: Iterable[ir.Expr]) -> ir.Expr:
    """Values combined by a reduction."""
    total, *rest = parts
    for part in rest:
        total = ir.Apply(_reducer(root).combine, (total, part), root.dtype, root.dtype)
    return total


def _axes_of(place: IndexExpr) -> set[str]:
    return {str(atom.name) for atom in place.atoms() if isinstance(atom, Axis)}
