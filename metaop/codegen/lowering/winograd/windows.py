"""The schedule of windows of three or five taps: fewer products, by Winograd's method.

Tiles of m results along an axis read m + r - 1 inputs for r taps, and take as many products instead
of m * r: for 4 x 4 results of a 3 x 3 window 36 instead of 144, for 2 x 2 of a 5 x 5 window 36
instead of 100. There are two launches. The first evaluates the left
factor at all points of its windows, into memory [batch][row][point][channel] (a depth position that
is not a tap is a channel). A task of the second owns a block of tiles. It evaluates the inputs of
their windows, multiplies point by point with the micro-kernel of all contractions, and combines the
products of each row to results, which go through the epilogue. The index maps of both factors are
evaluated as in all schedules, so padding and producers are fused.

Results differ from plain sums by rounding. `rounding.py` bounds the difference, and channels are
summed in runs to keep within the bound. An infinite input makes all results of its tiles NaN, and a
huge one may overflow there. `METAOP_WINOGRAD=0` uses plain sums only.
"""

from __future__ import annotations

import math

from metaop.codegen.lowering.base.blocks import Tile, balanced
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.base.tasks import DEPTH_BLOCK, Blocks, task_loop
from metaop.codegen.lowering.contractions.axes import unravel_within
from metaop.codegen.lowering.contractions.prepacked import Prepacked
from metaop.codegen.lowering.winograd.geometry import Geometry, strip_of
from metaop.codegen.lowering.winograd.rounding import RUN
from metaop.codegen.lowering.winograd.transforms import Transforms
from metaop.codegen.nest import ir
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, Within
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import divides, hint_of

# The most elements of inputs and products that a task keeps.
_MOST_KEPT = 3 << 18
# The padding of rows of scratch memory, so that they do not all map to the same few cache lines.
_PITCH = 16


def lower_winograd(
    kernel: Kernel,
    storage: Storage,
    uses: dict[Node, int],
    tile: Tile,
    threads: int,
    geometry: Geometry,
) -> list[LoweredKernel]:
    """The two launches of a contraction with short products."""
    launches = (_Taps, _Products)
    return [launch(kernel, storage, uses, tile, threads, geometry).lower() for launch in launches]


