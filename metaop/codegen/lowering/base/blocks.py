"""The sizes of blocks and tiles into which a contraction is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from metaop.unified_graph.symbolic import content_of, hint_of, is_symbolic

# Packing an element takes about as long as so many multiplications of numbers.
PACKING = 20
# Parts of symbolic extents are blocks if they have so many elements.
_SHORTEST_BLOCK = 16
# Blocks of the depth that are shorter would read and write tiles too often.
SHORTEST_RUN = 32


@dataclass(frozen=True)
class Tile:
    """The register tile of the machine's micro-kernel, and the block sizes around it.

    Its instructions multiply `step` neighbours along the depth, and in all `rate` times as many
    elements as those that multiply numbers. `narrow` is the tile for factors in bfloat16, `int16`
    and `int8` those for whole numbers of at most so many bits, where there are instructions for
    them. Launches run slice by slice if a slice of what they exchange
    takes at most `near_bytes`, which a thread has near by (0: never).
    """

    rows: int = 8
    columns: int = 32
    depth: int = 384
    block_rows: int = 512
    block_columns: int = 256
    step: int = 1
    rate: int = 1
    narrow: Tile | None = None
    int16: Tile | None = None
    int8: Tile | None = None
    near_bytes: int = 0

    @property
    def is_possible(self) -> bool:
        """Whether blocks hold a register tile at least."""
        sizes = (self.rows, self.columns, self.depth, self.block_rows, self.block_columns)
        return min(sizes) > 0 and self.columns <= self.block_columns


class Grid(NamedTuple):
    """The tiles of a result: panels of rows and strips of columns, in each of a batch.

    `workers` tasks run at the same time; every task packs its rows and its columns at the costs
    `packing_left` and `packing_right` for each element, 0 if it need not.
    """

    panels: int
    strips: int
    batch: int
    workers: int
    packing_left: int
    packing_right: int


def cheapest_blocks(grid: Grid, tile: tuple[int, int], most: tuple[int, int]) -> tuple[int, int]:
    """Panels and strips of a task's block, by what packing, idle tiles and workers cost.

    Panels and strips that a task does not pack itself are covered exactly: there is nothing behind
    their end. Of symbolic ones some blocks are smaller.
    """

    panels, strips = hint_of(grid.panels), hint_of(grid.strips)
    grid = grid._replace(batch=hint_of(grid.batch))

    def cost(choice: tuple[int, int]) -> float:
        height, width = choice
        blocks = grid.batch * -(-panels // height) * -(-strips // width)
        rounds = -(-blocks // grid.workers) * grid.workers
        rows, columns = height * tile[0], width * tile[1]
        return rounds * (rows * columns + grid.packing_left * rows + grid.packing_right * columns)

    heights = _block_sizes(grid.panels, most[0], not grid.packing_left)
    widths = _block_sizes(grid.strips, most[1], not grid.packing_right)
    return min(((height, width) for height in heights for width in widths), key=cost)


def balanced(extent: int, most: int, multiple: int = 1) -> int:
    """The size of equal blocks of at most `most` (in multiples) that cover `extent`.

    Of a symbolic extent there is one block, twice as large at most, or any number of them.
    """
    if is_symbolic(extent):
        number = 1 if hint_of(extent) <= most and extent <= 2 * most else -(-extent // most)
        return -(-extent // (number * multiple)) * multiple
    units = -(-extent // multiple)
    most_units = max(most // multiple, 1)
    blocks = -(-units // most_units)
    return -(-units // blocks) * multiple


def exact_block(extent: int, most: int) -> int | None:
    """The size of equal blocks of at most `most` that cover `extent` exactly, None without any.

    Multiples of 16 come first: they are packed in whole vectors.
    """
    if is_symbolic(extent):
        size = exact_block(content_of(extent), most)
        if size is not None and size >= _SHORTEST_BLOCK:
            return size
        return extent if hint_of(extent) <= most and extent <= 2 * most else None
    fewest = -(-extent // most)
    sizes = [extent // n for n in range(fewest, 3 * fewest) if extent % n == 0]
    return next((size for size in sizes if size % 16 == 0), sizes[0] if sizes else None)


def window_block(offsets: int, inner: int, most: int) -> int:
    """The size of equal blocks of a depth of so many offsets outside and `inner` channels inside.

    Blocks hold whole offsets, or equal parts of one.
    """
    if inner > most:
        return exact_block(inner, most) or balanced(inner, most)
    fitting = [n for n in range(1, offsets + 1) if offsets % n == 0 and 2 * n * inner <= 3 * most]
    return fitting[-1] * inner


def _block_sizes(units: int, most: int, exact: bool) -> list[int]:
    """Sizes of equal blocks that cover some units, at most 16 of the largest ones."""
    exact = exact and not is_symbolic(units)
    units = hint_of(units)
    counts = range(-(-units // most), units + 1)
    sizes = dict.fromkeys(-(-units // n) for n in counts if not exact or units % n == 0)
    return list(sizes)[:16]
