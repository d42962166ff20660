"""How a contraction is cut into blocks, and how its factors are read.

A left factor that lies in memory with neighbours along the depth is read where it is. Blocks of the
depth then end where a run of neighbours does. One that would have to be gathered element by element
is brought into that order first, by a launch of its own (`prepared.py`).

The depth of a convolution runs over the offsets of the window outside and over channels inside:
then what a panel reads, and where its padding lies, changes with the offset only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from metaop.codegen.lowering.blocks import (
    SHORTEST_RUN,
    Grid,
    Tile,
    balanced,
    cheapest_blocks,
    exact_block,
    window_block,
)
from metaop.codegen.lowering.positions import Positions
from metaop.codegen.lowering.prepared import packed, relaid
from metaop.fusion.cases import WHOLE, Case
from metaop.fusion.kernel import Kernel
from metaop.fusion.recognise import window_axes
from metaop.fusion.storage import Storage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node

# Windows of more offsets are not windows: the gradient of a weight sums over whole images.
_MOST_OFFSETS = 64
# So many columns repay that the left factor is brought into another order first, when it could be
# read where it is, and when it would have to be gathered.
_COLUMNS_PER_REORDER = 512
_COLUMNS_PER_RELAYOUT = 64
# With more rows than this, packing the right factor takes little beside multiplying.
_ROWS_PER_PACKING = 512


class Blocked(Positions):
    """One case of a contraction with its blocks, and the ways in which panels get their elements.

    `left_stride` is how far rows lie apart where they are read in place, else None; `prepared` and
    `packed` are the factors that a launch before brings into order. A `step` of the micro-kernel
    multiplies so many neighbours along the depth, which are one element of the type `panel`.
    """

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        tile: Tile,
        threads: int,
        case: Case = WHOLE,
    ) -> None:
        super().__init__(kernel, storage, uses, case)
        self._choose_blocks(tile, threads)

    def _choose_blocks(self, tile: Tile, threads: int) -> None:
        rows, columns, depth = (
            math.prod(extents) for extents in (self.rows, self.columns, self.depth)
        )
        width = tile.columns if self.scalar is dtypes.float32 else tile.columns // 2
        self.tile_columns = width if columns > width // 2 else width // 2
        # One tile for all but the shortest: a changed batch size must not need another kernel.
        self.tile_rows = tile.rows if rows > 2 * tile.rows else balanced(rows, tile.rows)
        # How many neighbours along the depth a step multiplies, and the type of packed elements.
        self.step, self.panel = 1, self.scalar
        self.prepared: Node | None = None
        self.packed: Node | None = None
        if self.case.is_empty:
            self.block_rows, self.block_columns = 1, columns
            return
        windows = window_axes(self.contraction, self.kernel.shape, self.storage.has_buffer)
        if tile.pairs and not windows and self.has_factors_of(dtypes.bfloat16):
            self.step, self.panel, self.in_place = 2, dtypes.int32, dtypes.bfloat16
        self._choose_depth(tile, windows, (rows, columns, depth))
        if rows <= _ROWS_PER_PACKING and self.right_is_shared():
            self.packed = packed(self, -(-depth // self.block_depth) * self.block_depth)
        panels, strips = -(-rows // self.tile_rows), -(-columns // self.tile_columns)
        most = max(tile.block_rows // self.tile_rows, 1), tile.block_columns // self.tile_columns
        panel, strip = cheapest_blocks(
            Grid(
                panels,
                strips,
                math.prod(self.batch),
                2 * threads,
                self.left_stride is None,
                self.packed is None,
            ),
            (self.tile_rows, self.tile_columns),
            most,
        )
        self.block_rows, self.block_columns = panel * self.tile_rows, strip * self.tile_columns

    def _choose_depth(
        self, tile: Tile, windows: Sequence[int], extents: tuple[int, int, int]
    ) -> None:
        """The order of the depth, its blocks, and how the left factor is read."""
        rows, columns, depth = extents
        self.block_depth = exact_block(depth, tile.depth) or balanced(depth, tile.depth)
        self.block_depth += self.block_depth % self.step
        self.run = depth
        self.left_stride = None if rows % self.tile_rows else self._unpacked_left(tile)
        offsets = math.prod(self.kernel.shape[k] for k in windows)
        is_gathered = self.left_stride is None and self.step == 1 and self.left_is_gathered()
        enough = _COLUMNS_PER_RELAYOUT if is_gathered else _COLUMNS_PER_REORDER
        is_window = 1 < offsets <= _MOST_OFFSETS
        if columns < enough or not (is_gathered or is_window):
            return
        if is_window:
            self.put_outside(windows)
            self.block_depth = window_block(depth // self.inner, self.inner, tile.depth)
        padded = -(-depth // self.block_depth) * self.block_depth
        self.left_stride, self.run = padded, depth
        height = -(-rows // self.tile_rows) * self.tile_rows
        self.prepared = relaid(self, (math.prod(self.batch), height, padded))

    def _unpacked_left(self, tile: Tile) -> int | None:
        """How far rows of the left factor lie apart if it need not be packed, else None.

        Sets the blocks of the depth so that none goes beyond a run of neighbours in memory.
        """
        for first in range(len(self.depth)):
            run = math.prod(self.depth[first:])
            block = exact_block(run, tile.depth)
            if block is None or block % self.step or (first and run < SHORTEST_RUN):
                continue
            stride = self._stride_of_left(first)
            if stride is not None:
                self.block_depth, self.run = block, run
                return stride
        return None

    def _stride_of_left(self, first: int) -> int | None:
        """The stride of the rows, if the inner depth axes from `first` on are neighbours."""
        strides = self.left_strides(first)
        if strides is None or strides["k"] != 1:
            return None
        return strides["r"] or None

    def _tasks(self, rows: int, columns: int) -> int:
        return (
            math.prod(self.batch) * -(-rows // self.block_rows) * -(-columns // self.block_columns)
        )
