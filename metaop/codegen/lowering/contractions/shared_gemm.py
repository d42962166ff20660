"""The schedule of contractions on a GPU: tiles of shared memory, a register tile per thread.

A thread block owns a block of the result. For each step of the depth, its threads copy a panel of
both factors, evaluated through their index maps, to shared memory. Each thread adds the product to
its tile of registers, which at the end goes through the epilogue.

The steps are a pipeline. The elements of the next step are read into registers before this step is
multiplied, so that arithmetic hides the latency of memory. Panels have two slots in turn, so that
the threads of a block wait for each other once per step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.contractions.axes import ContractionAxes, Outer
from metaop.codegen.lowering.contractions.depth_order import WARP, depth_order, sectors
from metaop.codegen.lowering.contractions.packed_gemm import PackedGemm
from metaop.codegen.lowering.contractions.shared_tiles import (
    LAUNCH,
    PADDING,
    SLOTS,
    Product,
    SharedTile,
    best_tile,
)
from metaop.codegen.nest import ir
from metaop.codegen.nest.neighbours import is_group_of_neighbours, loads
from metaop.fusion.cases import WHOLE, cases
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node

# The neighbouring elements of a thread's tile that one instruction reads from shared memory.
_GROUP = 4
# The lanes of a warp that lie side by side, if the tile is wide enough.
_ACROSS = 8

# An index along a side of a panel, and one along the depth.
Pair = tuple[IndexExpr, IndexExpr]
# The number of an element besides.
Triple = tuple[IndexExpr, IndexExpr, IndexExpr]


class Copied(NamedTuple):
    """How the threads of a block read a factor: along the depth or across it, some at once."""

    along_depth: bool
    together: int


class Side(NamedTuple):
    """A factor with its outer axes, and the panels of it.

    `outer` has the first row or column of the block, `length` is how many it has. `copied` says how
    threads read it. `panel` is the number of the shared memory, `fetched` that of registers.
    """

    factor: Node
    outer: Outer
    length: int
    copied: Copied
    panel: int
    fetched: int

    @property
    def stride(self) -> int:
        """The distance of two steps of a panel."""
        return self.length + PADDING


class SharedGemm(PackedGemm):
    """Lowers one contraction with its epilogue for a GPU; `threads` counts multiprocessors."""

    # The neighbours in memory that threads copy at once: 16 bytes.
    together = 4
    tile: SharedTile

    @classmethod
    def launches(
        cls,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        tile: Tile,
        threads: int,
    ) -> list[LoweredKernel]:
        """One launch of the whole contraction, or one per case if these are faster.

        A case has fewer blocks, which may leave multiprocessors idle, and every launch takes time.
        """
        assert kernel.contraction is not None
        parts = cases(kernel.contraction, kernel.shape, storage.has_buffer)
        whole, *several = (
            cls(kernel, storage, uses, tile, threads, one) for one in (WHOLE, *parts)
        )
        if sum(part.clocks(threads) for part in several) < whole.clocks(threads):
            return super().launches(kernel, storage, uses, tile, threads)
        return [*whole.preparations(), whole.lower()]

    def clocks(self, processors: int) -> float:
        """The clocks of a launch."""
        return LAUNCH + (0 if self.case.is_empty else best_tile(self._product(), processors).clocks)

    def _choose_blocks(self, tile: Tile, threads: int) -> None:
        self.prepared = self.packed = None
        self._order_depth()
        self.tile = best_tile(self._product(), threads).tile  # type: ignore[assignment]
        self.block_rows, self.block_columns = self.tile.rows, self.tile.columns

    def _order_depth(self) -> None:
        order = depth_order(self.contraction, self.kernel.shape)
        self.contraction = replace(self.contraction, depth=order)
        self.depth = self._depth_extents()

    def _product(self) -> Product:
        extents = (self.batch, self.rows, self.columns, self.depth)
        sizes = [math.prod(one) for one in extents]
        return Product.of(self.contraction, self.kernel.shape, sizes, self.scalar)

    def lower(self) -> LoweredKernel:
        if self.case.is_empty:
            return self.lower_empty()
        rows, columns, depth = (
            math.prod(extents) for extents in (self.rows, self.columns, self.depth)
        )
        steps = -(-depth // self.tile.depth)
        # What is left over comes first, so that all others are whole and need no guards.
        first = self._padded(depth) - (steps - 1) * self.tile.depth
        with self._blocks(rows, columns):
            self._allocate()
            self._clear()
            self._fetch(index_expr.constant(0), first)
            with self.values.loop("kb", steps) as step:
                self._share(step)
                if steps > 1:
                    # After the last step, the second is read again rather than nothing.
                    following = step % (steps - 1) * self.tile.depth + first
                    self._fetch(following, depth)
                self._multiply_shared(step)
            self._store_tile(rows, columns)
        return self.finish("contraction", self.values.body)

    def _padded(self, depth: int) -> int:
        """The depth, or a larger one so that steps begin where factors have whole parts."""
        return depth

    @contextmanager
    def _blocks(self, rows: int, columns: int) -> Iterator[None]:
        """The loop over the blocks of the result."""
        row_blocks = -(-rows // self.block_rows)
        column_blocks = -(-columns // self.block_columns)
        tasks = math.prod(self.batch) * row_blocks * column_blocks
        with self.values.loop("p", tasks, "parallel") as task:
            self.row_start = (task % row_blocks) * self.block_rows
            rest = task // row_blocks
            self.column_start = (rest % column_blocks) * self.block_columns
            batch = index_expr.unravel(rest // column_blocks, self.batch)
            self.place = dict(zip(self.contraction.batch, batch))
            yield

    def _threads(self) -> AbstractContextManager[IndexExpr]:
        """The loop over the threads of a block."""
        return self.values.loop("t", self.tile.threads, vector=True)

    def _allocate(self) -> None:
        tile = self.tile
        self.target, contraction = -3, self.contraction
        rows, columns = math.prod(self.rows), math.prod(self.columns)
        left = (contraction.rows, self.rows, self.row_start, rows)
        right = (contraction.columns, self.columns, self.column_start, columns)
        self.sides = (
            Side(contraction.left, left, tile.rows, self._copied(True), -1, -4),
            Side(contraction.right, right, tile.columns, self._copied(False), -2, -5),
        )
        for side in self.sides:
            panels = SLOTS * self._panel_size(side)
            self.values.emit(ir.Alloc(side.panel, panels, self.multiplied, "shared"))
            each = tile.depth * side.length // tile.threads
            self.values.emit(ir.Alloc(side.fetched, each, self.multiplied, "register"))
        self.values.emit(ir.Alloc(self.target, tile.sums, self.scalar, "register"))

    def _clear(self) -> None:
        values = self.values
        with self._threads(), values.loop("i", self.tile.sums, "unroll") as element:
            values.emit(ir.Store(self.target, values.sum(element), ir.Number(0, self.scalar)))

    def _elements(self, side: Side, turn: IndexExpr, thread: IndexExpr) -> Pair:
        """The row or column, and the step, of the first elements that a thread copies at once.

        The elements of a thread have the same step if possible, so that its index is computed once.
        """
        depth, threads, together = self.tile.depth, self.tile.threads, side.copied.together
        if side.copied.along_depth:
            width = depth // together
            return turn * (threads // width) + thread // width, thread % width * together
        width = min(max(threads // depth, _ACROSS), side.length // together)
        turns = side.length // together // width
        inside = (turn % turns * width + thread % width) * together
        return inside, turn // turns * (threads // width) + thread // width

    @contextmanager
    def _copies(self, side: Side) -> Iterator[Triple]:
        """The loops over the elements of a panel: which one of a thread, and where it lies."""
        tile, loop, (along_depth, together) = self.tile, self.values.loop, side.copied
        each, left = divmod(tile.depth * side.length, tile.threads * together)
        assert not left, "threads copy the same number of parts, which are the whole panel"
        with (
            self._threads() as thread,
            loop("c", each, "unroll") as turn,
            loop("v", together, "unroll", vector=True) as one,
        ):
            inside, step = self._elements(side, turn, thread)
            place = (inside, step + one) if along_depth else (inside + one, step)
            yield turn * together + one, *place

    def _fetch(self, start: IndexExpr, depth: int) -> None:
        """Reads the elements of a step into registers; those at `depth` or beyond are zero."""
        for side in self.sides:
            axes, extents, first, bound = side.outer
            with self._copies(side) as (number, inside, step):
                outer = (axes, extents, first + inside, bound)
                value = self._element(side, outer, (start + step, depth))
                self.values.emit(ir.Store(side.fetched, self.values.sum(number), value))

    def _element(self, side: Side, outer: Outer, inner: tuple[IndexExpr, int]) -> ir.Expr:
        return self.factor(side.factor, outer, inner)

    def _share(self, step: IndexExpr) -> None:
        """Copies the elements in registers to a slot of shared memory."""
        for side in self.sides:
            with self._copies(side) as (number, inside, k):
                place = self._slot(side, step) + self._place_in_panel(side, inside, k)
                value = ir.Load(side.fetched, self.values.sum(number), self.multiplied)
                self.values.emit(ir.Store(side.panel, self.values.sum(place), value))

    def _slot(self, side: Side, step: IndexExpr) -> IndexExpr:
        """The start of the panel of a step."""
        return step % SLOTS * self._panel_size(side)

    def _panel_size(self, side: Side) -> int:
        """The elements of a panel in shared memory: [depth][side]."""
        return self.tile.depth * side.stride

    def _place_in_panel(self, side: Side, inside: IndexExpr, step: IndexExpr) -> IndexExpr:
        return step * side.stride + inside

    def _copied(self, is_left: bool) -> Copied:
        """How a factor is copied: where it is contiguous, or else so that warps touch least."""
        tile, depth = self.tile, math.prod(self.depth)
        length, bound = tile.columns, math.prod(self.columns)
        if is_left:
            length, bound = tile.rows, math.prod(self.rows)
        group = self.together
        is_whole = tile.depth * length % (group * tile.threads) == 0
        for along_depth, extent in ((True, depth), (False, bound)):
            if is_whole and extent % group == 0 and self._is_contiguous(is_left, along_depth):
                return Copied(along_depth, group)
        lane = np.arange(WARP)
        along = {"row": lane // tile.depth % bound, "step": lane % tile.depth % depth}
        across = {"row": lane % bound, "step": 0 * lane}
        places = self._probed(is_left, {}).values.places
        return Copied(sectors(places, along) < sectors(places, across), 1)

    def _is_contiguous(self, is_left: bool, along_depth: bool) -> bool:
        """Whether all that is read of a factor comes in groups of neighbours."""
        place = {"step" if along_depth else "row": self.together}
        reads = loads(self._probed(is_left, place).values.body)
        return all(is_group_of_neighbours(load, "v", self.together) for load in reads)

    def _probed(self, is_left: bool, groups: dict[str, int]) -> ContractionAxes:
        """A kernel that only reads a factor, at all rows (or columns) and steps.

        Those of an axis in `groups` are visited in groups with the axis "v".
        """
        factor = self.contraction.left if is_left else self.contraction.right
        axes = self.contraction.rows if is_left else self.contraction.columns
        extents = self.rows if is_left else self.columns
        bounds = {"row": math.prod(extents), "step": math.prod(self.depth)}
        probe = ContractionAxes(self.kernel, self.storage, self.values.uses, self.case)
        probe.contraction, probe.depth = self.contraction, self.depth
        values, at = probe.values, {}
        batch = zip(self.contraction.batch, self.batch)
        with ExitStack() as loops:
            enter = loops.enter_context
            probe.place = {k: enter(values.loop(f"b{k}", extent)) for k, extent in batch}
            for name, bound in bounds.items():
                width = groups.get(name, 1)
                first = enter(values.loop(name, bound // width)) * width
                at[name] = first + enter(values.loop("v" if width > 1 else "", width))
            outer = axes, extents, at["row"], bounds["row"]
            value = probe.factor(factor, outer, (at["step"], bounds["step"]))
            values.emit(ir.Store(-1, values.sum(index_expr.constant(0)), value))
        return probe

    def _multiply_shared(self, number: IndexExpr) -> None:
        """Adds the product of the panels of a step to the tiles."""
        values, own_depth = self.values, self.tile.depth // self.tile.slices
        with (
            self._threads() as thread,
            values.loop("k", own_depth, "unroll") as k,
            self._own_tile(thread) as (own, row, column),
        ):
            step = self._slice(thread) * own_depth + k
            factors = tuple(
                ir.Load(
                    side.panel,
                    values.sum(self._slot(side, number) + self._place_in_panel(side, inside, step)),
                    self.scalar,
                )
                for side, inside in zip(self.sides, (row, column))
            )
            product = ir.Apply("mul", factors, self.scalar, self.scalar)
            values.emit(ir.Update(self.target, values.sum(own), "add", product))

    @contextmanager
    def _own_tile(self, thread: IndexExpr) -> Iterator[tuple[IndexExpr, IndexExpr, IndexExpr]]:
        """The loops over a thread's tile: an element's place in it, and its row and column.

        Those are counted within the block.
        """
        tile, loop = self.tile, self.values.loop
        down, across = self._position(thread)

        def position(own: IndexExpr, place: IndexExpr, part: int, side: int) -> IndexExpr:
            group = min(part, _GROUP)
            spread = side // part * group
            return own // group * spread + place * group + own % group

        group = min(tile.across, _GROUP)
        with (
            loop("i", tile.down, "unroll") as i,
            loop("g", tile.across // group, "unroll") as first,
            loop("v", group, "unroll", vector=True) as one,
        ):
            j = first * group + one
            row = position(i, down, tile.down, tile.rows)
            yield i * tile.across + j, row, position(j, across, tile.across, tile.columns)

    def _slice(self, thread: IndexExpr) -> IndexExpr:
        """The slice of the threads of a block to which a thread belongs."""
        return thread // (self.tile.threads // self.tile.slices)

    def _position(self, thread: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
        """The row and the column of a thread's tile among those of a block.

        The tiles of a warp form a rectangle, so that it reads little of both panels. Two
        neighbouring lanes lie below each other: they then read the same columns, and a half of the
        warp reads all its columns at once.
        """
        thread = thread % (self.tile.threads // self.tile.slices)
        count = self.tile.columns // self.tile.across
        width = math.gcd(count, _ACROSS)
        lane, warp, warps = thread % WARP, thread // WARP, count // width
        down = lane // (2 * width) * 2 + lane % 2
        across = lane % (2 * width) // 2
        return warp // warps * (WARP // width) + down, warp % warps * width + across

    def _store_tile(self, rows: int, columns: int) -> None:
        if self.tile.slices > 1:
            self._store_slices(rows, columns)
            return
        with self._threads() as thread, self._own_tile(thread) as (own, row, column):
            self.results(
                (self.row_start + row, rows),
                (self.column_start + column, columns),
                ir.Load(self.target, self.values.sum(own), self.scalar),
            )

    def _store_slices(self, rows: int, columns: int) -> None:
        """Adds the sums of all slices in shared memory, in place of a panel."""
        values, tile, (panel, _) = self.values, self.tile, self.sides
        stride = tile.columns + PADDING

        def place(part: IndexExpr | int, row: IndexExpr, column: IndexExpr) -> ir.Sum:
            return values.sum((row + part * tile.rows) * stride + column)

        with self._threads() as thread, self._own_tile(thread) as (own, row, column):
            value = ir.Load(self.target, values.sum(own), self.scalar)
            values.emit(ir.Store(panel.panel, place(self._slice(thread), row, column), value))
        each = tile.rows * tile.columns // tile.threads
        together = min(each, _GROUP)
        with (
            self._threads() as thread,
            values.loop("c", each // together, "unroll") as turn,
            values.loop("v", together, "unroll", vector=True) as one,
        ):
            element = (turn * tile.threads + thread) * together + one
            row, column = element // tile.columns, element % tile.columns
            parts = (
                ir.Load(panel.panel, place(part, row, column), self.scalar)
                for part in range(tile.slices)
            )
            total: ir.Expr = next(parts)
            for part in parts:
                total = ir.Apply("add", (total, part), self.scalar, self.scalar)
            self.results((self.row_start + row, rows), (self.column_start + column, columns), total)
