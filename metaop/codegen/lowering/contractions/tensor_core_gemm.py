"""The schedule of contractions of 16-bit floats on a GPU, whose tensor cores multiply them.

It is that of other contractions, but panels hold 16-bit floats, and each warp of a block multiplies
a tile of its own. A panel lies in shared memory as the factor in memory, along the depth or across
it, because a warp loads it either way. Sums are those of float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.contractions.axes import Outer
from metaop.codegen.lowering.contractions.prepacked import narrowed
from metaop.codegen.lowering.contractions.shared_gemm import Copied, Pair, SharedGemm, Side
from metaop.codegen.lowering.contractions.shared_tiles import LAUNCH, best_tile
from metaop.codegen.lowering.contractions.warp_tiles import WarpTile, multiplied_dtype
from metaop.codegen.nest import ir
from metaop.codegen.nest.neighbours import loads
from metaop.fusion.cases import WHOLE
from metaop.fusion.inline import widened
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, Within
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import is_symbolic

# A factor is prepared for contractions that take so many times as long as a launch.
_WORTH_PREPARING = 2


class TensorCoreGemm(SharedGemm):
    """Lowers one contraction of 16-bit floats with its epilogue."""

    together = 8
    tile: WarpTile  # type: ignore[assignment]

    def _choose_blocks(self, tile: Tile, threads: int) -> None:
        self.prepared = self.packed = None
        self.processors = threads
        multiplied = multiplied_dtype(self.contraction, self.scalar)
        assert multiplied is not None
        self.multiplied = multiplied
        self._order_depth()
        product = self._product()
        chosen = best_tile(product, threads)
        assert isinstance(chosen.tile, WarpTile)
        self.tile = chosen.tile
        # The factors that a launch before brings into the order and the dtype of panels.
        self.narrowed: dict[bool, Node] = {}
        both = True, False
        if chosen.clocks > _WORTH_PREPARING * LAUNCH:
            for is_left in filter(self._is_prepared, both):
                factor = self.contraction.left if is_left else self.contraction.right
                axes = self.contraction.rows if is_left else self.contraction.columns
                along = super()._copied(is_left).along_depth
                self.narrowed[is_left] = narrowed(self, factor, axes, along, multiplied)
        if any(self._copied(is_left).together == 1 for is_left in both):
            self.tile = chosen.tile.for_elements
        self.block_rows, self.block_columns = self.tile.rows, self.tile.columns

    # --- preparation --------------------------------------------------------------------------

    def _is_prepared(self, is_left: bool) -> bool:
        """Whether blocks would read a factor again and again that is not as panels need it."""
        if self.case is not WHOLE:
            return False
        factor = self.contraction.left if is_left else self.contraction.right
        extents, others, size = self.rows, self.columns, self.tile.columns
        if not is_left:
            extents, others, size = self.columns, self.rows, self.tile.rows
        source = factor
        while isinstance(source.op, Reindex):
            source = source.inputs[0]
        elements = math.prod((*self.batch, *extents, *self.depth))
        if is_symbolic(elements) or elements > source.size or math.prod(others) <= size:
            return False
        reads = loads(self._probed(is_left, {}).values.body)
        is_wide = any(load.dtype.itemsize > self.multiplied.itemsize for load in reads)
        return is_wide or super()._copied(is_left).together == 1

    def preparations(self) -> list[LoweredKernel]:
        return [self._again()._prepare(is_left) for is_left in self.narrowed]

    def _again(self) -> TensorCoreGemm:
        """The same contraction without any statements."""
        made = self.kernel, self.storage, self.values.uses, Tile(), self.processors, self.case
        return TensorCoreGemm(*made)

    def _prepare(self, is_left: bool) -> LoweredKernel:
        """Writes a prepared factor. A task is a line, along which lanes run."""
        node, values, contraction = self.narrowed[is_left], self.values, self.contraction
        factor = contraction.left if is_left else contraction.right
        axes = contraction.rows if is_left else contraction.columns
        extents = self.rows if is_left else self.columns
        batch, lines, length = node.shape
        along, bound = self._copied(is_left).along_depth, math.prod(extents)
        with (
            values.loop("p", batch * lines, "parallel") as task,
            values.loop("c", length, vector=True) as place,
        ):
            self.place = dict(zip(contraction.batch, index_expr.unravel(task // lines, self.batch)))
            inside, step = (task % lines, place) if along else (place, task % lines)
            value = self.factor(
                factor, (axes, extents, inside, bound), (step, math.prod(self.depth))
            )
            number = self.parameter(node, "write")
            values.emit(ir.Store(number, values.sum(task * length + place), value))
        return self.finish("order", values.body, length, prepared=node)

    def _element(self, side: Side, outer: Outer, inner: tuple[IndexExpr, int]) -> ir.Expr:
        is_left = side.panel == self.sides[0].panel
        if is_left not in self.narrowed:
            return super()._element(side, outer, inner)
        node = self.narrowed[is_left]
        batch = index_expr.linear_offset(
            [self.place[k] for k in self.contraction.batch], self.batch
        )
        line, place = outer[2], inner[0]
        if not side.copied.along_depth:
            line, place = place, line
        _, lines, length = node.shape
        offset = self.values.sum((batch * lines + line) * length + place)
        # Behind a line are zeros up to a whole part.
        ends = self._padded(inner[1]), lines
        if not side.copied.along_depth:
            ends = length, inner[1]
        guards = [one for one in (Within(place, ends[0]), Within(line, ends[1])) if not one.always]
        number = self.parameter(node, "read")
        return ir.Load(number, offset, self.multiplied, self.values.conditions(guards))

    def _padded(self, depth: int) -> int:
        return -(-depth // self.together) * self.together if self.narrowed else depth

    def _copied(self, is_left: bool) -> Copied:
        found = super()._copied(is_left)
        if is_left not in self.narrowed:
            return found
        length = self.tile.rows if is_left else self.tile.columns
        is_whole = self.tile.depth * length % (self.together * self.tile.threads) == 0
        return found._replace(together=self.together if is_whole else 1)

    # --- panels -------------------------------------------------------------------------------

    def padded(self, factor: Node, place: dict[int, IndexExpr], guards: list[Guard]) -> ir.Expr:
        """`factor` at a position if guards hold, else zero, as it was before it was made wider."""
        node, at, own = self.behind_views(factor, place)
        source = widened(node)
        if source is None or self.storage.has_buffer(node) or source.dtype is not self.multiplied:
            return _guarded_once(super().padded(factor, place, guards))
        every = tuple(dict.fromkeys((*guards, *own)))
        value = self.values.value(source, at, every)
        if not every or (isinstance(value, ir.Load) and value.conditions):
            return value
        zero = ir.Number(0, self.multiplied)
        return ir.Choose(self.values.conditions(every), value, zero, self.multiplied)

    def _length(self, side: Side) -> int:
        """The elements of a line of a panel."""
        return self.tile.depth if side.copied.along_depth else side.length

    def _panel_size(self, side: Side) -> int:
        return self.tile.depth * side.length

    def _place_in_panel(self, side: Side, inside: IndexExpr, step: IndexExpr) -> IndexExpr:
        line, place = (inside, step) if side.copied.along_depth else (step, inside)
        length = self._length(side)
        # Chunks are rotated, so that those of neighbouring lines lie in different banks.
        group = min(length // ir.CHUNK, ir.CHUNKS)
        chunk = place // ir.CHUNK
        rotated = (chunk + line // (ir.CHUNKS // group)) % group
        whole = chunk // group * group + rotated
        return line * length + whole * ir.CHUNK + place % ir.CHUNK

    # --- product and epilogue -----------------------------------------------------------------

    def _warp_start(self, thread: IndexExpr) -> Pair:
        """The first row and column of a thread's warp in the block."""
        tile, warp = self.tile, thread // ir.WARP
        across = tile.columns // tile.warp_columns
        return warp // across * tile.warp_rows, warp % across * tile.warp_columns

    def _multiply_shared(self, number: IndexExpr) -> None:
        values, tile = self.values, self.tile
        steps = tile.depth // ir.WARP_STEPS
        with self._threads() as thread, values.loop("k", steps, "unroll") as step:
            left, right = (
                self._warp_panel(side, start, step * ir.WARP_STEPS, self._slot(side, number))
                for side, start in zip(self.sides, self._warp_start(thread))
            )
            sizes = tile.warp_rows, tile.warp_columns
            values.emit(ir.WarpProduct(left, right, self.target, *sizes, self.multiplied))

    def _warp_panel(
        self, side: Side, start: IndexExpr, step: IndexExpr, slot: IndexExpr
    ) -> ir.SharedPanel:
        """What a warp multiplies of a factor: from a row or column and a step on."""
        values, along, length = self.values, side.copied.along_depth, self._length(side)
        line, place = (start, step) if along else (step, start)
        offset, chunk = values.sum(slot + line * length), values.sum(place // ir.CHUNK)
        return ir.SharedPanel(side.panel, offset, chunk, length, along)

    @contextmanager
    def _own_tile(self, thread: IndexExpr) -> Iterator[tuple[IndexExpr, IndexExpr, IndexExpr]]:
        tile, loop = self.tile, self.values.loop
        first_row, first_column = self._warp_start(thread)
        lane = thread % ir.WARP
        down, across = tile.warp_rows // ir.WARP_ROWS, tile.warp_columns // ir.WARP_COLUMNS
        with (
            loop("i", down, "unroll") as i,
            loop("h", 2, "unroll") as half,
            loop("j", across, "unroll") as j,
            loop("v", 2, "unroll", vector=True) as one,
        ):
            row = first_row + i * ir.WARP_ROWS + half * 8 + lane // 4
            column = first_column + j * ir.WARP_COLUMNS + lane % 4 * 2 + one
            yield (i * across + j) * ir.WARP_SUMS + half * 2 + one, row, column


def _guarded_once(value: ir.Expr) -> ir.Expr:
    """A value without choices of zero where the element that it reads is zero anyway."""
    if not isinstance(value, ir.Choose) or not _is_zero(value.otherwise):
        return value
    inner = _guarded_once(value.value)
    is_zero_there = isinstance(inner, ir.Load) and str(inner.fill) in ("0", "0.0")
    if is_zero_there and set(value.conditions) <= set(inner.conditions):  # type: ignore[union-attr]
        return inner
    return value._replace(value=inner)


def _is_zero(value: ir.Expr) -> bool:
    return isinstance(value, ir.Number) and value.value == 0
