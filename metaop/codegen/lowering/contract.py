"""The schedule of contractions: panels packed through index maps, a register-tiled inner product.

A task owns a block of the result. For each block of the depth it packs a panel of the right factor
as strips [strip][k][columns] and of the left factor as [panel][k][rows]; the micro-kernel adds
their product to a tile in scratch memory. When the depth is done, the tile goes through whatever
was fused behind the contraction and is stored. Packing evaluates the index maps, so padding,
strides, gathers and elementwise producers cost no extra pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from metaop.codegen import loop_nest as ir
from metaop.codegen.lowering.base import LoweredKernel, Lowering
from metaop.fusion.kernel import Indices, Kernel
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, Within
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node


@dataclass(frozen=True)
class Tile:
    """The register tile of the machine's micro-kernel, and the block sizes around it."""

    rows: int = 8
    columns: int = 32
    depth: int = 384
    block_rows: int = 128
    block_columns: int = 512


class Contract(Lowering):
    """Lowers one contraction with its epilogue."""

    def __init__(
        self,
        kernel: Kernel,
        is_stored: Callable[[Node], bool],
        uses: dict[Node, int],
        tile: Tile,
        threads: int,
    ) -> None:
        super().__init__(kernel, is_stored, uses)
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
        self.tile_rows = tile.rows if rows > 2 * tile.rows else _balanced(rows, tile.rows)
        self.block_depth = _balanced(depth, tile.depth)
        self.block_rows = _balanced(rows, tile.block_rows, self.tile_rows)
        self.block_columns = _balanced(columns, tile.block_columns, self.tile_columns)
        tasks = self._tasks(rows, columns)
        while tasks < 2 * threads and self.block_columns > 2 * self.tile_columns:
            self.block_columns = _balanced(
                columns, self.block_columns // 2, self.tile_columns
            )
            tasks = self._tasks(rows, columns)

    def _tasks(self, rows: int, columns: int) -> int:
        return (
            math.prod(self.batch)
            * -(-rows // self.block_rows)
            * -(-columns // self.block_columns)
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
        self.place: dict[int, IndexExpr] = dict(zip(self.contraction.batch, batch))
        self._allocate()
        depth_blocks = -(-depth // self.block_depth)
        values.open("kb")
        start = index_expr.axis("kb", depth_blocks) * self.block_depth
        self._pack_right(start, depth, columns)
        self._pack_left(start, depth, rows)
        self._multiply(index_expr.axis("kb", depth_blocks))
        body = values.close()
        values.emit(ir.For("kb", depth_blocks, "serial", body))
        self._epilogue(rows, columns)
        values.emit(ir.For("p", tasks, "parallel", values.close()))
        return self._finish("contraction", values.close(), 1)

    def _allocate(self) -> None:
        """Scratch buffers get their numbers last, behind all parameters."""
        self.right, self.left, self.target = -1, -2, -3
        sizes = (
            (self.right, self.block_depth * self.block_columns),
            (self.left, self.block_depth * self.block_rows),
            (self.target, self.block_rows * self.block_columns),
        )
        for number, elements in sizes:
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
        guards = [g for g in (Within(position, bound), Within(step, depth)) if not g.always]
        return self._padded(factor, place, guards)

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

    def _multiply(self, block: IndexExpr) -> None:
        values = self.values
        panels = self.block_rows // self.tile_rows
        strips = self.block_columns // self.tile_columns
        panel, strip = index_expr.axis("q", panels), index_expr.axis("s", strips)
        values.open("q")
        values.open("s")
        target = panel * (self.tile_rows * self.block_columns) + strip * self.tile_columns
        values.emit(
            ir.MicroKernel(
                self.left,
                values.sum(panel * (self.block_depth * self.tile_rows)),
                self.right,
                values.sum(strip * (self.block_depth * self.tile_columns)),
                self.target,
                values.sum(target),
                self.block_columns,
                self.tile_rows,
                self.tile_columns,
                ir.Sum((), self.block_depth),
                values.sum(block),
                self.scalar,
            )
        )
        strips_loop = ir.For("s", strips, "serial", values.close())
        values.emit(strips_loop)
        values.emit(ir.For("q", panels, "serial", values.close()))

    def _epilogue(self, rows: int, columns: int) -> None:
        """Stores the tile, through the elementwise roots that were fused behind."""
        values = self.values
        values.open("m")
        values.open("n")
        row, column = index_expr.axis("m", self.block_rows), index_expr.axis("n", self.block_columns)
        offset = values.sum(row * self.block_columns + column)
        self._results(
            (self.row_start + row, rows),
            (self.column_start + column, columns),
            ir.Load(self.target, offset, self.scalar),
        )
        body = values.close()
        values.emit(ir.For("n", self.block_columns, "serial", body, (), True))
        values.emit(ir.For("m", self.block_rows, "serial", values.close()))

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
                number = self._parameter(root, "write")
                target = values.sum(index_expr.linear_offset(at, root.shape))
                values.emit(ir.Store(number, target, value, conditions))


def unravel_within(position: IndexExpr, extents: Sequence[int]) -> tuple[IndexExpr, ...]:
    """The indices of a position that a guard keeps below the product of the extents.

    The outermost index needs no remainder then, so that one axis stays affine.
    """
    if not extents:
        return ()
    inner = index_expr.unravel(position, extents[1:])
    return (position // math.prod(extents[1:]), *inner)


def _balanced(extent: int, most: int, multiple: int = 1) -> int:
    """The size of equal blocks of at most `most` (in multiples) that cover `extent`."""
    units = -(-extent // multiple)
    most_units = max(most // multiple, 1)
    blocks = -(-units // most_units)
    return -(-units // blocks) * multiple


def _substitute(at: Iterable[IndexExpr] | None, box: Indices) -> Indices:
    assert at is not None
    return tuple(
        index.substitute(
            lambda atom: box[int(str(atom.name)[1:])] if isinstance(atom, Axis) else None
        )
        for index in at
    )
