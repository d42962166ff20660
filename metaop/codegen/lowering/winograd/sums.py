"""The schedule of long sums with three results along an axis: Winograd's method for weights.

In `sum over t of g[r, t] * x[c, t + k]`, the gradient of a convolution by its weight, the window is
the whole image. It is cut into tiles of four positions, which with three results take six products
instead of twelve: 36 and not 144 in two dimensions. Both factors are evaluated at all points, a
block of tiles at a time, the products of all tiles are summed point by point, and only the sums are
combined to results. All that stays in scratch memory; a task owns a block of rows and channels (a
channel is a column that is not a result of a window).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from metaop.codegen.lowering.base.blocks import Tile, balanced
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.base.tasks import DEPTH_BLOCK, Blocks, task_loop
from metaop.codegen.lowering.contractions.axes import unravel_within
from metaop.codegen.lowering.winograd.rounding import RUN, excess
from metaop.codegen.lowering.winograd.short_products import short_product
from metaop.codegen.lowering.winograd.transforms import Transforms
from metaop.codegen.nest import ir
from metaop.fusion.kernel import Kernel
from metaop.fusion.sliding import Slide, slides
from metaop.fusion.storage import Storage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, Within
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of, is_at_least, is_symbolic

_TAPS, _TILE = 3, 4
_PRODUCT = short_product(_TAPS, _TILE)
_POINTS = _PRODUCT.points
_ALL_POINTS = _POINTS**2
# The cost of an element, in multiplications of the inner product: packed by the plain schedule; at
# each point, in both factors; combined to results.
_PACKING, _LEFT, _RIGHT, _COMBINED = 40, 30, 45, 25
# The number of tiles that a task takes at a time: a run of the sums.
_TILES = RUN
# The padding between points, so that they do not all map to the same few cache lines.
_PITCH = 16
# Images of varying sizes are at least so high and wide.
_SHORTEST = 8

Pair = tuple[Slide, Slide]


def long_windows(kernel: Kernel, storage: Storage) -> Pair | None:
    """The two windows of a contraction that can take this schedule, else None."""
    contraction, shape = kernel.contraction, kernel.shape
    if contraction is None or kernel.roots[0].dtype is not dtypes.float32:
        return None
    if tuple(shape[k] for k in contraction.columns[-2:]) != (_TAPS, _TAPS):
        return None
    found = slides(contraction, shape, storage.has_buffer, (_TAPS,), is_column=True)
    if tuple(slide.column for slide in found) != contraction.columns[-2:]:
        return None
    outer, inner = found
    if outer.sign < 0 or inner.sign < 0:
        return None
    return outer, inner


def share_of_work(kernel: Kernel, pair: Pair, tile: Tile) -> float:
    """The time of a contraction with long windows, relative to plain sums."""
    contraction, shape = kernel.contraction, list(map(hint_of, kernel.shape))
    assert contraction is not None
    rows = math.prod(shape[k] for k in contraction.rows)
    channels = math.prod(shape[k] for k in contraction.columns[:-2])
    depth = math.prod(shape[k] for k in contraction.depth)
    tiles = hint_of(math.prod(_in_tiles(_summed(kernel), pair)))
    height, width = -(-rows // tile.rows) * tile.rows, -(-channels // tile.columns) * tile.columns
    tiles = -(-tiles // _TILES) * _TILES
    right = width * _RIGHT * -(-height // tile.block_rows)
    left = height * _LEFT * -(-width // tile.block_columns)
    work = _ALL_POINTS * (tiles * (height * width + left + right) + rows * channels * _COMBINED)
    return work / (depth * channels * _TAPS**2 * (rows + _PACKING))


def excess_of_rounding(kernel: Kernel, pair: Pair) -> float:
    """The rounding of a contraction with long windows, relative to plain sums, for all sizes."""
    extents = _summed(kernel)
    symbolic = [k for k, extent in extents.items() if is_symbolic(extent)]
    slid = [slide.tap for slide in pair]
    if not all(is_at_least(extents[k], _SHORTEST) for k in symbolic if k in slid):
        return math.inf
    now = {k: hint_of(extent) for k, extent in extents.items()}
    # Beside plain sums, those over small images round most.
    least = {**now, **{k: _SHORTEST if k in slid else 1 for k in symbolic}}
    return max(
        excess((_PRODUCT, _PRODUCT), math.prod(_in_tiles(sizes, pair)), math.prod(sizes.values()))
        for sizes in (now, least)
    )


def _summed(kernel: Kernel) -> dict[int, Any]:
    """The extents of the reduced axes."""
    assert kernel.contraction is not None
    return {k: kernel.shape[k] for k in kernel.contraction.depth}


def _in_tiles(extents: Mapping[int, Any], pair: Pair) -> list[Any]:
    """The extents of the reduced axes, in tiles where windows slide."""
    cut = {slide.tap for slide in pair}
    return [-(-extent // (_TILE if k in cut else 1)) for k, extent in extents.items()]


class LongWindows(Transforms):
    """Lowers one contraction with long windows."""

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        tile: Tile,
        threads: int,
        pair: Pair,
    ) -> None:
        super().__init__(kernel, storage, uses)
        self.pair = pair
        self.channel_axes = self.contraction.columns[:-2]
        self.channels = [kernel.shape[k] for k in self.channel_axes]
        self.tiles = _in_tiles(_summed(kernel), pair)
        self.channel_count, self.tile_count = math.prod(self.channels), math.prod(self.tiles)
        self.row_count = math.prod(self.rows)
        self.tile_rows, self.strip = tile.rows, tile.columns
        self.block_rows = balanced(self.row_count, tile.block_rows, tile.rows)
        row_blocks, wide = -(-self.row_count // self.block_rows), tile.block_columns
        while wide > self.strip and row_blocks * -(-self.channel_count // wide) < threads:
            wide = max(wide // 2, self.strip)
        self.block_channels = balanced(self.channel_count, wide, self.strip)
        self.strips = self.block_channels // self.strip

    def lower(self) -> LoweredKernel:
        """The nest of the contraction."""
        values = self.values
        row_blocks = -(-self.row_count // self.block_rows)
        channel_blocks = -(-self.channel_count // self.block_channels)
        directions = (
            Blocks("panel", row_blocks, self.block_rows // self.tile_rows),
            Blocks("strip", channel_blocks, self.strips),
            Blocks("batch", math.prod(self.batch), 1),
        )
        with task_loop(values, directions) as (panel, strip, batch):
            self.row_start, self.channel_start = panel * self.tile_rows, strip * self.strip
            self.place = dict(zip(self.contraction.batch, index_expr.unravel(batch, self.batch)))
            self._allocate()
            with values.loop(DEPTH_BLOCK, -(-self.tile_count // _TILES), counted=True) as step:
                self.tile_start = step * _TILES
                self._evaluate_left()
                self._evaluate_right()
                self._multiply(step)
            with values.loop("m", self.block_rows) as row:
                self._combine(row)
                self._store_row(row)
        return self.finish("winograd_sums", values.body)

    def _allocate(self) -> None:
        self.left, self.right, self.sums = -1, -2, -3
        self.partial, self.transposed, self.line = -4, -5, -6
        self.left_pitch = self.block_rows * _TILES + _PITCH
        self.sum_pitch = self.block_rows * self.block_channels + _PITCH
        self.transposed_pitch = self.strip * _TILES + _PITCH
        sizes = (
            (self.left, _ALL_POINTS * self.left_pitch),
            (self.right, _ALL_POINTS * self.block_channels * _TILES),
            (self.sums, _ALL_POINTS * self.sum_pitch),
            (self.partial, _ALL_POINTS * max(_TILES, self.block_channels)),
            (self.transposed, _ALL_POINTS * self.transposed_pitch),
            (self.line, _TAPS**2 * self.block_channels),
        )
        for number, elements in sizes:
            self.values.emit(ir.Alloc(number, elements, self.scalar))

    # --- factors ------------------------------------------------------------------------------

    def _evaluate_left(self) -> None:
        """The tiles of the left factor at all points: [point][row][tile]."""
        values, n = self.values, _POINTS
        with (
            values.loop("m", self.block_rows) as row,
            values.loop("l", _TILES, vector=True) as lane,
        ):
            self.transform(
                "a", _TILE, _PRODUCT.window,
                lambda outside, k: self._left_at(row, lane, (outside, index_expr.constant(k))),
                lambda outside, k: (self.partial, (outside * n + k) * _TILES + lane),
                channel="m",
            )  # fmt: skip
            start = row * _TILES + lane
            self.transform(
                "b", n, _PRODUCT.window,
                lambda step, k: self.load(self.partial, (step + k * n) * _TILES + lane),
                lambda step, k: (self.left, (step + k * n) * self.left_pitch + start),
            )  # fmt: skip

    def _left_at(
        self, row: IndexExpr, lane: IndexExpr, inside: tuple[IndexExpr, IndexExpr]
    ) -> ir.Expr:
        place, guards = self._place_of_tile(lane)
        row = self.row_start + row
        place.update(zip(self.contraction.rows, unravel_within(row, self.rows)))
        guards.append(Within(row, self.row_count))
        for slide, step in zip(self.pair, inside):
            place[slide.tap] = place[slide.tap] * _TILE + step
            guards.append(Within(place[slide.tap], self.kernel.shape[slide.tap]))
        kept = [guard for guard in guards if not guard.always]
        return self.padded(self.contraction.left, place, kept)

    def _evaluate_right(self) -> None:
        """The tiles of the right factor at all points: [point][strip][tile][channel]."""
        values = self.values
        with values.loop("s", self.strips, counted=True) as strip:
            with (
                values.loop("c", self.strip) as channel,
                values.loop("l", _TILES, vector=True) as lane,
            ):
                self._evaluate_channel(strip, channel, lane)
            self._turn(strip)

    def _evaluate_channel(self, strip: IndexExpr, channel: IndexExpr, lane: IndexExpr) -> None:
        """A tile of a channel of a strip at all points: [point][channel][tile]."""
        n, position = _POINTS, strip * self.strip + channel
        self.transform(
            "a", n, _PRODUCT.data,
            lambda outside, k: self._right_at(position, lane, (outside, index_expr.constant(k))),
            lambda outside, k: (self.partial, (outside * n + k) * _TILES + lane),
            channel="c",
        )  # fmt: skip
        start = channel * _TILES + lane
        self.transform(
            "b", n, _PRODUCT.data,
            lambda step, k: self.load(self.partial, (step + k * n) * _TILES + lane),
            lambda step, k: (self.transposed, (step + k * n) * self.transposed_pitch + start),
        )  # fmt: skip

    def _right_at(
        self, channel: IndexExpr, lane: IndexExpr, inside: tuple[IndexExpr, IndexExpr]
    ) -> ir.Expr:
        place, guards = self._place_of_tile(lane)
        channel = self.channel_start + channel
        place.update(zip(self.channel_axes, unravel_within(channel, self.channels)))
        guards.append(Within(channel, self.channel_count))
        for slide, step in zip(self.pair, inside):
            first = place[slide.tap] * _TILE
            place[slide.tap], place[slide.column] = first, step
            guards.append(Within(first + step, self.kernel.shape[slide.tap] + _TAPS - 1))
        kept = [guard for guard in guards if not guard.always]
        return self.padded(self.contraction.right, place, kept)

    def _place_of_tile(self, lane: IndexExpr) -> tuple[dict[int, IndexExpr], list[Guard]]:
        """The reduced axes at a tile, which still count tiles where windows slide."""
        tile = self.tile_start + lane
        place = dict(self.place)
        place.update(zip(self.contraction.depth, unravel_within(tile, self.tiles)))
        return place, [Within(tile, self.tile_count)]

    def _turn(self, strip: IndexExpr) -> None:
        """Transposes the channels of a strip into the order that the micro-kernel reads."""
        values = self.values
        with (
            values.loop("t", _ALL_POINTS) as point,
            values.loop("l", self.strip, vector=True) as lane,
            values.loop("k", _TILES) as tile,
        ):
            place = point * self.transposed_pitch + lane * _TILES + tile
            value = self.load(self.transposed, place)
            start = (point * self.strips + strip) * (_TILES * self.strip)
            values.emit(ir.Store(self.right, values.sum(start + tile * self.strip + lane), value))

    # --- sums and results ---------------------------------------------------------------------

    def _multiply(self, block: IndexExpr) -> None:
        """Adds the products of a block of tiles at all points: [point][row][channel]."""
        values, panels = self.values, self.block_rows // self.tile_rows
        with (
            values.loop("t", _ALL_POINTS) as point,
            values.loop("q", panels, counted=True) as panel,
            values.loop("s", self.strips, counted=True) as strip,
        ):
            row = panel * self.tile_rows
            target = point * self.sum_pitch + row * self.block_channels + strip * self.strip
            values.emit(
                ir.MicroKernel(
                    self.left,
                    values.sum(point * self.left_pitch + row * _TILES),
                    self.right,
                    values.sum((point * self.strips + strip) * (_TILES * self.strip)),
                    self.sums,
                    values.sum(target),
                    self.block_channels,
                    self.tile_rows,
                    self.strip,
                    ir.Sum((), _TILES),
                    values.sum(block),
                    self.scalar,
                    _TILES,
                )
            )

    def _combine(self, row: IndexExpr) -> None:
        """The results of a row, those of a channel side by side."""
        n, width = _POINTS, self.block_channels
        with self.values.loop("n", width, vector=True) as lane:
            start = row * width + lane
            self.transform(
                "b", n, _PRODUCT.output,
                lambda step, k: self.load(self.sums, (step + k * n) * self.sum_pitch + start),
                lambda step, k: (self.partial, (step + k * n) * width + lane),
            )  # fmt: skip
            self.transform(
                "i", _TAPS, _PRODUCT.output,
                lambda outside, k: self.load(self.partial, (outside * n + k) * width + lane),
                lambda outside, k: (self.line, lane * _TAPS**2 + outside * _TAPS + k),
            )  # fmt: skip

    def _store_row(self, row: IndexExpr) -> None:
        """Stores the results of a row, through the elementwise roots that were fused behind."""
        length = self.block_channels * _TAPS**2
        with self.values.loop("n", length, vector=True) as lane:
            self.results(
                (self.row_start + row, self.row_count),
                (self.channel_start * _TAPS**2 + lane, self.channel_count * _TAPS**2),
                self.load(self.line, lane),
            )
