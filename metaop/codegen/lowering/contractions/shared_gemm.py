"""The schedule of contractions on a GPU: tiles of shared memory, a register tile per thread.

A thread block owns a block of the result. For each step of the depth, its threads copy a panel of
both factors, evaluated through their index maps, to shared memory. Each thread adds the product to
its tile of registers, which at the end goes through the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.contractions.packed_gemm import PackedGemm
from metaop.codegen.nest import ir
from metaop.fusion.cases import WHOLE, cases
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node

# The padding of rows of shared memory, so that a column spreads over the banks.
_PADDING = 4
# The multiplications of a multiprocessor with 128 cores in the microsecond between two kernels.
_LAUNCH = 1 << 18
# The neighbouring elements of a thread's tile that one instruction reads from shared memory.
_GROUP = 4


class SharedTile(NamedTuple):
    """The part of the result that a block computes, `rows` by `columns`, in steps of `depth`.

    Each of its threads computes `part` by `part` elements.
    """

    rows: int
    columns: int
    depth: int
    part: int

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return (self.rows // self.part) * (self.columns // self.part)

    def blocks(self, rows: int, columns: int) -> int:
        """The blocks of a result."""
        return -(-rows // self.rows) * -(-columns // self.columns)


_TILES = (SharedTile(128, 128, 8, 8), SharedTile(64, 64, 16, 4), SharedTile(32, 32, 32, 4))
# For results of few columns; those of few rows take it turned. With 8 columns NVRTC needs three
# times the registers, and with deeper steps it spills some.
_THIN = SharedTile(128, 16, 8, 4)
# Doubles take twice the registers.
_LARGEST_OF_DOUBLES = 64 * 64


def tiles_of(dtype: DType, rows: int, columns: int) -> tuple[SharedTile, ...]:
    """The tiles for a result, largest first; at most half of each is empty, except the last."""
    narrow, long = sorted((rows, columns))
    if narrow <= _THIN.columns and _THIN.rows < 2 * long:
        turned = _THIN._replace(rows=_THIN.columns, columns=_THIN.rows)
        return (_THIN if columns == narrow else turned,)
    *larger, smallest = _TILES
    most = _LARGEST_OF_DOUBLES if dtype is dtypes.float64 else math.inf
    fitting = (x for x in larger if x.columns < 2 * narrow and x.rows * x.columns <= most)
    return (*fitting, smallest)


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
        """One launch of the whole contraction, or one per case if these take fewer steps.

        A case has fewer blocks, which may leave multiprocessors idle, and every launch takes time.
        """
        assert kernel.contraction is not None
        parts = cases(kernel.contraction, kernel.shape, storage.has_buffer)
        whole, *several = (
            cls(kernel, storage, uses, tile, threads, one) for one in (WHOLE, *parts)
        )
        if sum(part.steps(threads) for part in several) < whole.steps(threads):
            return super().launches(kernel, storage, uses, tile, threads)
        return [whole.lower()]

    def steps(self, processors: int) -> int:
        """The multiplications of the busiest multiprocessor, plus those lost by a launch."""
        if self.case.is_empty:
            return _LAUNCH
        tasks = self._tasks(math.prod(self.rows), math.prod(self.columns))
        depth = -(-math.prod(self.depth) // self.tile.depth) * self.tile.depth
        return _LAUNCH + -(-tasks // processors) * self.tile.rows * self.tile.columns * depth

    def _choose_blocks(self, tile: Tile, threads: int) -> None:
        self.prepared = self.packed = None
        rows, columns = math.prod(self.rows), math.prod(self.columns)
        for chosen in tiles_of(self.scalar, rows, columns):
            self.tile = chosen
            self.block_rows, self.block_columns = chosen.rows, chosen.columns
            if self._tasks(rows, columns) >= threads:
                break

    def lower(self) -> LoweredKernel:
        if self.case.is_empty:
            return self.lower_empty()
        values, tile = self.values, self.tile
        rows, columns, depth = (
            math.prod(extents) for extents in (self.rows, self.columns, self.depth)
        )
        with self._blocks(rows, columns):
            self._allocate()
            self._clear()
            with values.loop("kb", -(-depth // tile.depth)) as step:
                start = step * tile.depth
                self._share(self.contraction.left, self.left, start, rows)
                self._share(self.contraction.right, self.right, start, columns)
                self._multiply_shared()
            self._store_tile(rows, columns)
        return self.finish("contraction", values.body)

    @contextmanager
    def _blocks(self, rows: int, columns: int) -> Iterator[None]:
        """The loop over the blocks of the result."""
        row_blocks = -(-rows // self.block_rows)
        column_blocks = -(-columns // self.block_columns)
        with self.values.loop("p", self._tasks(rows, columns), "parallel") as task:
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
        self.left, self.right, self.target = -1, -2, -3
        tile = self.tile
        for number, side in ((self.left, tile.rows), (self.right, tile.columns)):
            panel = tile.depth * (side + _PADDING)
            self.values.emit(ir.Alloc(number, panel, self.scalar, "shared"))
        self.values.emit(ir.Alloc(self.target, tile.part**2, self.scalar, "register"))

    def _clear(self) -> None:
        values = self.values
        with self._threads(), values.loop("i", self.tile.part**2, "unroll") as element:
            values.emit(ir.Store(self.target, values.sum(element), ir.Number(0, self.scalar)))

    def _share(self, factor: Node, number: int, start: IndexExpr, bound: int) -> None:
        """Copies a panel of a factor to shared memory, as [depth][side]."""
        values, tile = self.values, self.tile
        is_left = number == self.left
        axes = self.contraction.rows if is_left else self.contraction.columns
        extents = self.rows if is_left else self.columns
        first = self.row_start if is_left else self.column_start
        side = tile.rows if is_left else tile.columns
        each = tile.depth * side // tile.threads
        with self._threads() as thread, values.loop("e", each, "unroll") as turn:
            element = turn * tile.threads + thread
            if self._runs_along_depth(factor, axes, extents, bound):
                inside, step = element // tile.depth, element % tile.depth
            else:
                inside, step = element % side, element // side
            outer = (axes, extents, first + inside, bound)
            value = self.factor(factor, outer, (start + step, math.prod(self.depth)))
            place = values.sum(step * (side + _PADDING) + inside)
            values.emit(ir.Store(number, place, value))

    def _runs_along_depth(
        self, factor: Node, axes: tuple[int, ...], extents: list[int], bound: int
    ) -> bool:
        """Whether the depth is contiguous in memory, so that threads run along it."""
        depth = math.prod(self.depth)
        probe = SharedGemm(self.kernel, self.storage, self.values.uses, Tile(), 1, self.case)
        probe.place, values = {}, probe.values
        with values.loop("row", bound) as row, values.loop("step", depth) as step:
            value = probe.factor(factor, (axes, extents, row, bound), (step, depth))
            values.emit(ir.Store(0, values.sum(index_expr.constant(0)), value))
        return _has_unit_stride(values.offsets, "step")

    def _multiply_shared(self) -> None:
        values, tile = self.values, self.tile
        with (
            self._threads() as thread,
            values.loop("k", tile.depth, "unroll") as step,
            self._own_tile(thread) as (own, row, column),
        ):
            left = values.sum(step * (tile.rows + _PADDING) + row)
            right = values.sum(step * (tile.columns + _PADDING) + column)
            factors = tuple(
                ir.Load(number, place, self.scalar)
                for number, place in ((self.left, left), (self.right, right))
            )
            product = ir.Apply("mul", factors, self.scalar, self.scalar)
            values.emit(ir.Update(self.target, values.sum(own), "add", product))

    @contextmanager
    def _own_tile(self, thread: IndexExpr) -> Iterator[tuple[IndexExpr, IndexExpr, IndexExpr]]:
        """The loops over a thread's tile: an element's place in it, and its row and column.

        Those are counted within the block.
        """
        values, tile, part = self.values, self.tile, self.tile.part
        across = tile.columns // part

        def position(own: IndexExpr, thread: IndexExpr, side: int) -> IndexExpr:
            spread = side // (part // _GROUP)
            return (own // _GROUP) * spread + thread * _GROUP + own % _GROUP

        with values.loop("i", part, "unroll") as i, values.loop("j", part, "unroll") as j:
            row = position(i, thread // across, tile.rows)
            yield i * part + j, row, position(j, thread % across, tile.columns)

    def _store_tile(self, rows: int, columns: int) -> None:
        with self._threads() as thread, self._own_tile(thread) as (own, row, column):
            self.results(
                (self.row_start + row, rows),
                (self.column_start + column, columns),
                ir.Load(self.target, self.values.sum(own), self.scalar),
            )


def _has_unit_stride(offsets: list[IndexExpr], axis: str) -> bool:
    """Whether one of the offsets has unit stride along the axis."""
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
