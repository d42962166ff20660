"""The schedule of thin contractions: few rows, or sums of few products.

Packing a factor takes about as long as multiplying it by so little, so the right factor is read in
place, and memory bounds the time. Lanes run along its contiguous axis. If that is the columns, a
task passes over them with a few steps of the depth at a time, each of which is contiguous in
memory. Sums stay in registers during these steps, and in scratch memory between them. If it is the
depth, a few rows are multiplied by a few columns, and lanes are summed at the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from metaop.codegen.lowering.base.blocks import PACKING, Tile, balanced, exact_block
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.contractions.axes import ContractionAxes
from metaop.codegen.nest import ir
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of, is_symbolic

# The steps of the depth between two accesses to the sums in memory: this many streams are read side
# by side, which processors prefetch, and whole cache lines of the left factor.
_STEPS = 16
# Contractions with more rows than this have more than `_STEPS` products in few sums only.
_MOST_ROWS = 32
# The columns of a task: long runs of memory, and sums that stay in the near cache.
_MOST_COLUMNS, _FEWEST_COLUMNS = 1024, 128
# Along a shorter depth, summing the lanes takes longer than multiplying.
_SHORTEST_DEPTH = 128
# The elements of a left factor that a task packs.
_MOST_LEFT = 1 << 16
# The time of a product relative to panels, by the axis of the lanes: both factors are read
# repeatedly, and sums are written in between, or lanes are summed.
_SLOWNESS = {"c": 1.5, "k": 1.65}
# Panels write their sums to scratch memory first, which takes as long as this many products.
_STORING = 16
_TARGET, _LEFT = -1, -2


class Group(NamedTuple):
    """A number of groups of `size` neighbours, from the first on."""

    first: int
    times: int
    size: int


def groups(extent: int, size: int) -> Iterator[Group]:
    """Neighbours in groups of a size, and the remaining ones."""
    times, rest = divmod(extent, size)
    if times:
        yield Group(0, times, size)
    if rest:
        yield Group(times * size, 1, rest)


class Thin(ContractionAxes):
    """A contraction of few rows or few steps, whose right factor is read in place.

    Sums of at most `_STEPS` products of each result never leave the registers.
    """

    def __init__(
        self, kernel: Kernel, storage: Storage, uses: dict[Node, int], tile: Tile, threads: int
    ) -> None:
        super().__init__(kernel, storage, uses)
        self.tile, self.threads = tile, threads
        self.sizes = tuple(math.prod(x) for x in (self.rows, self.columns, self.depth))

    def share(self) -> float | None:
        """The estimated time relative to panels; None for a contraction that is not thin.

        The right factor is read in place if it is contiguous along the columns or the depth.
        """
        if any(map(is_symbolic, self.sizes)) or self.root.dtype.kind != "float":
            return None
        rows, columns, depth = self.sizes
        if rows > _MOST_ROWS and depth > _STEPS:
            return None
        across = self._across()
        if across is None or self._width() is None:
            return None
        if not self._left_is_in_place() and min(rows, _MOST_ROWS) * depth > _MOST_LEFT:
            return None
        products = rows * columns * depth
        packing = 0 if self.right_is_shared() else PACKING
        moved = packing * columns * depth + _STORING * rows * columns
        return _SLOWNESS[across] * products / (products / self.tile.rate + moved)

    def _across(self) -> str | None:
        """The axis of the lanes: the columns "c", or the depth "k"."""
        rows, _, depth = self.sizes
        strides = self.right_strides()
        if strides is None:
            return None
        if strides["c"] == 1:
            return "c"
        is_long = rows <= _MOST_ROWS and depth >= _SHORTEST_DEPTH
        return "k" if strides["k"] == 1 and is_long else None

    def _left_is_in_place(self) -> bool:
        strides = self.left_strides(0)
        return strides is not None and (strides["k"] == 1 or self._across() == "c")

    def _width(self) -> int | None:
        """The columns of a task, such that there are enough tasks; None if none divides them."""
        columns, batch = self.sizes[1], hint_of(math.prod(self.batch))
        found, most = None, _MOST_COLUMNS
        while most >= _FEWEST_COLUMNS:
            width = exact_block(columns, most)
            if width is not None:
                found = width
                if batch * (columns // width) >= self.threads:
                    break
            most //= 2
        return found

    def lower(self) -> LoweredKernel:
        """The nest of the contraction."""
        values, (rows, columns, depth) = self.values, self.sizes
        across, width = self._across(), self._width()
        assert width is not None
        self.is_finished = across == "c" and depth <= _STEPS
        # Many rows are distributed over many tasks.
        self.height = rows if rows <= _MOST_ROWS else exact_block(rows, self.tile.rows) or 1
        counts = (rows // self.height, columns // width, *self.batch)
        tasks = math.prod(counts)
        self.width, self.left_is_packed = width, not self._left_is_in_place()
        with values.loop("p", tasks, "parallel") as task:
            row_block, rest = task % counts[0], task // counts[0]
            column_block, batch = rest % counts[1], rest // counts[1]
            self.place = dict(zip(self.contraction.batch, index_expr.unravel(batch, self.batch)))
            self.first_row, self.first_column = row_block * self.height, column_block * width
            if not self.is_finished:
                values.emit(ir.Alloc(_TARGET, self.height * width, self.scalar))
            if self.left_is_packed:
                self._pack_left()
            if across == "k":
                self._sum_along_depth()
            else:
                self._sum_along_columns()
            if not self.is_finished:
                self._epilogue()
        elements = self.height * width * max(depth // _STEPS, 1)
        return self.finish("thin", values.body, elements)

    # --- factors ------------------------------------------------------------------------------

    def _pack_left(self) -> None:
        """Packs the rows of a task, so that their values are computed only once."""
        values, depth = self.values, self.sizes[2]
        values.emit(ir.Alloc(_LEFT, self.height * depth, self.scalar))
        with (
            values.loop("r", self.height) as row,
            values.loop("k", depth, vector=True) as step,
        ):
            outer = (self.contraction.rows, self.rows, self.first_row + row, self.sizes[0])
            value = self.factor(self.contraction.left, outer, (step, depth))
            values.emit(ir.Store(_LEFT, values.sum(row * depth + step), value))

    def _left(self, row: IndexExpr, step: IndexExpr) -> ir.Expr:
        """The left factor at a row of the task."""
        if self.left_is_packed:
            offset = self.values.sum(row * self.sizes[2] + step)
            return ir.Load(_LEFT, offset, self.scalar)
        outer = (self.contraction.rows, self.rows, self.first_row + row, self.sizes[0])
        return self.factor(self.contraction.left, outer, (step, self.sizes[2]))

    def _right(self, column: IndexExpr, step: IndexExpr) -> ir.Expr:
        """The right factor at a column of the task, bound to a name."""
        at = self.first_column + column
        outer = (self.contraction.columns, self.columns, at, self.sizes[1])
        return self._named(self.factor(self.contraction.right, outer, (step, self.sizes[2])))

    def _named(self, value: ir.Expr) -> ir.Expr:
        name = self.values.fresh("f")
        self.values.emit(ir.Let(name, value))
        return ir.Name(name, self.scalar)

    def _add(self, total: ir.Accumulator, left: ir.Expr, right: ir.Expr) -> None:
        product = ir.Apply("mul", (left, right), self.scalar, self.scalar)
        self.values.emit(ir.Accumulate(total.name, product))

    def _sums(self, count: int) -> list[ir.Accumulator]:
        return [ir.Accumulator(self.values.fresh("a"), "add", self.scalar) for _ in range(count)]

    def _row_groups(self) -> Iterator[Group]:
        return groups(self.height, balanced(self.height, self.tile.rows))

    # --- sums ---------------------------------------------------------------------------------

    def _sum_along_columns(self) -> None:
        """Sums a few steps at a time over all columns of a task."""
        values = self.values
        if not self.is_finished:
            self._clear()
        for steps in groups(self.sizes[2], _STEPS):
            with values.loop("b", steps.times) as block:
                start = block * steps.size + steps.first
                for rows in self._row_groups():
                    with (
                        values.loop("q", rows.times) as group,
                        values.loop("c", self.width, vector=True) as column,
                    ):
                        row = group * rows.size + rows.first
                        self._add_steps([row + r for r in range(rows.size)], column, start, steps)

    def _add_steps(
        self, rows: Sequence[IndexExpr], column: IndexExpr, start: IndexExpr, steps: Group
    ) -> None:
        """Sums a group of steps from `start` on, for some rows of a column."""
        values, sums = self.values, self._sums(len(rows))
        with values.loop("k", steps.size, accumulators=sums) as k:
            right = self._right(column, start + k)
            for row, total in zip(rows, sums):
                self._add(total, self._left(row, start + k), right)
        for row, total in zip(rows, sums):
            found = ir.Name(total.name, self.scalar)
            if self.is_finished:
                self._result(row, column, found)
            else:
                at = values.sum(row * self.width + column)
                values.emit(ir.Update(_TARGET, at, "add", found))

    def _clear(self) -> None:
        values, size = self.values, self.height * self.width
        with values.loop("z", size, vector=True) as place:
            values.emit(ir.Store(_TARGET, values.sum(place), ir.Number(0, self.scalar)))

    def _sum_along_depth(self) -> None:
        """Sums a few columns at a time with all rows of a task."""
        values = self.values
        # A row of the register tile has two vectors.
        height = balanced(self.height, self.tile.rows)
        for columns in groups(self.width, max(2 * self.tile.rows // height, 1)):
            with values.loop("s", columns.times) as strip:
                first = strip * columns.size + columns.first
                beside = [first + c for c in range(columns.size)]
                for rows in self._row_groups():
                    with values.loop("q", rows.times) as group:
                        row = group * rows.size + rows.first
                        self._add_lanes([row + r for r in range(rows.size)], beside)

    def _add_lanes(self, rows: Sequence[IndexExpr], columns: Sequence[IndexExpr]) -> None:
        """Sums over the whole depth, for some rows and columns."""
        values, depth = self.values, self.sizes[2]
        sums = self._sums(len(rows) * len(columns))
        with values.loop("k", depth, accumulators=sums, vector=True) as step:
            totals = iter(sums)
            right = [self._right(column, step) for column in columns]
            for row in rows:
                left = self._named(self._left(row, step))
                for one in right:
                    self._add(next(totals), left, one)
        for total, (row, column) in zip(sums, itertools.product(rows, columns)):
            at = values.sum(row * self.width + column)
            values.emit(ir.Store(_TARGET, at, ir.Name(total.name, self.scalar)))

    # --- results ------------------------------------------------------------------------------

    def _result(self, row: IndexExpr, column: IndexExpr, total: ir.Expr) -> None:
        rows, columns, _ = self.sizes
        at = (self.first_row + row, rows), (self.first_column + column, columns)
        self.results(*at, total)

    def _epilogue(self) -> None:
        """Stores the sums in scratch memory through the epilogue."""
        values = self.values
        with (
            values.loop("m", self.height) as row,
            values.loop("n", self.width, vector=True) as column,
        ):
            offset = values.sum(row * self.width + column)
            self._result(row, column, ir.Load(_TARGET, offset, self.scalar))
