"""The schedule of contractions on a GPU: tiles of shared memory, a register tile per thread.

A block of threads owns a block of the result. For each step of the depth its threads copy a panel
of both factors, evaluated through their index maps, to shared memory; each thread adds their
product to its tile of registers, which at the end goes through what was fused behind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from metaop.codegen import loop_nest as ir
from metaop.codegen.lowering.base import LoweredKernel
from metaop.codegen.lowering.blocks import Tile
from metaop.codegen.lowering.packed_gemm import PackedGemm
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node

# Rows of shared memory are this much longer, so that a column spreads over the banks.
_PADDING = 4
# Neighbouring elements of a thread's tile, read from shared memory at once.
_GROUP = 4


@dataclass(frozen=True)
class SharedTile:
    """The part of the result that a block computes, `side` by `side`, in steps of `depth`.

    Each of its threads computes `part` by `part` elements.
    """

    side: int
    depth: int
    part: int

    @property
    def stride(self) -> int:
        """The elements from one step of the depth to the next, in shared memory."""
        return self.side + _PADDING

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return (self.side // self.part) ** 2


_TILES = (SharedTile(128, 8, 8), SharedTile(64, 16, 4), SharedTile(32, 32, 4))
# Doubles fill twice the registers.
_DOUBLE_TILES = _TILES[1:]


class SharedGemm(PackedGemm):
    """Lowers one contraction with its epilogue for a GPU; `threads` counts multiprocessors."""

    @classmethod
    def launches(
        cls,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        tile: Tile,
        threads: int,
    ) -> list[LoweredKernel]:
        """One launch: shared memory takes factors in any order, and small kernels cost more."""
        return [cls(kernel, storage, uses, tile, threads).lower()]

    def _choose_blocks(self, tile: Tile, threads: int) -> None:
        rows, columns = math.prod(self.rows), math.prod(self.columns)
        tiles = _DOUBLE_TILES if self.scalar is dtypes.float64 else _TILES
        for chosen in tiles:
            self.tile = chosen
            self.block_rows = self.block_columns = chosen.side
            fits = chosen.side < 2 * min(rows, columns)
            if fits and self._tasks(rows, columns) >= threads:
                break

    def lower(self) -> LoweredKernel:
        values, tile = self.values, self.tile
        rows, columns, depth = (
            math.prod(extents) for extents in (self.rows, self.columns, self.depth)
        )
        tasks = self._open_tasks(rows, columns)
        self._allocate()
        thread = index_expr.axis("t", tile.threads)
        across = tile.side // tile.part
        self.thread_row, self.thread_column = thread // across, thread % across
        self._clear()
        steps = -(-depth // tile.depth)
        values.open("kb")
        start = index_expr.axis("kb", steps) * tile.depth
        self._share(self.contraction.left, self.left, start, rows)
        self._share(self.contraction.right, self.right, start, columns)
        self._multiply_shared()
        values.emit(ir.For("kb", steps, "serial", values.close()))
        self._store_tile(rows, columns)
        values.emit(ir.For("p", tasks, "parallel", values.close()))
        return self.finish("contraction", values.close())

    def _open_tasks(self, rows: int, columns: int) -> int:
        """Opens the loop over the blocks of the result."""
        row_blocks = -(-rows // self.block_rows)
        column_blocks = -(-columns // self.block_columns)
        tasks = self._tasks(rows, columns)
        self.values.open("p")
        task = index_expr.axis("p", tasks)
        self.row_start = (task % row_blocks) * self.block_rows
        rest = task // row_blocks
        self.column_start = (rest % column_blocks) * self.block_columns
        batch = index_expr.unravel(rest // column_blocks, self.batch)
        self.place = dict(zip(self.contraction.batch, batch))
        return tasks

    def _allocate(self) -> None:
        self.left, self.right, self.target = -1, -2, -3
        tile = self.tile
        panel = tile.depth * tile.stride
        self.values.emit(ir.Alloc(self.left, panel, self.scalar, "shared"))
        self.values.emit(ir.Alloc(self.right, panel, self.scalar, "shared"))
        self.values.emit(ir.Alloc(self.target, tile.part**2, self.scalar, "register"))

    def _clear(self) -> None:
        values = self.values
        values.open("t")
        values.open("i")
        element = index_expr.axis("i", self.tile.part**2)
        values.emit(ir.Store(self.target, values.sum(element), ir.Number(0, self.scalar)))
        values.emit(ir.For("i", self.tile.part**2, "unroll", values.close()))
        self._close_threads()

    def _close_threads(self) -> None:
        body = self.values.close()
        self.values.emit(ir.For("t", self.tile.threads, "serial", body, (), True))

    def _share(self, factor: Node, number: int, start: IndexExpr, bound: int) -> None:
        """Copies a panel of a factor to shared memory, as [depth][side]."""
        values, tile = self.values, self.tile
        is_left = number == self.left
        axes = self.contraction.rows if is_left else self.contraction.columns
        extents = self.rows if is_left else self.columns
        first = self.row_start if is_left else self.column_start
        each = tile.depth * tile.side // tile.threads
        values.open("t")
        values.open("e")
        element = index_expr.axis("e", each) * tile.threads + index_expr.axis("t", tile.threads)
        if self._runs_along_depth(factor, axes, extents, bound):
            inside, step = element // tile.depth, element % tile.depth
        else:
            inside, step = element % tile.side, element // tile.side
        outer = (axes, extents, first + inside, bound)
        value = self.factor(factor, outer, (start + step, math.prod(self.depth)))
        values.emit(ir.Store(number, values.sum(step * tile.stride + inside), value))
        values.emit(ir.For("e", each, "unroll", values.close()))
        self._close_threads()

    def _runs_along_depth(
        self, factor: Node, axes: tuple[int, ...], extents: list[int], bound: int
    ) -> bool:
        """Whether neighbours along the depth are neighbours in memory: threads follow them."""
        depth = math.prod(self.depth)
        probe = SharedGemm(self.kernel, self.storage, self.values.uses, Tile(), 1)
        probe.place = {}
        probe.values.open("row")
        probe.values.open("step")
        outer = (axes, extents, index_expr.axis("row", bound), bound)
        value = probe.factor(factor, outer, (index_expr.axis("step", depth), depth))
        probe.values.emit(ir.Store(0, probe.values.sum(index_expr.constant(0)), value))
        return _has_unit_stride(probe.values.offsets, "step")

    def _multiply_shared(self) -> None:
        values, tile = self.values, self.tile
        for name in ("t", "k", "i", "j"):
            values.open(name)
        step = index_expr.axis("k", tile.depth)
        row, column = self._element()
        factors = (
            ir.Load(self.left, values.sum(step * tile.stride + row), self.scalar),
            ir.Load(self.right, values.sum(step * tile.stride + column), self.scalar),
        )
        product = ir.Apply("mul", factors, self.scalar, self.scalar)
        values.emit(ir.Update(self.target, self._own_element(), "add", product))
        for name, extent in (("j", tile.part), ("i", tile.part), ("k", tile.depth)):
            values.emit(ir.For(name, extent, "unroll", values.close()))
        self._close_threads()

    def _element(self) -> tuple[IndexExpr, IndexExpr]:
        """The row and the column, within the block, of element (i, j) of a thread's tile."""
        part = self.tile.part
        groups = part // _GROUP
        spread = self.tile.side // groups

        def position(own: IndexExpr, thread: IndexExpr) -> IndexExpr:
            return (own // _GROUP) * spread + thread * _GROUP + own % _GROUP

        row = position(index_expr.axis("i", part), self.thread_row)
        return row, position(index_expr.axis("j", part), self.thread_column)

    def _own_element(self) -> ir.Sum:
        part = self.tile.part
        return self.values.sum(index_expr.axis("i", part) * part + index_expr.axis("j", part))

    def _store_tile(self, rows: int, columns: int) -> None:
        values = self.values
        for name in ("t", "i", "j"):
            values.open(name)
        row, column = self._element()
        self.results(
            (self.row_start + row, rows),
            (self.column_start + column, columns),
            ir.Load(self.target, self._own_element(), self.scalar),
        )
        for name in ("j", "i"):
            values.emit(ir.For(name, self.tile.part, "unroll", values.close()))
        self._close_threads()


def _has_unit_stride(offsets: list[IndexExpr], axis: str) -> bool:
    """Whether one of the offsets moves by one element when the axis does."""
    for offset in offsets:
        for atom, coefficient in offset.terms:
            inner = getattr(atom, "name", None)
            if inner is None and hasattr(atom, "dividend"):
                inner = (
                    axis
                    if any(getattr(part, "name", None) == axis for part in atom.dividend.atoms())
                    else None
                )
            if inner == axis and coefficient == 1:
                return True
    return False
