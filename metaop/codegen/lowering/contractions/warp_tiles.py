"""Tiles for contractions of 16-bit floats on a GPU, whose warps multiply them by tensor cores."""

from __future__ import annotations

from typing import NamedTuple

from metaop.codegen.lowering.contractions.axes import narrowest
from metaop.codegen.nest import ir
from metaop.fusion.recognise import Contraction
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType

# The bytes of an element.
_BYTES = 2
# Of a multiprocessor, in a clock: multiplications of its tensor cores, bytes of shared memory that
# it reads or writes, and bytes that it gets from the second cache.
_PRODUCTS, _NEAR_BYTES, _FAR_BYTES = 1280, 128, 24
# Instructions that start in a clock; those for an element of a panel, for one that is read under
# guards, and for a step besides.
_SCHEDULERS, _COPY, _GUARDED_COPY, _STEP = 4, 0.5, 12, 40
# The fewest rows or columns of a warp, which it loads at once.
_NARROWEST = 16
# The registers of a multiprocessor, and those of a thread besides its sums.
_REGISTERS, _OTHERS = 1 << 16, 110


class WarpTile(NamedTuple):
    """The part of the result that a block computes, `rows` by `columns`, in steps of `depth`.

    Each of its warps computes `warp_rows` by `warp_columns` elements.
    """

    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int

    @property
    def slices(self) -> int:
        """The slices of the depth, each of which has warps of its own."""
        return 1

    @property
    def threads(self) -> int:
        """The threads of a block."""
        warps = (self.rows // self.warp_rows) * (self.columns // self.warp_columns)
        return warps * ir.WARP

    @property
    def sums(self) -> int:
        """The sums that each thread has."""
        return self.warp_rows * self.warp_columns // ir.WARP

    @property
    def held(self) -> int:
        """The blocks that a multiprocessor holds at once."""
        return max(_REGISTERS // (self.threads * (self.sums + _OTHERS)), 1)

    @property
    def for_elements(self) -> WarpTile:
        """The tile for panels that are read element by element.

        Threads need registers for the place of each, so they have fewer elements and fewer sums.
        """
        columns = max(self.warp_columns // 2, _NARROWEST)
        return self._replace(depth=self.depth // 2, warp_columns=columns)

    @property
    def turned(self) -> WarpTile:
        """The tile with rows for columns."""
        return WarpTile(self.columns, self.rows, self.depth, self.warp_columns, self.warp_rows)

    def blocks(self, rows: int, columns: int) -> int:
        """The blocks of a result."""
        return -(-rows // self.rows) * -(-columns // self.columns)

    def busy(self, guarded: tuple[bool, bool]) -> float:
        """The clocks of a step; `guarded` tells which factors are read under guards."""
        warps = self.threads // ir.WARP
        sides = self.rows, self.columns
        elements = self.depth * sum(sides)
        loaded = warps * self.depth * (self.warp_rows + self.warp_columns)
        issued = warps * _STEP + self.rows * self.columns * self.depth / (16 * 8 * 16)
        for side, is_guarded in zip(sides, guarded):
            issued += self.depth * side / ir.WARP * (_GUARDED_COPY if is_guarded else _COPY)
        return max(
            self.rows * self.columns * self.depth / _PRODUCTS,
            (loaded + elements) * _BYTES / _NEAR_BYTES,
            issued / _SCHEDULERS,
            elements * _BYTES / _FAR_BYTES,
        )


# A warp reads its panels from shared memory once for 64 by 64 products: with fewer, it would wait
# for shared memory rather than for tensor cores. Smaller tiles have deeper steps. A block of 128 by
# 256 would be alone on a multiprocessor, where nothing hides that its warps wait for each other: on
# an H100, a product of 4096 by 4096 took no less time with it.
_SQUARE = (
    WarpTile(128, 128, 32, 64, 64),
    WarpTile(64, 64, 64, 32, 32),
    WarpTile(32, 32, 64, 16, 16),
)
_OBLONG = (
    WarpTile(128, 64, 32, 64, 32),
    WarpTile(64, 32, 64, 32, 16),
    WarpTile(128, 16, 64, 32, 16),
)
WARP_TILES = (*_SQUARE, *_OBLONG, *(tile.turned for tile in _OBLONG))


def multiplied_dtype(contraction: Contraction, sums: DType) -> DType | None:
    """The dtype of the factors if tensor cores multiply them and add to sums of a dtype."""
    left, right = narrowest(contraction.left), narrowest(contraction.right)
    is_narrow = left in (dtypes.bfloat16, dtypes.float16) and left is right
    return left if is_narrow and sums is dtypes.float32 else None
