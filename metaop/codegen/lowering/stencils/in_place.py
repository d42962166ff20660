"""Windows that are read in place, from a buffer.

Each vector of a row is read once for all taps and results that share it. Lanes run along columns
whose positions are literals, so masks at the sides of the plane are literals too, and other vectors
need none. For the gradient with respect to the weight, all loops are inside the lanes, and the sums
of the taps stay in registers until all planes are summed. Meanwhile, the next planes are
prefetched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.stencils.geometry import Stencil
from metaop.codegen.lowering.stencils.taps import FEWEST_TASKS, Group, Result, Taps
from metaop.codegen.machine import Thresholds
from metaop.codegen.nest import ir
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, Within
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of, is_symbolic

# The most rows of many vectors that are read in parallel: more would be too many streams.
_ROWS = 4
# The most taps whose weights fit registers besides the rows that they multiply.
_MOST_WEIGHTS = 16
# Planes larger than this share of the first-level cache are evicted from it; the next inputs of
# their windows are then prefetched, from this many streams.
_PART, _STREAMS = 4, 8
_ELEMENT_BYTES = 4


class Stretch(NamedTuple):
    """Neighbouring columns: whole vectors, or the last ones."""

    first: int
    size: int


class InPlace(Taps):
    """What both directions share: stretches of columns, and reading a tap."""

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        stencil: Stencil,
        lanes: int,
        thresholds: Thresholds,
    ) -> None:
        super().__init__(kernel, storage, uses, stencil, thresholds)
        self.line = thresholds.line_bytes // _ELEMENT_BYTES
        self.lanes = lanes * 4 // self.scalar.itemsize
        self.most_taps = self.most_sums if stencil.is_by_weight else _MOST_WEIGHTS
        # The axis of the loop over the planes, and the rows of the next one that are asked for.
        self.planes = "p"
        self.asked: set[tuple[IndexExpr, int]] = set()

    def is_fitting(self) -> bool:
        """Whether the inputs of the windows are contiguous in a buffer, and registers suffice.

        Columns are literals, so sizes are plain.
        """
        if self.down.taps * self.along.taps > self.most_taps:
            return False
        if is_symbolic(self.down.size) or is_symbolic(self.along.size):
            return False
        place = {k: index_expr.axis(f"o{k}", n) for k, n in enumerate(self.kernel.shape)}
        source, at, _ = self.behind_views(self.contraction.right, place)
        if not self.storage.has_buffer(source) or source.dtype is not self.scalar:
            return False
        column = place[self.along.long]
        beside = self.offset_of(source, at) - column * self.along.stride
        return not set(column.atoms()) & set(beside.atoms())

    def stretches(self) -> list[Stretch]:
        """The columns at the left side, between the sides, and at the right side."""
        size, lanes = self.along.size, self.lanes
        ends = sorted({0, min(lanes, size), (size - 1) // lanes * lanes, size})
        return [Stretch(first, stop - first) for first, stop in itertools.pairwise(ends)]

    def groups_of_rows(self, products: int) -> list[Group]:
        """Groups of all rows, with a number of products per element.

        High windows get separate groups at the upper and the lower edge.
        """
        is_wide = self.along.size > 2 * self.lanes
        groups = self.groups(products, self.down.size, _ROWS if is_wide else self.down.size)
        first, rows, times = groups[0]
        edge = -(-(self.down.taps // 2) // rows)
        if self.down.taps <= _ROWS or times <= 2 * edge:
            return groups
        parts = [(0, edge), (edge, times - 2 * edge), (times - edge, edge)]
        return [*(Group(first + k * rows, rows, n) for k, n in parts), *groups[1:]]

    def row_at(
        self, place: dict[int, IndexExpr], row: IndexExpr, column: IndexExpr
    ) -> dict[int, IndexExpr]:
        """The position of the results in a row."""
        return {**place, self.down.long: row, self.along.long: column}

    def seen(
        self, place: dict[int, IndexExpr], tap: tuple[int, int], guards: tuple[Guard, ...]
    ) -> ir.Expr:
        """The input of a tap at a position; prefetches what follows in each row once."""
        values = self.values
        known = len(values.reads)
        value = self.padded(self.contraction.right, self.tap_at(place, tap), list(guards))
        row = place[self.down.long] * self.down.step + tap[0]
        if tap[1] == self.along.taps // 2 and (row, len(values.scopes)) not in self.asked:
            self.asked.add((row, len(values.scopes)))
            width = min(self.lanes, self.along.size) * self.along.stride
            for line in range(-(-width // self.line)):
                self.prefetch(known, line * self.line)
        return value

    def prefetch(self, known: int, ahead: int = 0) -> None:
        """Prefetches what follows the reads from a given number on.

        That is the same position in the next plane, or in rows below if planes are large.
        """
        reads = self.values.reads[known:]
        row = self.along.stride * self.along.size
        if (
            self.down.stride * self.down.size * row
            <= self.thresholds.first_bytes // _PART // _ELEMENT_BYTES
        ):
            self.values.prefetch(reads, self.planes, ahead, nearest=True)
            return
        groups = self.groups_of_rows(_ROWS)
        ahead_elements = _STREAMS * self.thresholds.ahead_bytes // _ELEMENT_BYTES
        steps = -(-ahead_elements // (groups[0].rows * self.down.stride * row))
        self.values.prefetch(reads, "m", ahead, steps, nearest=True)


class ForwardInPlace(InPlace):
    """Results along the plane; all taps of one are summed at once."""

    def is_fitting(self) -> bool:
        """Few large planes are better cut into bands."""
        if not super().is_fitting():
            return False
        tasks = math.prod(self.kernel.shape[k] for k in self._outer_axes())
        is_small = self.down.size * self.along.size <= self.thresholds.chunk_elements
        return is_small or hint_of(tasks) >= FEWEST_TASKS

    def _outer_axes(self) -> list[int]:
        return sorted((*self.contraction.batch, *self.contraction.columns[:-2]))

    def lower(self) -> LoweredKernel:
        values, axes = self.values, self._outer_axes()
        tasks = math.prod(self.kernel.shape[k] for k in axes)
        results = self.every_result()
        with values.loop("p", tasks, "parallel") as task:
            place = self.plane_at(axes, task)
            for group in self.groups_of_rows(sum(len(taps) for _, taps in results)):
                with values.loop("m", group.times) as step:
                    start = step * group.rows + group.first
                    rows = [start + k for k in range(group.rows)]
                    for stretch in self.stretches():
                        self._sum_stretch(place, rows, stretch, results)
        elements = self.down.size * self.along.size
        return self.finish("stencil", values.body, elements)

    def _sum_stretch(
        self,
        place: dict[int, IndexExpr],
        rows: Sequence[IndexExpr],
        stretch: Stretch,
        results: Sequence[Result],
    ) -> None:
        """The results of some rows, in a stretch of the columns."""
        with self.values.loop("n", self.lanes_of(stretch), vector=True, literal=True) as lane:
            self.asked.clear()
            column = lane + stretch.first
            inside = Within(column, self.along.size)
            guards = () if inside.always else (inside,)
            for row in rows:
                at = self.row_at(place, row, column)
                sums = [self._sum_of_taps(at, result, guards) for result in results]
                self.store_results(at, results, sums, guards)

    def lanes_of(self, stretch: Stretch) -> int:
        """The lanes for a stretch; half a vector cannot select strided elements of short rows."""
        is_short = 2 * self.along.size <= self.lanes
        return self.lanes if is_short and self.along.stride > 1 else stretch.size

    def _sum_of_taps(
        self, place: dict[int, IndexExpr], result: Result, guards: tuple[Guard, ...]
    ) -> ir.Expr:
        at = self.result_at(place, result)
        return self.sum_of(
            [
                (self.left_at(self.tap_at(at, tap)), self.seen(at, tap, guards))
                for tap in result.taps
            ]
        )


class ByWeightInPlace(InPlace):
    """A result for each tap; planes are summed over."""

    def lower(self) -> LoweredKernel:
        values, contraction = self.values, self.contraction
        results = (*contraction.batch, *contraction.rows)
        extents = [self.kernel.shape[k] for k in results]
        axes = [k for k in contraction.depth if k not in (self.down.long, self.along.long)]
        count = math.prod(self.kernel.shape[k] for k in axes)
        # Whole vectors: sums need no masks where zeros are read.
        lanes = self.lanes
        if self.along.stride == 1:
            lanes = min(lanes, 1 << (self.along.size - 1).bit_length())
        self.planes = "r"
        with values.loop("p", math.prod(extents), "parallel") as task:
            self.place = dict(zip(results, index_expr.unravel(task, extents)))
            sums = {tap: values.fresh("s") for tap in self.taps()}
            found = self.accumulators(sums.values())
            with (
                values.loop("n", lanes, accumulators=found, vector=True, literal=True) as lane,
                values.loop("r", count) as plane,
            ):
                self._add_plane(sums, self.plane_at(axes, plane), lane, lanes)
            self.store_taps(sums)
        return self.finish("stencil", values.body)

    def _add_plane(
        self,
        sums: dict[tuple[int, int], str],
        place: dict[int, IndexExpr],
        lane: IndexExpr,
        lanes: int,
    ) -> None:
        """Accumulates the products of a plane for each tap, separately in every lane."""
        values = self.values
        for group in self.groups_of_rows(len(sums)):
            with values.loop("m", group.times) as step:
                start = step * group.rows + group.first
                for first, times in self._vectors(lanes):
                    with values.loop("j", times) as vector:
                        column = lane + (vector + first) * lanes
                        self.asked.clear()
                        for k in range(group.rows):
                            self._add_products(sums, self.row_at(place, start + k, column))

    def _vectors(self, lanes: int) -> Iterator[tuple[int, int]]:
        """The vectors of a row: which is the first of a stretch, and how many follow."""
        for stretch in self.stretches():
            yield stretch.first // lanes, -(-stretch.size // lanes)

    def _add_products(self, sums: dict[tuple[int, int], str], at: dict[int, IndexExpr]) -> None:
        values = self.values
        inside = Within(at[self.along.long], self.along.size)
        guards = () if inside.always else (inside,)
        left, known = values.fresh("g"), len(values.reads)
        values.emit(ir.Let(left, self.padded(self.contraction.left, at, list(guards))))
        self.prefetch(known)
        for tap, name in sums.items():
            seen = self.seen(at, tap, guards)
            values.emit(ir.Accumulate(name, self.apply("mul", ir.Name(left, self.scalar), seen)))


def lower_in_place(
    kernel: Kernel,
    storage: Storage,
    uses: dict[Node, int],
    stencil: Stencil,
    lanes: int,
    thresholds: Thresholds,
) -> LoweredKernel | None:
    """The launch of a stencil whose windows are read in place; None for others."""
    if not lanes or stencil.channels:
        return None
    lowering = ByWeightInPlace if stencil.is_by_weight else ForwardInPlace
    schedule = lowering(kernel, storage, uses, stencil, lanes, thresholds)
    return schedule.lower() if schedule.is_fitting() else None
