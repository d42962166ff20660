"""The schedule of windows of three taps: fewer products by Winograd's minimal filters.

Two launches. The first transforms the taps of the left factor, for every row and channel (a depth
position that is no tap), into memory [batch][position][row][channel]. A task of the second
owns a block of tiles of the result. It packs what their windows see, transforms that axis by axis
where it lies, and multiplies position by position with the micro-kernel of all contractions. The
products of a few rows at a time are transformed back and go through what was fused behind.

Rounding errors grow with the size of a filter: relative to the largest value they are about 1e-6
for two results at a time and 1e-5 for four, where plain sums have 3e-7. An infinite input makes
NaN of all results of its tile. `METAOP_WINOGRAD=0` keeps to plain sums.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from metaop.codegen import loop_nest as ir
from metaop.codegen.lowering.base import LoweredKernel
from metaop.codegen.lowering.blocks import Tile, balanced
from metaop.codegen.lowering.minimal_filtering import Filter, Matrix, combinations, filter_for
from metaop.codegen.lowering.positions import Positions, unravel_within
from metaop.codegen.lowering.prepared import Prepared
from metaop.fusion.kernel import Kernel
from metaop.fusion.sliding import TAPS, Slide, slides
from metaop.fusion.storage import Storage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, Within
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node, Shape

# Windows of more axes than this need more positions than they save products.
_MOST_AXES = 2
# What a task may keep of transformed inputs, and of products, in elements.
_MOST_INPUTS, _MOST_PRODUCTS = 1 << 18, 1 << 16
# Transforming an input, a tap or a product takes as long as so many multiplications.
_INPUT_WORK, _TAP_WORK, _PRODUCT_WORK = 32, 32, 16
# The share of the plain work that must not be exceeded.
_WORTH = 0.8


class Geometry(NamedTuple):
    """The windows of a contraction with their filters, and the axes that are cut or left.

    `tiles` has an extent for each column axis; `channels` are the depth axes that are no taps.
    """

    slides: tuple[Slide, ...]
    filters: tuple[Filter, ...]
    tiles: tuple[int, ...]
    channels: tuple[int, ...]

    @property
    def positions(self) -> tuple[int, ...]:
        """Products of a tile along each window."""
        return tuple(each.products for each in self.filters)

    @property
    def results(self) -> tuple[int, ...]:
        """Results of a tile along each window."""
        return tuple(each.results for each in self.filters)


def geometry_of(kernel: Kernel, storage: Storage, threads: int) -> Geometry | None:
    """The tiles of a contraction for which minimal filters pay, else None."""
    contraction, shape = kernel.contraction, kernel.shape
    if contraction is None or kernel.roots[0].dtype is not dtypes.float32:
        return None
    if not any(shape[k] == TAPS for k in contraction.depth):
        return None
    found = slides(contraction, shape, storage.has_buffer)[-_MOST_AXES:]
    # The results of a tile have to be neighbours along the innermost column.
    if not found or found[-1].column != contraction.columns[-1]:
        return None
    filters = {slide.column: filter_for(shape[slide.column]) for slide in found}
    taps = {slide.tap for slide in found}
    geometry = Geometry(
        found,
        tuple(filters[slide.column] for slide in found),
        tuple(
            -(-shape[k] // filters[k].results) if k in filters else shape[k]
            for k in contraction.columns
        ),
        tuple(k for k in contraction.depth if k not in taps),
    )
    columns = math.prod(shape[k] for k in contraction.columns)
    rows = math.prod(shape[k] for k in contraction.rows)
    return geometry if _pays(geometry, shape, rows, columns, threads) else None


def _pays(geometry: Geometry, shape: Shape, rows: int, columns: int, threads: int) -> bool:
    channels = math.prod(shape[k] for k in geometry.channels)
    tiles = math.prod(geometry.tiles)
    plain = rows * columns * channels * TAPS ** len(geometry.slides)
    # With few tiles, threads share rows, and each of them transforms all inputs.
    repeated = max(1, min(threads, threads * 32 // tiles))
    work = rows * tiles * channels
    work += _INPUT_WORK * tiles * channels * repeated
    work += _TAP_WORK * rows * channels + _PRODUCT_WORK * rows * tiles
    return work * math.prod(geometry.positions) <= _WORTH * plain


def lower_winograd(
    kernel: Kernel,
    storage: Storage,
    uses: dict[Node, int],
    tile: Tile,
    threads: int,
    geometry: Geometry,
) -> list[LoweredKernel]:
    """The two launches of a contraction with minimal filters."""
    taps = _Taps(kernel, storage, uses, tile, threads, geometry)
    products = _Products(kernel, storage, uses, tile, threads, geometry)
    return [taps.lower(), products.lower()]


class _Filtered(Positions):
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
        self.geometry = geometry
        super().__init__(kernel, storage, uses)
        self._choose_blocks(tile, threads)
        contraction = self.contraction
        self.prepared = Node(
            Prepared((geometry, contraction.rows, contraction.batch)),
            (contraction.left,),
            (math.prod(self.batch), self.positions, self.row_room, self.channel_count),
            self.scalar,
        )

    def _choose_blocks(self, tile: Tile, threads: int) -> None:
        geometry, shape = self.geometry, self.kernel.shape
        self.row_count = math.prod(self.rows)
        self.tile_count = math.prod(geometry.tiles)
        self.channels = [shape[k] for k in geometry.channels]
        self.channel_count = math.prod(self.channels)
        self.positions = math.prod(geometry.positions)
        self.tile_rows = (
            tile.rows if self.row_count > 2 * tile.rows else balanced(self.row_count, tile.rows)
        )
        narrow = self.tile_count <= tile.columns // 2
        self.tile_columns = tile.columns // 2 if narrow else tile.columns
        self._choose_tiles(threads)
        self._choose_rows(threads)

    def _choose_tiles(self, threads: int) -> None:
        """How many tiles a task has, in strips of the micro-kernel's width."""
        strips = -(-self.tile_count // self.tile_columns)
        width = self.positions * self.channel_count * self.tile_columns
        most = max(1, min(_MOST_INPUTS // width, -(-strips // (2 * threads))))
        self.strips = -(-strips // -(-strips // most))
        self.block_tiles = self.strips * self.tile_columns
        self.tile_blocks = -(-strips // self.strips)

    def _choose_rows(self, threads: int) -> None:
        """In how many parts tasks share the rows, and in which blocks a task takes its part."""
        panels = -(-self.row_count // self.tile_rows)
        tasks = self.tile_blocks * math.prod(self.batch)
        # Threads without a block of tiles of their own share the rows of one.
        self.row_parts = min(panels, max(1, -(-threads // tasks)))
        part = -(-panels // self.row_parts)
        room = max(1, _MOST_PRODUCTS // (self.positions * self.block_tiles * self.tile_rows))
        self.row_blocks = -(-part // room)
        self.panels = -(-part // self.row_blocks)
        self.block_rows = self.panels * self.tile_rows
        # Rows that only fill the last block are zero in what is prepared.
        self.row_room = self.row_parts * self.row_blocks * self.block_rows

    def _place_of_batch(self, number: IndexExpr) -> None:
        self.place = dict(zip(self.contraction.batch, index_expr.unravel(number, self.batch)))

    def _transform(
        self, matrices: Sequence[Matrix], values: list[ir.Expr], extents: Sequence[int]
    ) -> list[ir.Expr]:
        """An array of values, times a matrix along each axis in turn."""
        extents = list(extents)
        for axis, matrix in enumerate(matrices):
            inner = math.prod(extents[axis + 1 :])
            outer, extent = math.prod(extents[:axis]), extents[axis]
            columns = []
            for block, place in itertools.product(range(outer), range(inner)):
                line = [values[(block * extent + k) * inner + place] for k in range(extent)]
                columns.append([self._named(x) for x in combinations(matrix, line, self.scalar)])
            extents[axis] = len(matrix)
            values = [
                columns[block * inner + place][k]
                for block in range(outer)
                for k in range(len(matrix))
                for place in range(inner)
            ]
        return values

    def _named(self, value: ir.Expr) -> ir.Expr:
        if isinstance(value, (ir.Name, ir.Number)):
            return value
        name = self.values.fresh("f")
        self.values.emit(ir.Let(name, value))
        return ir.Name(name, self.scalar)


class _Taps(_Filtered):
    """Transforms the taps of the left factor, which products read."""

    def lower(self) -> LoweredKernel:
        values, geometry = self.values, self.geometry
        values.open("p")
        tasks = math.prod(self.batch) * self.row_room
        task = index_expr.axis("p", tasks)
        self._place_of_batch(task // self.row_room)
        row = task % self.row_room
        self.place.update(zip(self.contraction.rows, unravel_within(row, self.rows)))
        values.open("k")
        channel = index_expr.axis("k", self.channel_count)
        self.place.update(zip(geometry.channels, unravel_within(channel, self.channels)))
        inside = Within(row, self.row_count)
        guards: list[Guard] = [] if inside.always else [inside]
        taps = [self._named(self._tap(at, guards)) for at in self._windows()]
        matrices = [each.of_taps for each in geometry.filters]
        results = self._transform(matrices, taps, [TAPS] * len(matrices))
        number = self.parameter(self.prepared, "write")
        start = task // self.row_room * (self.positions * self.row_room) + row
        for position, value in enumerate(results):
            at = (start + position * self.row_room) * self.channel_count + channel
            values.emit(ir.Store(number, values.sum(at), value))
        values.emit(ir.For("k", self.channel_count, "serial", values.close(), (), True))
        values.emit(ir.For("p", tasks, "parallel", values.close()))
        grain = 2048 // (self.channel_count * len(results)) + 1
        return self.finish("winograd_taps", values.close(), grain)

    def _windows(self) -> itertools.product[tuple[int, ...]]:
        return itertools.product(range(TAPS), repeat=len(self.geometry.slides))

    def _tap(self, at: tuple[int, ...], guards: list[Guard]) -> ir.Expr:
        place = dict(self.place)
        for slide, number in zip(self.geometry.slides, at):
            tap = number if slide.sign == 1 else TAPS - 1 - number
            place[slide.tap] = index_expr.constant(tap)
        return self.padded(self.contraction.left, place, guards)


class _Products(_Filtered):
    """Multiplies transformed inputs and taps, and transforms the products back."""

    def lower(self) -> LoweredKernel:
        values = self.values
        self.inputs, self.products, self.lines = -1, -2, -3
        blocks = self.tile_blocks
        tasks = math.prod(self.batch) * self.row_parts * blocks
        values.open("p")
        task = index_expr.axis("p", tasks)
        self._place_of_batch(task // (blocks * self.row_parts))
        self.tile_start = task % blocks * self.block_tiles
        part = task // blocks % self.row_parts
        self._allocate()
        self._pack()
        for axis in range(len(self.geometry.slides)):
            self._transform_inputs(axis)
        values.open("rb")
        self.block_start = (
            part * self.row_blocks + index_expr.axis("rb", self.row_blocks)
        ) * self.block_rows
        self._multiply_positions(task // (blocks * self.row_parts))
        self._transform_products()
        values.emit(ir.For("rb", self.row_blocks, "serial", values.close()))
        values.emit(ir.For("p", tasks, "parallel", values.close()))
        return self.finish("winograd", values.close(), 1)

    def _allocate(self) -> None:
        results = math.prod(self.geometry.results)
        sizes = (
            (self.inputs, self.positions * self.channel_count * self.block_tiles),
            (self.products, self.positions * self.block_rows * self.block_tiles),
            (self.lines, results * self.block_tiles),
        )
        for number, elements in sizes:
            self.values.emit(ir.Alloc(number, elements, self.scalar))

    # --- inputs: [strip][position][channel][tile] ---------------------------------------------

    def _pack(self) -> None:
        """What the windows of a block of tiles see."""
        values, geometry = self.values, self.geometry
        for name in "slwk":
            values.open(name)
        strip, lane = index_expr.axis("s", self.strips), index_expr.axis("l", self.tile_columns)
        tile = self.tile_start + strip * self.tile_columns + lane
        position = index_expr.axis("w", self.positions)
        channel = index_expr.axis("k", self.channel_count)
        place = dict(self.place)
        place.update(zip(geometry.channels, unravel_within(channel, self.channels)))
        places = self._columns_of(tile)
        guards: list[Guard] = [Within(tile, self.tile_count)]
        inside = index_expr.unravel(position, geometry.positions)
        for slide, each, step in zip(geometry.slides, geometry.filters, inside):
            seen = places[slide.column] * each.results + step
            places[slide.column] = seen
            place[slide.tap] = index_expr.constant(0 if slide.sign == 1 else TAPS - 1)
            guards.append(Within(seen, self.kernel.shape[slide.column] + TAPS - 1))
        place.update(places)
        kept = [guard for guard in guards if not guard.always]
        value = self.padded(self.contraction.right, place, kept)
        row = (strip * self.positions + position) * self.channel_count + channel
        values.emit(ir.Store(self.inputs, values.sum(row * self.tile_columns + lane), value))
        values.emit(ir.For("k", self.channel_count, "serial", values.close()))
        values.emit(ir.For("w", self.positions, "serial", values.close()))
        values.emit(ir.For("l", self.tile_columns, "serial", values.close(), (), True))
        values.emit(ir.For("s", self.strips, "serial", values.close()))

    def _columns_of(self, tile: IndexExpr) -> dict[int, IndexExpr]:
        """The tile along each column axis."""
        return dict(zip(self.contraction.columns, unravel_within(tile, self.geometry.tiles)))

    def _transform_inputs(self, axis: int) -> None:
        """Transforms one axis of the positions of all inputs where they lie."""
        values, geometry = self.values, self.geometry
        stride = self.channel_count * self.tile_columns
        extents = geometry.positions
        others = self.positions // extents[axis]
        for name in "skwl":
            values.open(name)
        strip, channel = index_expr.axis("s", self.strips), index_expr.axis("k", self.channel_count)
        start = _line_start(index_expr.axis("w", others), extents, axis)
        start = (strip * self.positions + start) * stride + channel * self.tile_columns
        start = start + index_expr.axis("l", self.tile_columns)
        step = stride * math.prod(extents[axis + 1 :])
        self._transform_line(
            self.inputs, start, step, geometry.filters[axis].of_inputs, extents[axis]
        )
        values.emit(ir.For("l", self.tile_columns, "serial", values.close(), (), True))
        values.emit(ir.For("w", others, "serial", values.close()))
        values.emit(ir.For("k", self.channel_count, "serial", values.close()))
        values.emit(ir.For("s", self.strips, "serial", values.close()))

    def _transform_line(
        self, buffer: int, start: IndexExpr, step: int, matrix: Matrix, extent: int
    ) -> None:
        for k, value in enumerate(self._transformed_line(buffer, start, step, matrix, extent)):
            self.values.emit(ir.Store(buffer, self.values.sum(start + k * step), value))

    def _transformed_line(
        self, buffer: int, start: IndexExpr, step: int, matrix: Matrix, extent: int
    ) -> list[ir.Expr]:
        line = [
            self._named(ir.Load(buffer, self.values.sum(start + k * step), self.scalar))
            for k in range(extent)
        ]
        return [self._named(value) for value in combinations(matrix, line, self.scalar)]

    # --- products: [row][position][tile] ------------------------------------------------------

    def _multiply_positions(self, batch: IndexExpr) -> None:
        values = self.values
        number = self.parameter(self.prepared, "read")
        for name in "wqs":
            values.open(name)
        position = index_expr.axis("w", self.positions)
        panel, strip = index_expr.axis("q", self.panels), index_expr.axis("s", self.strips)
        row = self.block_start + panel * self.tile_rows
        left = ((batch * self.positions + position) * self.row_room + row) * self.channel_count
        right = (strip * self.positions + position) * (self.channel_count * self.tile_columns)
        target = (panel * (self.tile_rows * self.positions) + position) * self.block_tiles
        values.emit(
            ir.MicroKernel(
                number,
                values.sum(left),
                self.inputs,
                values.sum(right),
                self.products,
                values.sum(target + strip * self.tile_columns),
                self.positions * self.block_tiles,
                self.tile_rows,
                self.tile_columns,
                ir.Sum((), self.channel_count),
                ir.Sum((), 0),
                self.scalar,
                self.channel_count,
            )
        )
        values.emit(ir.For("s", self.strips, "serial", values.close()))
        values.emit(ir.For("q", self.panels, "serial", values.close()))
        values.emit(ir.For("w", self.positions, "serial", values.close()))

    def _transform_products(self) -> None:
        values = self.values
        values.open("m")
        row = index_expr.axis("m", self.block_rows)
        last = len(self.geometry.slides) - 1
        for axis in range(last):
            self._transform_rows(row, axis)
        self._transform_innermost(row)
        self._store_lines(self.block_start + row)
        values.emit(ir.For("m", self.block_rows, "serial", values.close()))

    def _transform_rows(self, row: IndexExpr, axis: int) -> None:
        """Transforms the products of a row along an outer axis where they lie."""
        values, extents = self.values, self.geometry.positions
        others = self.positions // extents[axis]
        values.open("w")
        values.open("l")
        start = _line_start(index_expr.axis("w", others), extents, axis)
        start = (row * self.positions + start) * self.block_tiles
        start = start + index_expr.axis("l", self.block_tiles)
        step = self.block_tiles * math.prod(extents[axis + 1 :])
        matrix = self.geometry.filters[axis].of_products
        self._transform_line(self.products, start, step, matrix, extents[axis])
        values.emit(ir.For("l", self.block_tiles, "serial", values.close(), (), True))
        values.emit(ir.For("w", others, "serial", values.close()))

    def _transform_innermost(self, row: IndexExpr) -> None:
        """Writes the results of neighbouring tiles beside each other: [outer results][column]."""
        values, geometry = self.values, self.geometry
        outer, inner = math.prod(geometry.results[:-1]), geometry.filters[-1]
        values.open("w")
        values.open("l")
        line, tile = index_expr.axis("w", outer), index_expr.axis("l", self.block_tiles)
        start = (row * self.positions + line * inner.products) * self.block_tiles + tile
        matrix, step = inner.of_products, self.block_tiles
        found = self._transformed_line(self.products, start, step, matrix, inner.products)
        for k, value in enumerate(found):
            at = (line * self.block_tiles + tile) * inner.results + k
            values.emit(ir.Store(self.lines, values.sum(at), value))
        values.emit(ir.For("l", self.block_tiles, "serial", values.close(), (), True))
        values.emit(ir.For("w", outer, "serial", values.close()))

    def _store_lines(self, row: IndexExpr) -> None:
        """Stores the results of one row, through the elementwise roots that were fused behind."""
        values, geometry, shape = self.values, self.geometry, self.kernel.shape
        outer, inner = geometry.results[:-1], geometry.filters[-1].results
        length = self.block_tiles * inner
        values.open("w")
        values.open("n")
        line, column = index_expr.axis("w", math.prod(outer)), index_expr.axis("n", length)
        # A column and its neighbours, counted over whole tiles.
        at = self.tile_start * inner + column
        extents = (*geometry.tiles[:-1], geometry.tiles[-1] * inner)
        place = dict(self.place)
        place.update(zip(self.contraction.rows, unravel_within(row, self.rows)))
        columns = dict(zip(self.contraction.columns, unravel_within(at, extents)))
        steps = index_expr.unravel(line, outer)
        for slide, count, step in zip(geometry.slides, outer, steps):
            columns[slide.column] = columns[slide.column] * count + step
        place.update(columns)
        guards = [Within(row, self.row_count), Within(at, self.tile_count * inner)]
        guards += [Within(columns[slide.column], shape[slide.column]) for slide in geometry.slides]
        self.store(
            place,
            tuple(guard for guard in guards if not guard.always),
            ir.Load(self.lines, values.sum(line * length + column), self.scalar),
        )
        values.emit(ir.For("n", length, "serial", values.close(), (), True))
        values.emit(ir.For("w", math.prod(outer), "serial", values.close()))


def _line_start(number: IndexExpr, extents: Sequence[int], axis: int) -> IndexExpr:
    """Where the line of positions `number` along an axis starts in an array of positions."""
    inner = math.prod(extents[axis + 1 :])
    return number // inner * (inner * extents[axis]) + number % inner