class _Short(Transforms):
    """What both launches share: the extents of tiles, rows and channels."""

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        tile: Tile,
        threads: int,
        geometry: Geometry,
    ) -> None:
        super().__init__(kernel, storage, uses)
        self.geometry, self.points = geometry, geometry.points
        self.outside, self.inside = geometry.outer.product, geometry.inner.product
        self.channels = [kernel.shape[k] for k in geometry.channels]
        self.channel_count, self.batch_count = math.prod(self.channels), math.prod(self.batch)
        self.tile_count, self.row_count = math.prod(geometry.tiles), math.prod(self.rows)
        self.tile_rows, self.strip = tile.rows, strip_of(self.tile_count, tile)
        self.height = -(-self.row_count // self.tile_rows) * self.tile_rows
        self._choose_blocks(tile.block_columns, threads)
        self.taps_pitch = self.channel_count + _PITCH
        shape = (self.batch_count, self.height, self.points, self.taps_pitch)
        order = (geometry, self.contraction.rows, self.contraction.batch)
        self.prepared = Node(Prepacked(order), (self.contraction.left,), shape, self.scalar)

    def lower(self) -> LoweredKernel:
        """The nest of the launch."""
        raise NotImplementedError

    def _choose_blocks(self, tiles: int, threads: int) -> None:
        """Chooses as many tiles as fit the near cache, and fewer rows if there are too few tasks.

        Scratch memory is sized for the largest blocks, so that it has one layout.
        """
        strips, panels = hint_of(-(-self.tile_count // self.strip)), self.height // self.tile_rows
        kept = hint_of(self.points * (self.channel_count + self.height) * self.strip)
        most = min(max(_MOST_KEPT // kept, 1), max(tiles // self.strip, 1))
        self.strips = balanced(strips, min(most, max(strips // (2 * threads), 1)))
        blocks = hint_of(self.batch_count) * -(-strips // self.strips)
        most_parts = hint_of(panels)
        wanted = min(-(-threads // blocks), most_parts)
        parts = next((n for n in range(wanted, most_parts + 1) if divides(n, panels)), 1)
        self.block_rows, self.block_tiles = self.height // parts, self.strips * self.strip
        self.tiles_pitch = most * self.strip

    def _taps_at(
        self, place: dict[int, IndexExpr], steps: tuple[IndexExpr, IndexExpr]
    ) -> dict[int, IndexExpr]:
        """The position with the taps, or the inputs that they read, in the order of the windows."""
        for slide, number in self.geometry.slides:
            step, taps = steps[number], self.kernel.shape[slide.tap]
            place[slide.tap] = step if slide.sign > 0 else (taps - 1) - step
        return place


class _Taps(_Short):
    """Evaluates the left factor at all points; a task is a row, lanes run along the channels."""

    def lower(self) -> LoweredKernel:
        values, tasks = self.values, self.batch_count * self.height
        outer, inner = self.outside, self.inside
        pitch = self.channel_count + _PITCH
        raw, half = -1, -2
        with values.loop("p", tasks, "parallel") as task:
            batch, row = task // self.height, task % self.height
            self.place = dict(zip(self.contraction.batch, index_expr.unravel(batch, self.batch)))
            values.emit(ir.Alloc(raw, outer.taps * inner.taps * pitch, self.scalar))
            values.emit(ir.Alloc(half, outer.points * inner.taps * pitch, self.scalar))
            with values.loop("c", self.channel_count, vector=True) as channel:
                self._copy(raw, row, channel, pitch)
                self.transform(
                    "v", inner.taps, outer.window,
                    lambda tap, k: self.load(raw, (tap + k * inner.taps) * pitch + channel),
                    lambda tap, k: (half, (tap + k * inner.taps) * pitch + channel),
                )  # fmt: skip
                number = self.parameter(self.prepared, "write")
                start = (batch * self.height + row) * self.points
                self.transform(
                    "a", outer.points, inner.window,
                    lambda step, k: self.load(half, (step * inner.taps + k) * pitch + channel),
                    lambda step, k: (
                        number,
                        (start + step * inner.points + k) * self.taps_pitch + channel,
                    ),
                )  # fmt: skip
        each = self.points * self.channel_count
        return self.finish("winograd_taps", values.body, each, prepared=self.prepared)

    def _copy(self, target: int, row: IndexExpr, channel: IndexExpr, pitch: int) -> None:
        """Copies the taps of a row so that they are contiguous, in the order of memory."""
        values, taps = self.values, self.outside.taps * self.inside.taps
        with values.loop("w", taps) as tap:
            place = dict(self.place)
            place.update(zip(self.contraction.rows, unravel_within(row, self.rows)))
            place.update(zip(self.geometry.channels, unravel_within(channel, self.channels)))
            self._taps_at(place, (tap // self.inside.taps, tap % self.inside.taps))
            inside = Within(row, self.row_count)
            value = self.padded(self.contraction.left, place, [] if inside.always else [inside])
            values.emit(ir.Store(target, values.sum(tap * pitch + channel), value))


class _Products(_Short):
    """Multiplies inputs and taps point by point, and combines the products."""

    def lower(self) -> LoweredKernel:
        values = self.values
        directions = (
            Blocks("panel", self.height // self.block_rows, self.block_rows // self.tile_rows),
            Blocks("strip", -(-self.tile_count // self.block_tiles), self.strips),
            Blocks("batch", self.batch_count, 1),
        )
        with task_loop(values, directions) as (panel, strip, batch):
            self.row_start, self.tile_start = panel * self.tile_rows, strip * self.strip
            self.place = dict(zip(self.contraction.batch, index_expr.unravel(batch, self.batch)))
            self._allocate()
            self._evaluate_inputs()
            self._multiply(batch)
            with values.loop("m", self.block_rows) as row:
                self._combine(row)
                self._store_lines(self.row_start + row)
        return self.finish("winograd", values.body)

    def _allocate(self) -> None:
        self.inputs, self.products, self.partial, self.lines = -1, -2, -3, -4
        results = self.outside.results * self.inside.results
        sizes = (
            (self.inputs, self.points * self.channel_count),
            (self.products, self.points * self.height),
            (self.partial, self.points),
            (self.lines, results),
        )
        for number, each in sizes:
            self.values.emit(ir.Alloc(number, each * self.tiles_pitch, self.scalar))

    # --- inputs: [point][strip][channel][tile] ------------------------------------------------

    def _evaluate_inputs(self) -> None:
        """Evaluates the inputs of the windows of a block of tiles at all points."""
        values, outer, inner = self.values, self.outside, self.inside
        n, size = inner.points, self.channel_count * self.tiles_pitch
        with (
            values.loop("s", self.strips, counted=True) as strip,
            values.loop("l", self.strip, vector=True) as lane,
            values.loop("c", self.channel_count) as channel,
        ):
            tile = self.tile_start + strip * self.strip + lane
            self.transform(
                "a", outer.points, inner.data,
                lambda row, k: self._input(tile, channel, (row, index_expr.constant(k))),
                lambda row, k: (self.partial, (row * n + k) * self.strip + lane),
                channel="c",
            )  # fmt: skip
            start = (strip * self.channel_count + channel) * self.strip + lane
            self.transform(
                "b", n, outer.data,
                lambda step, k: self.load(self.partial, (step + k * n) * self.strip + lane),
                lambda step, k: (self.inputs, (step + k * n) * size + start),
            )  # fmt: skip

    def _input(
        self, tile: IndexExpr, channel: IndexExpr, steps: tuple[IndexExpr, IndexExpr]
    ) -> ir.Expr:
        """An input of a tile in a channel, counted from its first."""
        place = dict(self.place)
        place.update(zip(self.contraction.columns, unravel_within(tile, self.geometry.tiles)))
        place.update(zip(self.geometry.channels, unravel_within(channel, self.channels)))
        guards: list[Guard] = [Within(tile, self.tile_count)]
        for slide, number in self.geometry.slides:
            first = place[slide.column] * (self.outside, self.inside)[number].results
            place[slide.column] = first
            extent = self.kernel.shape[slide.column] + self.kernel.shape[slide.tap] - 1
            guards.append(Within(first + steps[number], extent))
        self._taps_at(place, steps)
        kept = [guard for guard in guards if not guard.always]
        return self.padded(self.contraction.right, place, kept)

    # --- products: [point][row][tile] ---------------------------------------------------------

    def _multiply(self, batch: IndexExpr) -> None:
        """The products of all points, summed over the channels run by run."""
        values, panels = self.values, self.block_rows // self.tile_rows
        whole, rest = divmod(self.channel_count, RUN)
        with (
            values.loop("t", self.points) as point,
            values.loop("q", panels, counted=True) as panel,
            values.loop("s", self.strips, counted=True) as strip,
        ):
            row = self.row_start + panel * self.tile_rows
            left = ((batch * self.height + row) * self.points + point) * self.taps_pitch
            right = (point * self.tiles_pitch + strip * self.strip) * self.channel_count
            target = (point * self.height + panel * self.tile_rows) * self.tiles_pitch
            offsets = left, right, target + strip * self.strip
            if whole:
                with values.loop(DEPTH_BLOCK, whole, counted=True) as run:
                    self._multiply_run(offsets, run, RUN)
            if rest:
                self._multiply_run(offsets, index_expr.constant(whole), rest)

    def _multiply_run(
        self, offsets: tuple[IndexExpr, IndexExpr, IndexExpr], run: IndexExpr, channels: int
    ) -> None:
        """The products of a run of channels, added to those of the runs before.

        `offsets` are those of the rows, the tiles and their products, at the first channel.
        """
        values, start = self.values, run * RUN
        left, right, target = offsets
        values.emit(
            ir.MicroKernel(
                self.parameter(self.prepared, "read"),
                values.sum(left + start),
                self.inputs,
                values.sum(right + start * self.strip),
                self.products,
                values.sum(target),
                self.tiles_pitch,
                self.tile_rows,
                self.strip,
                ir.Sum((), channels),
                values.sum(run),
                self.scalar,
                self.points * self.taps_pitch,
            )
        )

    # --- results: [outer result][column] ------------------------------------------------------

    def _combine(self, row: IndexExpr) -> None:
        """Combines the products of a row to results, with neighbouring tiles side by side."""
        outer, inner, width = self.outside, self.inside, self.tiles_pitch
        n, size = inner.points, self.height * width
        with self.values.loop("n", self.block_tiles, vector=True) as lane:
            start = row * width + lane
            self.transform(
                "b", n, outer.output,
                lambda step, k: self.load(self.products, (step + k * n) * size + start),
                lambda step, k: (self.partial, (step + k * n) * width + lane),
            )  # fmt: skip
            self.transform(
                "i", outer.results, inner.output,
                lambda line, k: self.load(self.partial, (line * n + k) * width + lane),
                lambda line, k: (self.lines, (line * width + lane) * inner.results + k),
            )  # fmt: skip

    def _store_lines(self, row: IndexExpr) -> None:
        """Stores the results of one row, through the elementwise roots that were fused behind."""
        values, results = self.values, self.inside.results
        length, pitch = self.block_tiles * results, self.tiles_pitch * results
        with (
            values.loop("i", self.outside.results) as line,
            values.loop("n", length, vector=True) as lane,
        ):
            place, guards = self._place_of_result(row, line, lane)
            self.store(place, guards, self.load(self.lines, line * pitch + lane))

    def _place_of_result(
        self, row: IndexExpr, line: IndexExpr, lane: IndexExpr
    ) -> tuple[dict[int, IndexExpr], tuple[Guard, ...]]:
        """The indices of a result of a block, and the guards that keep it within the whole."""
        geometry, results = self.geometry, self.inside.results
        # A column and its neighbours, counted over whole tiles.
        at = self.tile_start * results + lane
        extents = (*geometry.tiles[:-1], geometry.tiles[-1] * results)
        place = dict(self.place)
        place.update(zip(self.contraction.rows, unravel_within(row, self.rows)))
        place.update(zip(self.contraction.columns, unravel_within(at, extents)))
        if geometry.outer.slide is not None:
            column = geometry.outer.slide.column
            place[column] = place[column] * self.outside.results + line
        guards: list[Guard] = [Within(row, self.row_count)]
        guards.append(Within(at, self.tile_count * results))
        for slide, _ in geometry.slides:
            guards.append(Within(place[slide.column], self.kernel.shape[slide.column]))
        return place, tuple(guard for guard in guards if not guard.always)
