"""The schedule of contractions: panels packed through index maps, a register-tiled inner product.

A task owns a block of the result. For each block of the depth it packs a panel of the right factor
as strips [strip][k][columns] and of the left factor as [panel][k][rows]; the micro-kernel adds
their product to a tile in scratch memory. When the depth is done, the tile goes through whatever
was fused behind the contraction and is stored. Packing evaluates the index maps, so padding,
strides, gathers and elementwise producers cost no extra pass.

A left factor that lies in memory with neighbours along the depth is read where it is. Blocks of the
depth then end where a run of neighbours does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from metaop.codegen import loop_nest as ir
from metaop.codegen.lowering.base import LoweredKernel, Lowering
from metaop.codegen.lowering.blocks import (
    SHORTEST_RUN,
    Grid,
    Tile,
    balanced,
    cheapest_blocks,
    exact_block,
)
from metaop.codegen.lowering.values import Values
from metaop.fusion.kernel import Indices, Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, Within
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node


class Contract(Lowering):
    """Lowers one contraction with its epilogue."""

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        tile: Tile,
        threads: int,
    ) -> None:
        super().__init__(kernel, storage, uses)
        contraction = kernel.contraction
        assert contraction is not None
        self.contraction = contraction
        self.root = kernel.roots[0]
        self.scalar = dtypes.float64 if self.root.dtype is dtypes.float64 else dtypes.float32
        shape = kernel.shape
        self.rows = [shape[k] for k in contraction.rows]
        self.columns = [shape[k] for k in contraction.columns]
        self.depth = [shape[k] for k in contraction.depth]
        self.batch = [shape[k] for k in contraction.batch]
        self._choose_blocks(tile, threads)

    def _choose_blocks(self, tile: Tile, threads: int) -> None:
        rows, columns, depth = (
            math.prod(extents) for extents in (self.rows, self.columns, self.depth)
        )
        width = tile.columns if self.scalar is dtypes.float32 else tile.columns // 2
        self.tile_columns = width if columns > width // 2 else width // 2
        # One tile for all but the shortest: a changed batch size must not need another kernel.
        self.tile_rows = tile.rows if rows > 2 * tile.rows else balanced(rows, tile.rows)
        self.block_depth, self.run = balanced(depth, tile.depth), depth
        self.left_stride = None if rows % self.tile_rows else self._unpacked_left(tile)
        panels, strips = -(-rows // self.tile_rows), -(-columns // self.tile_columns)
        most = max(tile.block_rows // self.tile_rows, 1), tile.block_columns // self.tile_columns
        panel, strip = cheapest_blocks(
            Grid(panels, strips, math.prod(self.batch), 2 * threads, self.left_stride is None),
            (self.tile_rows, self.tile_columns),
            most,
        )
        self.block_rows, self.block_columns = panel * self.tile_rows, strip * self.tile_columns

    def _unpacked_left(self, tile: Tile) -> int | None:
        """How far rows of the left factor lie apart if it need not be packed, else None.

        Sets the blocks of the depth so that none goes beyond a run of neighbours in memory.
        """
        for first in range(len(self.depth)):
            run = math.prod(self.depth[first:])
            block = exact_block(run, tile.depth)
            if block is None or (first and run < SHORTEST_RUN):
                continue
            stride = self._stride_of_left(first)
            if stride is not None:
                self.block_depth, self.run = block, run
                return stride
        return None

    def _stride_of_left(self, first: int) -> int | None:
        """The stride of the rows, if the inner depth axes from `first` on are neighbours."""
        probe = Values(self, self.values.uses)
        extents = {
            "b": (self.contraction.batch, self.batch),
            "o": (self.contraction.depth[:first], self.depth[:first]),
            "r": (self.contraction.rows, self.rows),
            "k": (self.contraction.depth[first:], self.depth[first:]),
        }
        self.place: dict[int, IndexExpr] = {}
        for name, (axes, sizes) in extents.items():
            probe.open(name)
            variable = index_expr.axis(name, math.prod(sizes))
            self.place.update(zip(axes, unravel_within(variable, sizes)))
        value = probe.value(self.contraction.left, self._box(self.place))
        if not isinstance(value, ir.Load) or value.conditions or value.dtype is not self.scalar:
            return None
        strides = {"r": 0, "k": 0}
        for factor, coefficient in value.offset.terms:
            if isinstance(factor, ir.ValueIndex):
                return None
            if isinstance(factor, ir.LoopIndex):
                if factor.axis in strides:
                    strides[factor.axis] = int(coefficient)  # type: ignore[arg-type]
            elif _axes_inside(factor) & strides.keys():
                return None
        return strides["r"] if strides["k"] == 1 else None

    def _tasks(self, rows: int, columns: int) -> int:
        return (
            math.prod(self.batch) * -(-rows // self.block_rows) * -(-columns // self.block_columns)
        )

    def lower(self) -> LoweredKernel:
        values = self.values
        rows, columns, depth = (
            math.prod(extents) for extents in (self.rows, self.columns, self.depth)
        )
        row_blocks = -(-rows // self.block_rows)
        column_blocks = -(-columns // self.block_columns)
        tasks = math.prod(self.batch) * row_blocks * column_blocks
        values.open("p")
        task = index_expr.axis("p", tasks)
        self.row_start = (task % row_blocks) * self.block_rows
        rest = task // row_blocks
        self.column_start = (rest % column_blocks) * self.block_columns
        batch = index_expr.unravel(rest // column_blocks, self.batch)
        self.place = dict(zip(self.contraction.batch, batch))
        run_blocks = -(-self.run // self.block_depth)
        depth_blocks = depth // self.run * run_blocks
        # With one block of the depth, a panel is finished while its tiles are in the nearest cache.
        self.target_rows = self.tile_rows if depth_blocks == 1 else self.block_rows
        self._allocate()
        values.open("kb")
        block = index_expr.axis("kb", depth_blocks)
        start = block // run_blocks * self.run + block % run_blocks * self.block_depth
        self._pack_right(start, depth, columns)
        if self.left_stride is None:
            self._pack_left(start, depth, rows)
        self._multiply(block, start)
        if depth_blocks > 1:
            values.emit(ir.For("kb", depth_blocks, "serial", values.close()))
        self._epilogue(rows, columns)
        if depth_blocks == 1:
            panels = self.block_rows // self.tile_rows
            values.emit(ir.For("q", panels, "serial", values.close()))
            values.emit(ir.For("kb", 1, "serial", values.close()))
        values.emit(ir.For("p", tasks, "parallel", values.close()))
        return self._finish("contraction", values.close(), 1)

    def _allocate(self) -> None:
        """Scratch buffers get their numbers last, behind all parameters."""
        self.right, self.left, self.target = -1, -2, -3
        sizes = (
            (self.right, self.block_depth * self.block_columns),
            (self.left, self.block_depth * self.block_rows),
            (self.target, self.target_rows * self.block_columns),
        )
        for number, elements in sizes:
            if number != self.left or self.left_stride is None:
                self.values.emit(ir.Alloc(number, elements, self.scalar))

    # --- packing ------------------------------------------------------------------------------

    def _pack_right(self, start: IndexExpr, depth: int, columns: int) -> None:
        strips = self.block_columns // self.tile_columns
        strip = index_expr.axis("s", strips)
        lane = index_expr.axis("l", self.tile_columns)
        column = self.column_start + strip * self.tile_columns + lane
        offset = strip * (self.block_depth * self.tile_columns) + lane
        self._pack(
            self.contraction.right,
            self.right,
            (("s", strips, False), ("l", self.tile_columns, True)),
            (self.contraction.columns, self.columns, column, columns),
            (start, depth),
            offset,
            self.tile_columns,
        )

    def _pack_left(self, start: IndexExpr, depth: int, rows: int) -> None:
        panels = self.block_rows // self.tile_rows
        panel = index_expr.axis("q", panels)
        lane = index_expr.axis("r", self.tile_rows)
        row = self.row_start + panel * self.tile_rows + lane
        offset = panel * (self.block_depth * self.tile_rows) + lane
        self._pack(
            self.contraction.left,
            self.left,
            (("q", panels, False), ("r", self.tile_rows, True)),
            (self.contraction.rows, self.rows, row, rows),
            (start, depth),
            offset,
            self.tile_rows,
        )

    def _pack(
        self,
        factor: Node,
        number: int,
        loops: Sequence[tuple[str, int, bool]],
        outer: tuple[tuple[int, ...], list[int], IndexExpr, int],
        inner: tuple[IndexExpr, int],
        offset: IndexExpr,
        stride: int,
    ) -> None:
        """Stores `factor` for a block of positions and depths."""
        values = self.values
        start, depth = inner
        for name, _, _ in loops:
            values.open(name)
        values.open("k")
        step = index_expr.axis("k", self.block_depth)
        value = self._factor(factor, outer, (start + step, depth))
        values.emit(ir.Store(number, values.sum(offset + step * stride), value))
        body = values.close()
        values.emit(ir.For("k", self.block_depth, "serial", body))
        for name, extent, vector in reversed(loops):
            body = values.close()
            values.emit(ir.For(name, extent, "serial", body, (), vector))

    def _factor(
        self,
        factor: Node,
        outer: tuple[tuple[int, ...], list[int], IndexExpr, int],
        inner: tuple[IndexExpr, int],
    ) -> ir.Expr:
        """`factor` at a position of its outer axes and a depth; zero outside the contraction.

        `outer` holds the axes, their extents, the position and its bound; `inner` the depth and
        its bound.
        """
        axes, extents, position, bound = outer
        step, depth = inner
        place = dict(self.place)
        place.update(zip(axes, unravel_within(position, extents)))
        place.update(zip(self.contraction.depth, unravel_within(step, self.depth)))
        ends = (Within(position, bound), Within(step, depth))
        return self._padded(factor, place, [guard for guard in ends if not guard.always])

    def _padded(self, factor: Node, place: dict[int, IndexExpr], guards: list[Guard]) -> ir.Expr:
        values = self.values
        value = values.value(factor, self._box(place), tuple(guards))
        is_guarded = isinstance(value, ir.Load) and bool(value.conditions)
        if factor.dtype is not self.scalar:
            value = ir.Apply("cast", (value,), self.scalar, factor.dtype)
        if not guards or is_guarded:
            return value
        zero = ir.Number(0, self.scalar)
        return ir.Choose(values.conditions(guards), value, zero, self.scalar)

    def _box(self, place: dict[int, IndexExpr]) -> Indices:
        zero = index_expr.constant(0)
        return tuple(place.get(k, zero) for k in range(len(self.kernel.shape)))

    # --- inner product and epilogue -----------------------------------------------------------

    def _multiply(self, block: IndexExpr, start: IndexExpr) -> None:
        """The tiles of all panels; without further blocks of the depth, the panels stay open."""
        values = self.values
        panels = self.block_rows // self.tile_rows
        strips = self.block_columns // self.tile_columns
        panel, strip = index_expr.axis("q", panels), index_expr.axis("s", strips)
        values.open("q")
        left, left_offset = self._left_panel(panel, start)
        target_row = panel * self.tile_rows if self.target_rows > self.tile_rows else panel * 0
        values.open("s")
        values.emit(
            ir.MicroKernel(
                left,
                left_offset,
                self.right,
                values.sum(strip * (self.block_depth * self.tile_columns)),
                self.target,
                values.sum(target_row * self.block_columns + strip * self.tile_columns),
                self.block_columns,
                self.tile_rows,
                self.tile_columns,
                ir.Sum((), self.block_depth),
                values.sum(block),
                self.scalar,
                self.left_stride,
            )
        )
        values.emit(ir.For("s", strips, "serial", values.close()))
        if not block.is_constant:
            values.emit(ir.For("q", panels, "serial", values.close()))

    def _left_panel(self, panel: IndexExpr, start: IndexExpr) -> tuple[int, ir.Sum]:
        """Where the rows of a panel begin: in scratch memory, or in the left factor itself."""
        values = self.values
        if self.left_stride is None:
            return self.left, values.sum(panel * (self.block_depth * self.tile_rows))
        place = dict(self.place)
        row = self.row_start + panel * self.tile_rows
        place.update(zip(self.contraction.rows, unravel_within(row, self.rows)))
        place.update(zip(self.contraction.depth, unravel_within(start, self.depth)))
        load = values.value(self.contraction.left, self._box(place))
        assert isinstance(load, ir.Load) and not load.conditions
        return load.buffer, load.offset

    def _epilogue(self, rows: int, columns: int) -> None:
        """Stores the rows of the tile, through the elementwise roots that were fused behind."""
        values = self.values
        values.open("m")
        values.open("n")
        row = index_expr.axis("m", self.target_rows)
        column = index_expr.axis("n", self.block_columns)
        offset = values.sum(row * self.block_columns + column)
        first = self.row_start
        if self.target_rows < self.block_rows:
            first = first + index_expr.axis("q", self.block_rows // self.tile_rows) * self.tile_rows
        self._results(
            (first + row, rows),
            (self.column_start + column, columns),
            ir.Load(self.target, offset, self.scalar),
        )
        body = values.close()
        values.emit(ir.For("n", self.block_columns, "serial", body, (), True))
        values.emit(ir.For("m", self.target_rows, "serial", values.close()))

    def _results(
        self, row: tuple[IndexExpr, int], column: tuple[IndexExpr, int], tile: ir.Expr
    ) -> None:
        """Stores what becomes of one element of the tile; row and column come with their bounds."""
        values = self.values
        place = dict(self.place)
        place.update(zip(self.contraction.rows, unravel_within(row[0], self.rows)))
        place.update(zip(self.contraction.columns, unravel_within(column[0], self.columns)))
        guards = tuple(guard for guard in (Within(*row), Within(*column)) if not guard.always)
        if self.root.dtype is not self.scalar:
            tile = ir.Apply("cast", (tile,), self.root.dtype, self.scalar)
        name = values.fresh("t")
        values.emit(ir.Let(name, tile))
        values.reduced[self.root] = ir.Name(name, self.root.dtype)
        box = self._box(place)
        conditions = values.conditions(guards)
        for root in self.kernel.roots:
            at = _substitute(self.kernel.indices_of(root), box)
            value = values.value(root, at, guards)
            if root not in self.kernel.private:
                self._store(root, at, value, conditions)


def unravel_within(position: IndexExpr, extents: Sequence[int]) -> tuple[IndexExpr, ...]:
    """The indices of a position that a guard keeps below the product of the extents.

    The outermost index needs no remainder then, so that one axis stays affine.
    """
    if not extents:
        return ()
    inner = index_expr.unravel(position, extents[1:])
    return (position // math.prod(extents[1:]), *inner)


def _axes_inside(factor: ir.Factor) -> set[str]:
    """The axes in a quotient or a remainder."""
    found: set[str] = set()
    for inner, _ in factor.dividend.terms:  # type: ignore[union-attr]
        found |= {inner.axis} if isinstance(inner, ir.LoopIndex) else set()
        if isinstance(inner, (ir.QuotientIndex, ir.RemainderIndex)):
            found |= _axes_inside(inner)
    return found


def _substitute(at: Iterable[IndexExpr] | None, box: Indices) -> Indices:
    assert at is not None
    return tuple(
        index.substitute(
            lambda atom: box[int(str(atom.name)[1:])] if isinstance(atom, Axis) else None
        )
        for index in at
    )
