"""How a contraction is cut into blocks, and how its factors are read.

A left factor that is contiguous along the depth is read in place; blocks of the depth then end with
its contiguous runs. A left factor that would be gathered element by element is first reordered by
a separate launch (`prepacked.py`).

bfloat16 factors are packed in pairs of neighbours along the depth if the machine has instructions
that multiply pairs; 16-bit integers are packed in pairs, 8-bit ones in fours. Matrix registers take
rows of the left factor as they are in memory, so a left factor that cannot be read in place is also
packed in rows.

The depth of a convolution has the offsets of the window outside and the channels inside, so that
the reads and the padding of a panel change only with the offset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from metaop.codegen.lowering.base.blocks import (
    PACKING,
    SHORTEST_RUN,
    Grid,
    Tile,
    balanced,
    cheapest_blocks,
    exact_block,
    height_of,
    width_of,
    window_block,
)
from metaop.codegen.lowering.base.tasks import Blocks
from metaop.codegen.lowering.contractions.axes import ContractionAxes, narrowest
from metaop.codegen.lowering.contractions.prepacked import packed, relaid
from metaop.codegen.nest import ir
from metaop.fusion.cases import WHOLE, Case
from metaop.fusion.kernel import Kernel
from metaop.fusion.recognise import window_axes
from metaop.fusion.storage import Storage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import divides, hint_of, is_symbolic, maximum

# Sums over more offsets are not windows: the gradient of a weight sums over whole images.
_MOST_OFFSETS = 64
# The fewest columns for which reordering the left factor first pays, if it could be read in place,
# and if it would be gathered.
_COLUMNS_PER_REORDER = 512
_COLUMNS_PER_RELAYOUT = 64
# Sums of at most this many products, or for this many columns, are short compared to longer rows.
_SHORT = 128
# Blocks of the depth may exceed their usual length by this fraction of it, if they are fewer then.
_LONGER = 8
# With more rows than this, packing the right factor costs little compared to multiplying.
_ROWS_PER_PACKING = 512


class Tiling(ContractionAxes):
    """One case of a contraction with its blocks, and the sources of its panels.

    `left_stride` is the stride of rows that are read in place, else None; `prepared` and `packed`
    are the factors that an earlier launch reorders. The micro-kernel multiplies `step` neighbours
    along the depth at a time; `together` of them are a packed element.
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
        windows = window_axes(self.contraction, self.kernel.shape, self.storage.has_buffer)
        self.step = tile.step
        self.together = ir.PAIR if tile.step == ir.MATRIX else tile.step
        self.signs = ""
        if self.together == ir.QUAD:
            self.in_place, right = (
                narrowest(x) for x in (self.contraction.left, self.contraction.right)
            )
            self.signs = "".join("s" if x.is_signed else "u" for x in (self.in_place, right))
        elif self.together == ir.PAIR:
            self.in_place = dtypes.int16 if self.scalar is dtypes.int32 else dtypes.bfloat16
        # The types of packed elements.
        self.panel = self.scalar if self.together == 1 else dtypes.int32
        self.left_panel = self.in_place if self.packs_rows else self.panel
        self.tile_columns = width_of(columns, tile.columns * 4 // self.scalar.itemsize)
        self.tile_rows = height_of(rows, tile.rows)
        longer, shorter = sorted((columns, depth), key=hint_of, reverse=True)
        if not is_symbolic(rows) and self._is_long(tile, rows, longer, shorter):
            self.tile_rows = exact_block(rows, tile.rows) or self.tile_rows
        self.prepared: Node | None = None
        self.packed: Node | None = None
        if self.case.is_empty:
            return
        self._choose_depth(tile, windows, (rows, columns, depth))
        panels, strips = -(-rows // self.tile_rows), -(-columns // self.tile_columns)
        most = max(tile.block_rows // self.tile_rows, 1), tile.block_columns // self.tile_columns
        near = None
        if self.left_stride is not None:
            near = self._near_by(tile, rows, longer, shorter)
        if near is not None:
            most = near // self.tile_rows, most[1]
        is_packed = hint_of(rows) <= _ROWS_PER_PACKING and self.right_is_shared()
        is_packed = is_packed or near is not None
        panel, strip = cheapest_blocks(
            Grid(
                panels,
                strips,
                math.prod(self.batch),
                2 * threads,
                PACKING * tile.rate if self.left_stride is None else 0,
                0 if is_packed else PACKING * tile.rate,
                near is None,
            ),
            (self.tile_rows, self.tile_columns),
            most,
        )
        others = math.prod(self.batch)
        self.strip_blocks = _blocks(
            "strip", strips, (strip, most[1]), others * -(-panels // panel), threads
        )
        self.panel_blocks = _blocks(
            "panel", panels, (panel, most[0]), others * -(-strips // strip), threads
        )
        # Blocks of different sizes share rows that are read in place: nothing is past the last.
        if self.left_stride is not None and not divides(panel, panels):
            self.panel_blocks = self.panel_blocks._replace(total=panels)
        self.block_rows = self.panel_blocks.tiles * self.tile_rows
        self.block_columns = self.strip_blocks.tiles * self.tile_columns
        if is_packed:
            blocks = self.strip_blocks
            self.packed = packed(self, blocks.total or blocks.blocks * blocks.tiles)

    @property
    def packs_rows(self) -> bool:
        """Whether packed panels of the left factor have rows, contiguous along the depth."""
        return self.step == ir.MATRIX

    def _near_by(self, tile: Tile, count: int, length: int, short: int) -> int | None:
        """The rows per block such that they stay in the near cache; None for no limit.

        `count` rows of `length` elements are computed from, or summed into, short ones. Attention
        scores are such rows: a few at a time go from one contraction to the next
        (`transforms/tile_and_fuse.py`). All kernels that write or read the rows cut them alike.
        """
        panel = None if is_symbolic(count) else exact_block(count, tile.rows)
        if panel is None or not self._is_long(tile, count, length, short):
            return None
        row_bytes = hint_of(length) * self.scalar.itemsize
        most = tile.near_bytes // (4 * panel * row_bytes)
        found = next((n for n in range(most, 0, -1) if divides(n, count // panel)), None)
        return None if found is None else found * panel

    def _is_long(self, tile: Tile, count: int, length: int, short: int) -> bool:
        """Whether rows between short ones are too many, and too long, for the near cache."""
        total = hint_of(2 * count * length * self.scalar.itemsize)
        is_batch = hint_of(math.prod(self.batch)) > 1
        return hint_of(short) <= _SHORT and is_batch and total > tile.near_bytes

    def _choose_depth(
        self, tile: Tile, windows: Sequence[int], extents: tuple[int, int, int]
    ) -> None:
        """The order of the depth, its blocks, and how the left factor is read."""
        rows, columns, depth = extents
        self.block_depth = exact_block(depth, _longest(tile)) or balanced(depth, tile.depth)
        self.block_depth += -self.block_depth % self.step
        self.run, self.offsets_inside = depth, 1
        is_whole = divides(self.tile_rows, rows)
        self.left_stride = self._unpacked_left(tile) if is_whole else None
        offsets = math.prod(self.kernel.shape[k] for k in windows)
        is_gathered = self.left_stride is None and self.left_is_gathered()
        enough = _COLUMNS_PER_RELAYOUT if is_gathered else _COLUMNS_PER_REORDER
        is_window = not is_symbolic(offsets) and 1 < offsets <= _MOST_OFFSETS
        if is_window and self._has_whole_windows(windows, offsets, tile):
            return
        near = None if self.left_stride else self._near_by(tile, depth, rows, columns)
        if near is not None and near % self.step == 0:
            self.block_depth = near
        if hint_of(columns) < enough or not (is_gathered or is_window):
            return
        if is_window:
            self.put_outside(windows)
            self.block_depth = window_block(depth // self.inner, self.inner, tile.depth)
            self.block_depth += -self.block_depth % self.step
        padded = -(-depth // self.block_depth) * self.block_depth
        self.left_stride, self.run = padded, depth
        height = -(-rows // self.tile_rows) * self.tile_rows
        self.prepared = relaid(self, (math.prod(self.batch), height, padded))

    def _has_whole_windows(self, windows: Sequence[int], offsets: int, tile: Tile) -> bool:
        """Whether the left factor is read in place in blocks of whole windows.

        Sets the blocks of the depth to so many channels, with the offsets of the window inside.
        """
        depth = self.contraction.depth
        if self.step > 1 or self.left_stride is None or self.run < math.prod(self.depth):
            return False
        channels = exact_block(self.run // offsets, max(tile.depth // offsets, 1))
        if depth[-len(windows) :] != tuple(windows) or channels is None:
            return False
        self.block_depth, self.offsets_inside = channels * offsets, offsets
        return True

    def _unpacked_left(self, tile: Tile) -> int | None:
        """The stride of rows of the left factor if it need not be packed, else None.

        Sets the blocks of the depth so that none exceeds a contiguous run.
        """
        for first in range(len(self.depth)):
            run = math.prod(self.depth[first:])
            block = exact_block(run, _longest(tile))
            if block is None or block % self.step or (first and hint_of(run) < SHORTEST_RUN):
                continue
            stride = self._stride_of_left(first)
            if stride is not None:
                self.block_depth, self.run = block, run
                return stride
        return None

    def _stride_of_left(self, first: int) -> int | None:
        """The stride of the rows, if the inner depth axes from `first` on are contiguous."""
        strides = self.left_strides(first)
        if strides is None or strides["k"] != 1:
            return None
        return strides["r"] or None


def _blocks(
    direction: str, tiles: int, sizes: tuple[int, int], others: int, threads: int
) -> Blocks:
    """The blocks of a direction, of the size that is best now, or of at most the largest one.

    The current size does not determine blocks of symbolically many `tiles`: they share the tiles,
    and are enough for all threads if there are `others` in the other directions.
    """
    size, most = sizes
    if not is_symbolic(tiles):
        return Blocks(direction, -(-tiles // size), size)
    workers = max(2 * threads // hint_of(others), 1)
    fewest = -(-tiles // (most * workers)) * workers
    return Blocks(direction, -maximum([-tiles, -fewest]), most, tiles)


def _longest(tile: Tile) -> int:
    """The longest block of a depth that blocks cover exactly."""
    return tile.depth + tile.depth // _LONGER
