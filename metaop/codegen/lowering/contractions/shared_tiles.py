"""Tiles for contractions on a GPU, and how long a contraction takes with each.

The time is that of the multiprocessor with the most blocks, in clocks: of its instructions or of
what it gets from the second cache, whichever takes longer, but at least the latency of the blocks
that run one after another. The numbers are those of recent NVIDIA GPUs and of the instructions that
NVRTC makes; they only have to rank tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from metaop.codegen.lowering.contractions.depth_order import spread
from metaop.codegen.lowering.contractions.warp_tiles import WARP_TILES, WarpTile, multiplied_dtype
from metaop.fusion.recognise import Contraction
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.access import Within
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node

_WARP = 32
# Of a multiprocessor: warps that start an instruction in a clock, threads with the registers of a
# contraction, and bytes that it gets from the second cache in a clock.
_SCHEDULERS, _THREADS, _FAR_BYTES = 4, 512, 24
# Instructions for an element of a panel, for one that is read under guards, and for a step besides
# its elements; of the clocks of shared memory, those that instructions do not hide.
_COPY, _GUARDED_COPY, _STEP, _EXPOSED = 3, 12, 40, 0.25
# Clocks of a step besides its work: lanes wait for each other, and for shared memory.
_SYNCHRONISED = 150
# Clocks before the first multiplication of a block and after the last, and those that other blocks
# on the multiprocessor cannot use. Clocks to add the sums of another slice.
_LATENCY, _OUTSIDE, _ADDED = 1500, 300, 150
# The cost of guards where the last piece is shorter, and the most of the time of a whole one that a
# contraction in pieces may take to be worth a second launch.
_GUARDED, _WORTH = 1.03, 0.9
# Clocks of another launch, bytes of partial results that pass in a clock, and the clocks in which
# the second stage adds another piece.
LAUNCH, _PARTIAL_BYTES, _PARTIAL = 4500, 1500, 80
# The length of a piece of a depth is a multiple of this, so that all but the last one have whole
# steps. The fewest steps of one, and the most pieces that a multiprocessor takes.
PIECE, _STEPS, _TURNS = 16, 4, 16
# The most registers for sums, in bytes, and the threads of a block that may have more besides.
_SUMS, _BLOCK = 256, 128


# The panels of a factor: one is multiplied while the next one is filled. The padding of their rows,
# so that a column spreads over the banks.
SLOTS, PADDING = 2, 4
# The bytes of shared memory that a block may have.
_SHARED = 48 << 10


class SharedTile(NamedTuple):
    """The part of the result that a block computes, `rows` by `columns`, in steps of `depth`.

    Each of its threads computes `down` by `across` elements. A small tile has `slices` of threads
    that share the steps of the depth and add their sums at the end: more warps hide latency, and
    each still reads little of the panels.
    """

    rows: int
    columns: int
    depth: int
    down: int
    across: int
    slices: int = 1

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.slices * (self.rows // self.down) * (self.columns // self.across)

    def shared(self, size: int) -> int:
        """The bytes of shared memory, given the bytes of an element."""
        return SLOTS * self.depth * (self.rows + self.columns + 2 * PADDING) * size

    @property
    def sums(self) -> int:
        """The sums that each thread has."""
        return self.down * self.across

    @property
    def held(self) -> int:
        """The blocks that a multiprocessor holds at once."""
        return max(_THREADS // self.threads, 1)

    def blocks(self, rows: int, columns: int) -> int:
        """The blocks of a result."""
        return -(-rows // self.rows) * -(-columns // self.columns)


_SQUARE = (
    SharedTile(128, 128, 16, 8, 8),
    SharedTile(64, 64, 16, 8, 4),
    SharedTile(64, 64, 16, 4, 4),
    SharedTile(32, 32, 32, 4, 4, 2),
    SharedTile(32, 32, 64, 4, 4, 4),
)
_OBLONG = (
    SharedTile(128, 64, 8, 8, 8),
    SharedTile(64, 32, 16, 4, 4),
    # With 8 columns NVRTC needs three times the registers.
    SharedTile(128, 16, 8, 4, 4),
)
TILES = (
    *_SQUARE,
    *_OBLONG,
    *(tile._replace(rows=tile.columns, columns=tile.rows) for tile in _OBLONG),
)


class Product(NamedTuple):
    """The sizes of a contraction, whose sums have a dtype.

    Some of its factors have guards; tensor cores multiply those that are `narrow`. Of each, warps
    touch several times what they read.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    dtype: DType
    left_guarded: bool = False
    right_guarded: bool = False
    narrow: bool = False
    left_spread: float = 1.0
    right_spread: float = 1.0

    @classmethod
    def of(
        cls, contraction: Contraction, shape: Sequence[int], sizes: Sequence[int], dtype: DType
    ) -> Product:
        """A contraction with these sizes, in a box of a shape."""
        batch, rows, columns, depth = sizes
        left, right = (_is_guarded(factor) for factor in (contraction.left, contraction.right))
        narrow = multiplied_dtype(contraction, dtype) is not None
        touched = spread(contraction, shape)
        return cls(batch, rows, columns, depth, dtype, left, right, narrow, *touched)

    @property
    def guarded(self) -> tuple[bool, bool]:
        """Which of the left and the right factor has guards."""
        return self.left_guarded, self.right_guarded


