"""The schedule of thin contractions: few rows, or sums of few products.

Packing a factor takes about as long as multiplying it by so little, so the right factor is read
where it lies; what bounds the time then is memory. Lanes run along the axis on which neighbours lie
side by side. Where that are columns, a task goes through them with a few steps of the depth at a
time, each of which is a stretch of memory. Sums stay in registers during these steps, and in
scratch memory between them. Where it is the depth, a few rows meet a few columns, and lanes are
added up at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from metaop.codegen import loop_nest as ir
from metaop.codegen.lowering.base import LoweredKernel
from metaop.codegen.lowering.blocks import PACKING, Tile, balanced, exact_block
from metaop.codegen.lowering.contraction_axes import ContractionAxes
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of, is_symbolic

# Steps of the depth between two visits of the sums in memory: so many stretches of memory are read
# side by side, which processors foresee, and whole lines of the left factor.
_STEPS = 16
# Contractions of more rows have more than `_STEPS` products in few sums only.
_MOST_ROWS = 32
# Columns of a task: long stretches of memory, and sums that stay in a near cache.
_MOST_COLUMNS, _FEWEST_COLUMNS = 1024, 128
# Lanes along a depth that is shorter take longer to be added up than to multiply.
_SHORTEST_DEPTH = 128
# Numbers of a left factor that a task brings into order.
_MOST_LEFT = 1 << 16
# Products take so many times as long as in panels, by the axis of the lanes: both factors are read
# again and again, and sums are written between or lanes added up.
_SLOWNESS = {"c": 1.5, "k": 1.65}
# Panels write their sums to scratch memory first, which takes as long as so many products.
_STORING = 16
_TARGET, _LEFT = -1, -2


class Group(NamedTuple):
    """So many times so many neighbours, from the first on."""

    first: int
    times: int
    size: int


def groups(extent: int, size: int) -> Iterator[Group]:
    """Neighbours in groups of a size, and those that are left."""
    times, rest = divmod(extent, size)
    if times:
        yield Group(0, times, size)
    if rest:
        yield Group(times * size, 1, rest)


class Thin(ContractionAxes):
    """A contraction of few rows or few steps, of which the right factor is read where it lies.

    Sums of at most `_STEPS` products of each result never leave the registers.
    """

    def __init__(
        self, kernel: Kernel, storage: Storage, uses: dict[Node, int], tile: Tile, threads: int
    ) -> None:
        super().__init__(kernel, storage, uses)
        self.tile, self.threads = tile, threads
        self.sizes = tuple(math.prod(x) for x in (self.rows, self.columns, self.depth))

    def share(self) -> float | None:
        """The time relative to that of panels as a model estimates it; None for what is not thin.

        A factor is read where it lies if neighbours do so along the columns or the depth.
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
        """The way that lanes take: along the columns "c", or the depth "k"."""
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
        """The columns of a task, such that there are enough tasks; None where none divides them."""
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
        # Rows that are many belong to many tasks.
        self.height = rows if rows <= _MOST_ROWS else exact_block(rows, self.tile.rows) or 1
        counts = (rows // self.height, columns // width, *self.batch)
        tasks = math.prod(counts)
        values.open("p")
        task = index_expr.axis("p", tasks)
        row_block, rest = task % counts[0], task // counts[0]
        column_block, batch = rest % counts[1], rest // counts[1]
        self.place = dict(zip(self.contraction.batch, index_expr.unravel(batch, self.batch)))
        self.first_row, self.first_column = row_block * self.height, column_block * width
        self.width = width
        if not self.is_finished:
            values.emit(ir.Alloc(_TARGET, self.height * width, self.scalar))
        self.left_is_packed = not self._left_is_in_place()
        if self.left_is_packed:
            self._pack_left()
        if across == "k":
            self._sum_along_depth()
        else:
            self._sum_along_columns()
        if not self.is_finished:
            self._epilogue()
        values.emit(ir.For("p", tasks, "parallel", values.close()))
        elements = self.height * width * max(depth // _STEPS, 1)
        return self.finish("thin", values.close(), elements)

    # --- factors ------------------------------------------------------------------------------

    def _pack_left(self) -> None:
        """The rows of a task one after another: what is computed for them is so only once."""
        values, depth = self.values, self.sizes[2]
        values.emit(ir.Alloc(_LEFT, self.height * depth, self.scalar))
        values.open("r")
        values.open("k")
        row, step = index_expr.axis("r", self.height), index_expr.axis("k", depth)
        outer = (self.contraction.rows, self.rows, self.first_row + row, self.sizes[0])
        value = self.factor(self.contraction.left, outer, (step, depth))
        values.emit(ir.Store(_LEFT, values.sum(row * depth + step), value))
        values.emit(ir.For("k", depth, "serial", values.close(), (), True))
        values.emit(ir.For("r", self.height, "serial", values.close()))

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

    def _add(self, name: str, left: ir.Expr, right: ir.Expr) -> None:
        product = ir.Apply("mul", (left, right), self.scalar, self.scalar)
        self.values.emit(ir.Accumulate(name, product))

    def _sums(self, count: int) -> tuple[list[str], tuple[ir.Accumulator, ...]]:
        names = [self.values.fresh("a") for _ in range(count)]
        return names, tuple(ir.Accumulator(name, "add", self.scalar) for name in names)

    def _row_groups(self) -> Iterator[Group]:
        return groups(self.height, balanced(self.height, self.tile.rows))

    # --- sums ---------------------------------------------------------------------------------

    def _sum_along_columns(self) -> None:
        """A few steps at a time, through all columns of a task."""
        values, column = self.values, index_expr.axis("c", self.width)
        if not self.is_finished:
            self._clear()
        for steps in groups(self.sizes[2], _STEPS):
            values.open("b")
            start = index_expr.axis("b", steps.times) * steps.size + steps.first
            for rows in self._row_groups():
                values.open("q")
                row = index_expr.axis("q", rows.times) * rows.size + rows.first
                values.open("c")
                names, accumulators = self._sums(rows.size)
                values.open("k")
                step = start + index_expr.axis("k", steps.size)
                right = self._right(column, step)
                for r, name in enumerate(names):
                    self._add(name, self._left(row + r, step), right)
                values.emit(ir.For("k", steps.size, "serial", values.close(), accumulators))
                for r, name in enumerate(names):
                    total = ir.Name(name, self.scalar)
                    if self.is_finished:
                        self._result(row + r, column, total)
                    else:
                        at = values.sum((row + r) * self.width + column)
                        values.emit(ir.Update(_TARGET, at, "add", total))
                values.emit(ir.For("c", self.width, "serial", values.close(), (), True))
                values.emit(ir.For("q", rows.times, "serial", values.close()))
            values.emit(ir.For("b", steps.times, "serial", values.close()))

    def _clear(self) -> None:
        values, size = self.values, self.height * self.width
        values.open("z")
        offset = values.sum(index_expr.axis("z", size))
        values.emit(ir.Store(_TARGET, offset, ir.Number(0, self.scalar)))
        values.emit(ir.For("z", size, "serial", values.close(), (), True))

    def _sum_along_depth(self) -> None:
        """A few columns at a time, with all rows of a task."""
        values, depth = self.values, self.sizes[2]
        step = index_expr.axis("k", depth)
        # The register tile has two vectors in a row.
        height = balanced(self.height, self.tile.rows)
        for columns in groups(self.width, max(2 * self.tile.rows // height, 1)):
            values.open("s")
            column = index_expr.axis("s", columns.times) * columns.size + columns.first
            for rows in self._row_groups():
                values.open("q")
                row = index_expr.axis("q", rows.times) * rows.size + rows.first
                names, accumulators = self._sums(rows.size * columns.size)
                values.open("k")
                right = [self._right(column + c, step) for c in range(columns.size)]
                for r in range(rows.size):
                    left = self._named(self._left(row + r, step))
                    for c, one in enumerate(right):
                        self._add(names[r * columns.size + c], left, one)
                values.emit(ir.For("k", depth, "serial", values.close(), accumulators, True))
                for k, name in enumerate(names):
                    r, c = divmod(k, columns.size)
                    at = values.sum((row + r) * self.width + column + c)
                    values.emit(ir.Store(_TARGET, at, ir.Name(name, self.scalar)))
                values.emit(ir.For("q", rows.times, "serial", values.close()))
            values.emit(ir.For("s", columns.times, "serial", values.close()))

    # --- results ------------------------------------------------------------------------------

    def _result(self, row: IndexExpr, column: IndexExpr, total: ir.Expr) -> None:
        rows, columns, _ = self.sizes
        at = (self.first_row + row, rows), (self.first_column + column, columns)
        self.results(*at, total)

    def _epilogue(self) -> None:
        """Stores the sums in scratch memory through what was fused behind the contraction."""
        values = self.values
        values.open("m")
        values.open("n")
        row, column = index_expr.axis("m", self.height), index_expr.axis("n", self.width)
        offset = values.sum(row * self.width + column)
        self._result(row, column, ir.Load(_TARGET, offset, self.scalar))
        values.emit(ir.For("n", self.width, "serial", values.close(), (), True))
        values.emit(ir.For("m", self.height, "serial", values.close()))
