"""The schedule of contractions: panels packed through index maps, a register-tiled inner product.

A task owns a block of the result. For each block of the depth it packs a panel of the right factor
as strips [strip][k][columns] and of the left factor as [panel][k][rows], padded to whole vectors;
the micro-kernel adds their product to a tile in scratch memory. After the last block, the epilogue
processes the tile and stores it. Packing evaluates the index maps, so padding, strides, gathers and
elementwise producers cost no extra pass.

If factors are bfloat16, or integers of 16 or 8 bits, some processors multiply neighbours along the
depth in one step. The panels then hold pairs or fours, and for matrix registers the left ones are
[panel][row][k].
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.base.tasks import (
    DEPTH_BLOCK,
    TASK,
    Blocks,
    bind_tiles,
    count_name,
    task_loop,
)
from metaop.codegen.lowering.contractions.axes import Outer, unravel_within
from metaop.codegen.lowering.contractions.prefetch import Read, left_prefetches, right_prefetches
from metaop.codegen.lowering.contractions.prepacked import lower_packing, lower_relayout
from metaop.codegen.lowering.contractions.regions import steps_that_matter
from metaop.codegen.lowering.contractions.tiling import Tiling
from metaop.codegen.lowering.scatters.scatter import fill_with
from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import Extent, RuntimeExtent
from metaop.fusion.cases import WHOLE, cases
from metaop.fusion.kernel import Kernel, box_axes
from metaop.fusion.storage import Storage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, Within
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import divides, hint_of, is_symbolic, surely_equal

# The steps packed at a time where the tiles of a step are neighbours in memory: whole lines of few
# pages are read, and whole lines are written.
_STEPS_TOGETHER = 8


class _Tiles(NamedTuple):
    """The tiles of a factor in scratch memory: [tile][step][lane].

    `outer` has the rows or columns of the factor, their extents and their number; `place` says
    where a tile begins among them. Their loop has the name `axis`.
    """

    factor: Node
    buffer: int
    axis: str
    extent: Extent
    lanes: int
    outer: tuple[tuple[int, ...], list[int], int]
    place: Callable[[IndexExpr], IndexExpr]


class PackedGemm(Tiling):
    """Lowers one contraction with its epilogue."""

    @classmethod
    def launches(
        cls,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        tile: Tile,
        threads: int,
    ) -> list[LoweredKernel]:
        """The launches of all cases, each after what prepares its factors."""
        assert kernel.contraction is not None
        parts = cases(kernel.contraction, kernel.shape, storage.has_buffer)
        filled = _filled(kernel, storage) if any(case.is_empty for case in parts) else []
        found = list(filled)
        for case in parts:
            if case.is_empty and filled:
                continue
            # Each launch has a nest, and so a tiling, of its own.
            made = partial(cls, kernel, storage, uses, tile, threads, case)
            one = made()
            found += one.preparations()
            found += [lower_relayout(made())] if one.prepared is not None else []
            found += [lower_packing(made())] if one.packed is not None else []
            found.append(one.lower())
        return found

    def preparations(self) -> list[LoweredKernel]:
        """Other launches that come before."""
        return []

    def lower(self) -> LoweredKernel:
        """The nest of the contraction itself."""
        if self.case.is_empty:
            return self.lower_empty()
        values = self.values
        rows, columns, depth = (
            math.prod(extents) for extents in (self.rows, self.columns, self.depth)
        )
        # All columns of a row block are consecutive, so tasks can be cut into slices of rows.
        batch_blocks = Blocks("batch", math.prod(self.batch), 1)
        directions = self.strip_blocks, self.panel_blocks, batch_blocks
        with task_loop(values, directions) as (strip, panel, batch):
            self._start_block(strip, panel, batch)
            run_blocks = -(-self.run // self.block_depth)
            depth_blocks = depth // self.run * run_blocks
            self._choose_target(depth_blocks)
            self._allocate()
            extent = 1 if self.is_finished else depth_blocks
            with values.loop(DEPTH_BLOCK, extent, counted=not self.is_finished) as block:
                start = block // run_blocks * self.run + block % run_blocks * self.block_depth
                if self.packed is None:
                    self._pack_right(start, depth, columns)
                    self._follow(directions, block, depth_blocks)
                if self.left_stride is None:
                    self._pack_left(start, depth, rows)
                self._multiply(block, start, (rows, columns))
            if not self.is_finished:
                self._epilogue((rows, columns))
        return self.finish("contraction", values.body)

    def _start_block(self, strip: IndexExpr, panel: IndexExpr, batch: IndexExpr) -> None:
        """The block of a task: its first strip, its first panel, and its batch index."""
        self.first_strip, self.first_panel = strip, panel
        self.pitch = ir.pitch_of(self.tile_rows)
        self.strips, self.panels = _tiles_of(self.strip_blocks), _tiles_of(self.panel_blocks)
        self.place = dict(zip(self.contraction.batch, index_expr.unravel(batch, self.batch)))

    def _choose_target(self, depth_blocks: int) -> None:
        """Chooses what part of the result is in scratch memory: a whole block, or a tile.

        With one block of the depth, a tile is finished while it is in the nearest cache. Symbolic
        sizes that give several blocks may also give one.
        """
        self.is_finished = hint_of(depth_blocks) == 1 and depth_blocks == 1
        self.target_rows, self.target_columns = (
            (self.tile_rows, self.tile_columns)
            if self.is_finished
            else (self.block_rows, self.block_columns)
        )

    def _allocate(self) -> None:
        """Numbers the scratch buffers, after all parameters."""
        self.right, self.left, self.target = -1, -2, -3
        right_steps, left_steps = self._packed_steps()
        sizes = (
            (self.right, right_steps * self.block_columns, self.panel),
            (self.left, left_steps * self.panel_blocks.tiles, self.left_panel),
            (self.target, self.target_rows * self.target_columns, self.scalar),
        )
        elsewhere = {self.left: self.left_stride is not None, self.right: self.packed is not None}
        for number, elements, dtype in sizes:
            if not elsewhere.get(number):
                self.values.emit(ir.Alloc(number, elements, dtype))

    def _packed_steps(self) -> tuple[int, int]:
        """The packed elements per column of the right factor and per panel of the left."""
        pairs = self.block_depth // self.together
        rows = self.block_depth * self.tile_rows
        return pairs, rows if self.packs_rows else pairs * self.pitch

    # --- packing ------------------------------------------------------------------------------

    def _pack_right(self, start: IndexExpr, depth: int, columns: int) -> None:
        contraction, known, strides = self.contraction, len(self.values.reads), self.right_strides()
        tiles = _Tiles(
            contraction.right,
            self.right,
            "s",
            self.strips,
            self.tile_columns,
            (contraction.columns, self.columns, columns),
            self._column_of,
        )
        if self._has_plain_depth and strides is not None and strides["c"] == 1:
            self._pack_across(tiles, (start, depth))
        else:
            self._pack_along(tiles, (start, depth))
        self.right_reads = self.values.reads[known:]

    def _pack_left(self, start: IndexExpr, depth: int, rows: int) -> None:
        if self.packs_rows:
            self._pack_rows(start, depth, rows)
            return
        contraction = self.contraction
        tiles = _Tiles(
            contraction.left,
            self.left,
            "q",
            self.panels,
            self.pitch,
            (contraction.rows, self.rows, rows),
            self._row_of,
        )
        if self.rows_are_neighbours():
            self._pack_across(tiles, (start, depth))
        else:
            self._pack_along(tiles, (start, depth), self.tile_rows)

    def _pack_rows(self, start: IndexExpr, depth: int, rows: int) -> None:
        """Packs the left factor row by row: lanes run along the depth."""
        values = self.values
        with (
            values.loop("q", self.panels, counted=True) as panel,
            values.loop("k", self.block_depth, vector=True) as step,
            values.loop("r", self.tile_rows) as lane,
        ):
            row = panel * self.tile_rows + lane
            place = self.first_panel * self.tile_rows + row
            outer = (self.contraction.rows, self.rows, place, rows)
            value = self.factor(self.contraction.left, outer, (start + step, depth))
            value = ir.Apply("cast", (value,), self.left_panel, self.scalar)
            values.emit(ir.Store(self.left, values.sum(row * self.block_depth + step), value))

    def _pack_across(self, tiles: _Tiles, bounds: tuple[IndexExpr, int]) -> None:
        """Packs a few steps of all tiles, then the next ones."""
        values = self.values
        steps = self.block_depth // self.together
        together = 1 if is_symbolic(steps) else math.gcd(steps, _STEPS_TOGETHER)
        axes, extents, count = tiles.outer
        with (
            values.loop("g", steps // together, counted=True) as group,
            values.loop(tiles.axis, tiles.extent, counted=True) as tile,
        ):
            place = tiles.place(tile)
            with (
                values.loop("k", together) as inside,
                values.loop("l", tiles.lanes, vector=True) as lane,
            ):
                step = group * together + inside
                outer = (axes, extents, place + lane, count)
                value = self._packed_value(tiles.factor, outer, bounds, step)
                offset = (tile * steps + step) * tiles.lanes + lane
                values.emit(ir.Store(tiles.buffer, values.sum(offset), value))

    def _pack_along(
        self, tiles: _Tiles, bounds: tuple[IndexExpr, int], lanes: int | None = None
    ) -> None:
        """Packs all steps of a tile, then the next tile; zeros stand behind so many `lanes`."""
        values = self.values
        size = self.block_depth // self.together * tiles.lanes
        axes, extents, count = tiles.outer
        with values.loop(tiles.axis, tiles.extent, counted=True) as tile:
            place = tiles.place(tile)
            with values.loop("l", tiles.lanes, vector=True) as lane:
                outer, offset = (axes, extents, place + lane, count), tile * size + lane
                guards = () if lanes is None else (Within(lane, lanes),)
                self.pack(tiles.factor, tiles.buffer, outer, bounds, offset, tiles.lanes, guards)

    def _packed_value(
        self,
        factor: Node,
        outer: Outer,
        bounds: tuple[IndexExpr, int],
        step: IndexExpr,
        guards: tuple[Guard, ...] = (),
    ) -> ir.Expr:
        """The packed element of a step: one element, or neighbours along the depth."""
        start, depth = bounds
        places = (start + step * self.together + k for k in range(self.together))
        numbers = [self.factor(factor, outer, (place, depth), guards) for place in places]
        if self.scalar is dtypes.int32:
            return _side_by_side(numbers)
        if len(numbers) == 1:
            return numbers[0]
        return ir.Apply("bfloat16_pair", tuple(numbers), self.panel, self.scalar)

    def pack(
        self,
        factor: Node,
        number: int,
        outer: Outer,
        bounds: tuple[IndexExpr, int],
        offset: IndexExpr,
        stride: int,
        guards: tuple[Guard, ...] = (),
    ) -> None:
        """Stores `factor` for a position and a block of depths, or zeros unless guards hold."""
        values = self.values
        steps, inner = self.block_depth // self.together, self.inner // self.together
        if not divides(self.together, self.inner) or not divides(inner, steps):
            inner = steps
        strides = inner, 1
        if self.offsets_inside > 1:
            inner, strides = steps // self.offsets_inside, (1, self.offsets_inside)
        with contextlib.ExitStack() as loops:
            window = index_expr.constant(0)
            if not surely_equal(inner, steps):
                window = loops.enter_context(values.loop("w", steps // inner))
            channel = loops.enter_context(values.loop("k", inner))
            step = window * strides[0] + channel * strides[1]
            value = self._packed_value(factor, outer, bounds, step, guards)
            values.emit(ir.Store(number, values.sum(offset + step * stride), value))

    def _follow(self, directions: Sequence[Blocks], block: IndexExpr, depth_blocks: int) -> None:
        """The indices of the block that is packed after a block."""
        following = ir.Sum(((ir.LoopIndex(DEPTH_BLOCK), 1),), 1)
        this = (ir.LoopIndex(TASK), 1)
        task = ir.Sum((this,), 1)
        if not self.is_finished:
            task = ir.Sum((this, (ir.QuotientIndex(following, depth_blocks), 1)), 0)
        renamed = [blocks._replace(name=f"next_{blocks.name}") for blocks in directions]
        found = bind_tiles(self.values, renamed, task)
        self.following = {blocks.name: index for blocks, index in zip(directions, found)}
        self.following[DEPTH_BLOCK] = (block + 1) % depth_blocks
        # The group of steps with which a block begins.
        self.following["g"] = index_expr.constant(0)

    # --- inner product and epilogue -----------------------------------------------------------

    def _multiply(self, block: IndexExpr, start: IndexExpr, bounds: tuple[int, int]) -> None:
        """Multiplies the tiles of all panels; after the last block of the depth, stores each."""
        values = self.values
        rows_are_packed = self.packs_rows and self.left_stride is None
        with values.loop("q", self.panels, counted=True) as panel:
            first_row = self._row_of(panel)
            left, left_start = self._left_panel(panel, first_row, start)
            with values.loop("s", self.strips, counted=True) as strip:
                first = strip * self.tile_columns
                tile = panel * (self.tile_rows * self.block_columns) + first
                right, right_start = self._right_strip(strip, start)
                skipped, depth = self._steps_that_matter(first_row, strip, start)
                values.emit(
                    ir.MicroKernel(
                        left,
                        values.sum(left_start + skipped * self._left_step),
                        right,
                        values.sum(right_start + skipped * self.tile_columns),
                        self.target,
                        values.sum(tile * 0 if self.is_finished else tile),
                        self.target_columns,
                        self.tile_rows,
                        self.tile_columns,
                        values.sum(depth),
                        values.sum(block),
                        self.scalar,
                        self.block_depth if rows_are_packed else self.left_stride,
                        self.step,
                        self._ahead((left, left_start), panel, strip),
                        self.signs,
                    )
                )
                if self.is_finished:
                    corner, place = (first_row, self._column_of(strip)), index_expr.constant(0)
                    self._store_panel(bounds, corner, place, self.target_columns)

    @property
    def _left_step(self) -> int:
        """The elements of the left factor from one step of the depth to the next."""
        return self.pitch if self.left_stride is None else 1

    def _steps_that_matter(
        self, row: IndexExpr, strip: IndexExpr, start: IndexExpr
    ) -> tuple[IndexExpr, IndexExpr]:
        """How many steps of a block the tile at a row and a strip skips, and takes then."""
        steps = self.block_depth // self.step
        if not self.contraction.regions or self.step > 1 or self.case is not WHOLE:
            return index_expr.constant(0), index_expr.constant(steps)
        sides = (row, self.tile_rows), (self._column_of(strip), self.tile_columns)
        return steps_that_matter(self.values, self.contraction, sides, (start, steps))

    def _row_of(self, panel: IndexExpr) -> IndexExpr:
        """The first row of a panel of the block, in the innermost body."""
        return self._tile(self.panel_blocks, self.first_panel + panel) * self.tile_rows

    def _column_of(self, strip: IndexExpr) -> IndexExpr:
        """The first column of a strip of the block, in the innermost body."""
        return self._tile(self.strip_blocks, self.first_strip + strip) * self.tile_columns

    def _tile(self, blocks: Blocks, number: IndexExpr) -> IndexExpr:
        """The number of a tile, bound to a name in its range if blocks differ in size."""
        if blocks.total is None:
            return number
        values = self.values
        return values.bind_index(values.fresh("at"), values.sum(number), blocks.total - 1)

    @property
    def _has_plain_depth(self) -> bool:
        """Whether the depth has no offsets of windows apart from its other axes."""
        return not self.offset_axes and self.offsets_inside == 1

    def _ahead(self, left: Read, panel: IndexExpr, strip: IndexExpr) -> tuple[ir.Ahead, ...]:
        """The prefetches of the tile of a panel and a strip, whose rows begin at `left`."""
        found: list[ir.Ahead] = []
        panels = self.block_rows // self.tile_rows
        if self.step > 1:
            return ()
        if self.left_stride is not None:
            tile = panel, panels, strip, self.tile_rows
            found += left_prefetches(self.values, left, self.left_stride, tile)
        if self.packed is None and self._has_plain_depth:
            at = panel, panels, self.tile_columns
            found += right_prefetches(self.values, self.right_reads, self.following, at)
        return tuple(found)

    def _left_panel(self, panel: IndexExpr, row: IndexExpr, start: IndexExpr) -> Read:
        """The start of a panel's rows: in scratch memory, or in the left factor itself."""
        values = self.values
        if self.left_stride is None:
            return self.left, panel * self._packed_steps()[1]
        place = dict(self.place)
        if self.prepared is not None:
            batch = index_expr.linear_offset([place[k] for k in self.contraction.batch], self.batch)
            at = (batch, row, start)
            offset = index_expr.linear_offset(at, self.prepared.shape)
            return self.parameter(self.prepared, "read"), offset
        place.update(zip(self.contraction.rows, unravel_within(row, self.rows)))
        place.update(zip(self.contraction.depth, unravel_within(start, self.depth)))
        element = values.element(self.contraction.left, self.box(place))
        assert element is not None
        return values.reads[-1]

    def _right_strip(self, strip: IndexExpr, start: IndexExpr) -> Read:
        """The start of a strip's columns: in scratch memory, or in the packed right factor."""
        if self.packed is None:
            return self.right, strip * (self._packed_steps()[0] * self.tile_columns)
        batch = index_expr.linear_offset(
            [self.place[k] for k in self.contraction.batch], self.batch
        )
        at = batch, self.first_strip + strip, start // self.together, index_expr.constant(0)
        return self.parameter(self.packed, "read"), index_expr.linear_offset(at, self.packed.shape)

    def _epilogue(self, bounds: tuple[int, int]) -> None:
        """Stores a block: whole rows, or strip by strip if blocks differ in size."""
        values = self.values
        with values.loop("m", self.panels) as panel:
            start, offset = self._row_of(panel), panel * (self.tile_rows * self.target_columns)
            if self.strip_blocks.total is None:
                first = self._column_of(index_expr.constant(0))
                self._store_panel(bounds, (start, first), offset, self.target_columns)
                return
            with values.loop("s", self.strips) as strip:
                first, offset = self._column_of(strip), offset + strip * self.tile_columns
                self._store_panel(bounds, (start, first), offset, self.tile_columns)

    def _store_panel(
        self,
        bounds: tuple[int, int],
        start: tuple[IndexExpr, IndexExpr],
        place: IndexExpr,
        width: int,
    ) -> None:
        """Stores the rows of a panel through the fused roots; they begin at a place of the target.

        The loop over the rows is inside that over columns, so that addresses of columns are
        computed once for all rows.
        """
        values = self.values
        with (
            values.loop("n", width, vector=True) as column,
            values.loop("r", self.tile_rows) as row,
        ):
            offset = values.sum(place + row * self.target_columns + column)
            tile = ir.Load(self.target, offset, self.scalar)
            self.results((start[0] + row, bounds[0]), (start[1] + column, bounds[1]), tile)


