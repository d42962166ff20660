"""The schedule of windows that slide over a plane: depthwise convolutions and their gradients.

If hardly any axis belongs to one factor alone, packing panels does not pay: depthwise convolutions,
groups of a few channels, images with few channels. Windows of a buffer are read in place if masks
are free (`in_place.py`). Otherwise, a task copies the planes that its windows read, with their
padding, to scratch memory (`planes.py`), and reads all taps from there, in whole vectors and
without conditions. Several rows of results are computed at once, so that rows of the plane that
their windows share are read only once. For the gradient with respect to the weight, each tap has
its own sum in every lane, as many of them at a time as registers hold. Meanwhile, the next planes
are prefetched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from metaop.codegen.lowering.base.blocks import balanced
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.contractions.axes import unravel_within
from metaop.codegen.lowering.stencils.geometry import Stencil
from metaop.codegen.lowering.stencils.in_place import lower_in_place
from metaop.codegen.lowering.stencils.planes import Planes
from metaop.codegen.lowering.stencils.taps import FEWEST_TASKS, Result, Tap
from metaop.codegen.machine import Thresholds
from metaop.codegen.nest import ir
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of


def lower_stencil(
    kernel: Kernel,
    storage: Storage,
    uses: dict[Node, int],
    stencil: Stencil,
    lanes: int,
    thresholds: Thresholds,
) -> LoweredKernel:
    """The launch of a stencil; masked accesses to `lanes` lanes are free (0: none are)."""
    whole = replace(kernel, contraction=stencil.contraction)
    found = lower_in_place(whole, storage, uses, stencil, lanes, thresholds)
    if found is not None:
        return found
    lowering = _ByWeight if stencil.is_by_weight else _Forward
    return lowering(whole, storage, uses, stencil, thresholds).lower()


class _Forward(Planes):
    """Results along the plane; all taps of one are summed at once."""

    def lower(self) -> LoweredKernel:
        values, contraction = self.values, self.contraction
        axes = sorted((*contraction.batch, *contraction.columns[:-2]))
        count = math.prod(self.kernel.shape[k] for k in axes)
        planes = self.planes_in_block(count, hint_of(count) // FEWEST_TASKS)
        tasks, deep = count // planes * self.bands, self.depth_planes
        self.hold_planes(planes * deep)
        with self.loop("p", tasks, "parallel") as task:
            self.band, first = task % self.bands, task // self.bands * planes
            self.copy_planes((*axes, *self.channels), first * deep, planes * deep)
            with self.loop("u", planes) as plane:
                self._sum_plane(self.plane_at(axes, first + plane), plane * deep)
        elements = planes * deep * self.elements_of_plane()
        return self.finish("stencil", values.body, elements)

    def _sum_plane(self, place: dict[int, IndexExpr], plane: IndexExpr) -> None:
        """The results of a plane, a few rows at a time."""
        results = self.every_result()
        for group in self.groups(sum(len(taps) for _, taps in results), self.band_rows):
            with (
                self.loop("m", group.times) as step,
                self.loop("n", self.along.size, vector=True),
            ):
                start = step * group.rows + group.first
                rows = [(start + k, self.row_at(place, start + k)) for k in range(group.rows)]
                for row, sums in zip(rows, self._sums(rows, plane, results)):
                    self.store_results(row[1], results, sums)

    def _sums(
        self,
        rows: Sequence[tuple[IndexExpr, dict[int, IndexExpr]]],
        plane: IndexExpr,
        results: Sequence[Result],
    ) -> Iterator[list[ir.Expr]]:
        """The sums of all results, for each row; over channels all rows are summed at once."""
        values, deep = self.values, self.depth_planes
        if deep == 1:
            for row, place in rows:
                yield [self._sum_of_taps(place, plane, row, result) for result in results]
            return
        names = [[values.fresh("s") for _ in results] for _ in rows]
        accumulators = self.accumulators(itertools.chain(*names))
        with self.loop("c", deep, accumulators=accumulators) as channel:
            extents = [self.kernel.shape[k] for k in self.channels]
            inside = dict(zip(self.channels, index_expr.unravel(channel, extents)))
            for (row, place), sums in zip(rows, names):
                for name, result in zip(sums, results):
                    total = self._sum_of_taps({**place, **inside}, plane + channel, row, result)
                    values.emit(ir.Accumulate(name, total))
        for sums in names:
            yield [ir.Name(name, self.scalar) for name in sums]

    def _sum_of_taps(
        self, place: dict[int, IndexExpr], plane: IndexExpr, row: IndexExpr, result: Result
    ) -> ir.Expr:
        moves = [-self.down.first * self.down.stride, -self.along.first * self.along.stride]
        for residue in self.residues:
            window = (self.down, self.along)[residue.window]
            moves[residue.window] += window.stride * residue.moves[result.fixed[residue.axis]]
        at, products = self.result_at(place, result), []
        for tap in result.taps:
            down, along = self.positions(tap)
            seen = self.seen(plane, row, (down + moves[0], along + moves[1]))
            products.append((self.left_at(self.tap_at(at, tap)), seen))
        return self.sum_of(products)


class _ByWeight(Planes):
    """A result for each row and each tap; planes are summed over.

    A task copies a plane once for a few rows. Between planes, their sums are in scratch memory.
    """

    def lower(self) -> LoweredKernel:
        values = self.values
        axes = [k for k in self.contraction.depth if k not in (self.down.long, self.along.long)]
        count = math.prod(self.kernel.shape[k] for k in axes)
        planes, rows = self.planes_in_block(count, count), self._rows_of_a_task()
        blocks, per_batch = count // planes * self.bands, math.prod(self.rows) // rows
        self.blocks = "r" if hint_of(blocks) > 1 else "p"
        every, self.sums = list(self.taps()), self.plane - 1
        self.hold_planes(planes)
        values.emit(ir.Alloc(self.sums, rows * len(every), self.scalar))
        with self.loop("p", math.prod(self.batch) * per_batch, "parallel") as task:
            batch, first_row = task // per_batch, task % per_batch * rows
            self.place = dict(zip(self.contraction.batch, index_expr.unravel(batch, self.batch)))
            with self.loop("z", rows * len(every), vector=True) as number:
                values.emit(ir.Store(self.sums, values.sum(number), ir.Number(0, self.scalar)))
            with self.loop("r", blocks) as block:
                self.band, first = block % self.bands, block // self.bands * planes
                self.copy_planes(axes, first, planes)
                with self.loop("q", rows) as row:
                    self._move_to(first_row + row)
                    for before, taps in self._groups_of_taps(every):
                        self._add_planes(taps, row * len(every) + before, axes, first, planes)
            # One store serves all taps, so that results may overwrite the weights that they update.
            with self.loop("q", rows) as row, self.loop("t", len(every), vector=True) as number:
                self._move_to(first_row + row)
                down, along = index_expr.unravel(number, (self.down.taps, self.along.taps))
                place = {**self.place, self.down.short: down, self.along.short: along}
                self.store(place, (), self._sum_at(row * len(every) + number))
        return self.finish("stencil", values.body)

    def _rows_of_a_task(self) -> int:
        """The most rows with which there are enough tasks."""
        rows, batch = math.prod(self.rows), hint_of(math.prod(self.batch))
        enough = (
            n for n in range(rows, 1, -1) if rows % n == 0 and rows // n * batch >= FEWEST_TASKS
        )
        return next(enough, 1)

    def _groups_of_taps(self, taps: list[Tap]) -> Iterator[tuple[int, list[Tap]]]:
        """The taps whose sums fit registers at once, each group with the number of its first."""
        size = balanced(len(taps), self.most_sums)
        for start in range(0, len(taps), size):
            yield start, taps[start : start + size]

    def _move_to(self, row: IndexExpr) -> None:
        """Makes a row of the contraction the current one."""
        self.place.update(zip(self.contraction.rows, unravel_within(row, self.rows)))

    def _sum_at(self, number: IndexExpr) -> ir.Expr:
        return ir.Load(self.sums, self.values.sum(number), self.scalar)

    def _add_planes(
        self,
        taps: list[Tap],
        start: IndexExpr,
        axes: Sequence[int],
        first: IndexExpr,
        planes: int,
    ) -> None:
        """Adds the products of a block to the sums of some taps, which begin at `start`."""
        values = self.values
        names = {tap: values.fresh("s") for tap in taps}
        # The sums belong to the outer loop: then the ends of rows take shorter vectors.
        with (
            self.loop("u", planes, accumulators=self.accumulators(names.values())) as plane,
            self.loop("n", self.along.size, vector=True),
        ):
            place = self.plane_at(axes, first + plane)
            for group in self.groups(len(taps), self.band_rows):
                with self.loop("m", group.times) as step:
                    for k in range(group.rows):
                        self._add_row(names, place, plane, step * group.rows + group.first + k)
        for number, name in enumerate(names.values()):
            total = self.apply("add", self._sum_at(start + number), ir.Name(name, self.scalar))
            values.emit(ir.Store(self.sums, values.sum(start + number), total))

    def _add_row(
        self,
        sums: dict[Tap, str],
        place: dict[int, IndexExpr],
        plane: IndexExpr,
        row: IndexExpr,
    ) -> None:
        values = self.values
        left, known = values.fresh("g"), len(values.reads)
        values.emit(ir.Let(left, self.left_at(self.row_at(place, row))))
        values.prefetch(values.reads[known:], self.blocks)
        for tap, name in sums.items():
            seen = self.seen(plane, row, self.positions(tap))
            product = self.apply("mul", ir.Name(left, self.scalar), seen)
            values.emit(ir.Accumulate(name, product))