def _is_guarded(factor: Node) -> bool:
    """Whether a factor is a view that begins before its source, such as a padded image."""
    while isinstance(factor.op, Reindex):
        # Others are those of a last piece, which are the same for all rows or columns.
        if any(guard.expr.low < 0 for guard in factor.op.map.guards if isinstance(guard, Within)):
            return True
        factor = factor.inputs[0]
    return False


class Choice(NamedTuple):
    """The clocks that a contraction takes with a tile, its depth cut into pieces."""

    clocks: float
    tile: SharedTile | WarpTile
    pieces: int = 1


@functools.lru_cache(maxsize=4096)
def best_tile(product: Product, processors: int) -> Choice:
    """The fastest tile for a contraction in one launch."""
    return min(Choice(clocks(product, tile, processors), tile) for tile in _fitting(product))


@functools.lru_cache(maxsize=4096)
def best_pieces(product: Product, processors: int, most: int) -> Choice:
    """The fastest tile and number of pieces, at most so many, of which 1 needs no second stage."""
    several = (
        Choice(_with_pieces(product, tile, processors, pieces), tile, pieces)
        for tile in _fitting(product)
        for pieces in _numbers_of_pieces(product, tile, processors, most)
    )
    whole = best_tile(product, processors)
    cut = min(several, default=whole)
    return cut if cut.clocks < _WORTH * whole.clocks else whole


def _numbers_of_pieces(
    product: Product, tile: SharedTile | WarpTile, processors: int, most: int
) -> Iterator[int]:
    """The numbers of pieces, of at least two, with which blocks fill the processors evenly."""
    blocks = product.batch * tile.blocks(product.rows, product.columns)
    most = min(most, product.depth // (_STEPS * tile.depth))
    found = {min(turns * processors // blocks, most) for turns in range(1, _TURNS + 1)}
    return (pieces for pieces in found if pieces > 1)


def _fitting(product: Product) -> Iterator[SharedTile | WarpTile]:
    """The tiles that have enough registers and shared memory."""
    if product.narrow:
        yield from WARP_TILES
        return
    for tile in TILES:
        sums = tile.sums * product.dtype.itemsize
        # Addresses and guards of an image need as many more as the largest tile leaves to a block.
        most = _SUMS // 2 if tile.threads > _BLOCK and any(product.guarded) else _SUMS
        if sums <= most and tile.shared(product.dtype.itemsize) <= _SHARED:
            yield tile


def clocks(product: Product, tile: SharedTile | WarpTile, processors: int) -> float:
    """The clocks that a contraction takes in one launch."""
    blocks = product.batch * tile.blocks(product.rows, product.columns)
    busiest = -(-blocks // processors)
    steps = max(-(-product.depth // tile.depth), 1)
    each = tile.busy(product.guarded) if isinstance(tile, WarpTile) else _busy(product, tile)
    busy = steps * each + _OUTSIDE
    # Fewer warps than schedulers leave some idle.
    idle = max(_SCHEDULERS * _WARP / tile.threads, 1)
    alone = steps * (each * idle + _SYNCHRONISED) + _LATENCY + _ADDED * (tile.slices - 1)
    return max(busiest * busy, -(-busiest // tile.held) * alone)


def _busy(product: Product, tile: SharedTile) -> float:
    """The clocks of a step during which other blocks cannot use what it uses most."""
    size = product.dtype.itemsize
    words, warps = size // 4, tile.threads / _WARP
    reads = (tile.down + tile.across) * words / 4
    copies = tile.depth * (tile.rows + tile.columns) / tile.threads
    own = tile.depth // tile.slices
    issued = own * (tile.down * tile.across * words + reads) + _STEP
    for side, guarded in zip(tile[:2], product.guarded):
        issued += tile.depth * side / tile.threads * (_GUARDED_COPY if guarded else _COPY)
    # A warp reads 16 bytes per lane in two clocks, because lanes share them.
    shared = own * reads * 2 + copies * 2 * words
    touched = tile.rows * product.left_spread + tile.columns * product.right_spread
    far = size * tile.depth * touched / _FAR_BYTES
    return max(warps * (issued / _SCHEDULERS + shared * _EXPOSED), far)


def _with_pieces(
    product: Product, tile: SharedTile | WarpTile, processors: int, pieces: int
) -> float:
    if pieces == 1:
        return clocks(product, tile, processors)
    length = -(-product.depth // (pieces * PIECE)) * PIECE
    pieces = -(-product.depth // length)
    part = product._replace(batch=product.batch * pieces, depth=length)
    found = clocks(part, tile, processors) * (_GUARDED if product.depth % length else 1)
    results = product.batch * product.rows * product.columns * product.dtype.itemsize
    return found + LAUNCH + pieces * (2 * results / _PARTIAL_BYTES + _PARTIAL)