def _tiles_of(blocks: Blocks) -> Extent:
    """The tiles of a task's block, known at run time if blocks differ in size."""
    if blocks.total is None:
        return blocks.tiles
    return RuntimeExtent(ir.ValueIndex(count_name(blocks.name)), blocks.tiles)


def _side_by_side(numbers: list[ir.Expr]) -> ir.Expr:
    """Integers packed into equal parts of 32 bits, the first in the lowest."""
    kind, bits = dtypes.int32, 32 // len(numbers)
    total = numbers[-1]
    for number in reversed(numbers[:-1]):
        mask = ir.Number((1 << bits) - 1, kind)
        total = ir.Apply("left_shift", (total, ir.Number(bits, kind)), kind, kind)
        low = ir.Apply("bitwise_and", (number, mask), kind, kind)
        total = ir.Apply("bitwise_or", (total, low), kind, kind)
    return total


def _filled(kernel: Kernel, storage: Storage) -> list[LoweredKernel]:
    """A launch that fills the result with zeros, if it has no epilogue."""
    root = kernel.roots[0]
    places = storage.places(root, box_axes(root.shape))
    if len(kernel.roots) > 1 or len(places) > 1 or places[0][0].size != root.size:
        return []
    return [fill_with(places[0][0], ir.Number(0, root.dtype))]
