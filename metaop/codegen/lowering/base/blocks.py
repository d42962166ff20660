"""The block and tile sizes of a contraction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from metaop.unified_graph.symbolic import content_of, divides, hint_of, is_symbolic, usual_of

# Packing an element takes about as long as this many scalar multiplications.
PACKING = 20
# A step of the depth costs a register tile about as much as this many further multiplications.
_STEP = 16
# Where tiles reach past the columns, results are stored under masks. That costs about as much as
# this many multiplications per result.
_MASKED = 16
# Parts of symbolic extents with at least this many elements are blocks.
_SHORTEST_BLOCK = 16
# One block covers a symbolic extent until it is so many times as long as a block should be: a
# longer block costs less than another program.
_GROWTH = 8
# Shorter blocks of the depth would read and write tiles too often.
SHORTEST_RUN = 32


@dataclass(frozen=True)
class Tile:
    """The register tile of the machine's micro-kernel, and the block sizes around it.

    Its instructions multiply `step` neighbours along the depth, and `rate` times as many elements
    as scalar ones. `narrow` is the tile for bfloat16 factors, `int16` and `int8` those for integers
    of at most that width, if there are instructions for them. Launches run slice by slice if a
    slice of the values that they exchange has at most `near_bytes`, the near cache of a thread (0:
    never).

    `works` says whether the instructions of this process compute what they should; it takes a
    while. If not, `instead` is the tile to use.
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
    instead: Tile | None = None
    works: Callable[[], bool] | None = field(default=None, compare=False, repr=False)

    @property
    def if_it_works(self) -> Tile | None:
        """This tile, or the one to use instead of it."""
        return self if self.works is None or self.works() else self.instead

    @property
    def is_possible(self) -> bool:
        """Whether each block holds at least one register tile."""
        sizes = (self.rows, self.columns, self.depth, self.block_rows, self.block_columns)
        return min(sizes) > 0 and self.columns <= self.block_columns


class Grid(NamedTuple):
    """The tiles of a result: panels of rows and strips of columns, for each batch index.

    `workers` tasks run concurrently; each packs its rows and its columns at the costs
    `packing_left` and `packing_right` per element, 0 if they need no packing. With `shared` panels,
    blocks may differ in size.
    """

    panels: int
    strips: int
    batch: int
    workers: int
    packing_left: int
    packing_right: int
    shared: bool = False


def cheapest_blocks(grid: Grid, tile: tuple[int, int], most: tuple[int, int]) -> tuple[int, int]:
    """The panels and strips per task that cost least in packing, idle tiles and idle workers.

    Blocks cover panels and strips that a task does not pack exactly, because there is nothing past
    their end. With symbolic or shared ones, some blocks are smaller.
    """

    panels, strips = hint_of(grid.panels), hint_of(grid.strips)
    grid = grid._replace(batch=hint_of(grid.batch))

    def cost(choice: tuple[int, int]) -> float:
        height, width = choice
        blocks = grid.batch * -(-panels // height) * -(-strips // width)
        rounds = -(-blocks // grid.workers) * grid.workers
        rows, columns = height * tile[0], width * tile[1]
        return rounds * (rows * columns + grid.packing_left * rows + grid.packing_right * columns)

    heights = _block_sizes(grid.panels, most[0], not (grid.packing_left or grid.shared))
    widths = _block_sizes(grid.strips, most[1], not grid.packing_right)
    return min(((height, width) for height in heights for width in widths), key=cost)


def balanced(extent: int, most: int, multiple: int = 1) -> int:
    """The size of equal blocks of at most `most` (in multiples) that cover `extent`.

    A symbolic extent has one block, at most twice as large, or any number of blocks.
    """
    if is_symbolic(extent):
        number = 1 if hint_of(extent) <= most and extent <= 2 * most else -(-extent // most)
        return -(-extent // (number * multiple)) * multiple
    units = -(-extent // multiple)
    most_units = max(most // multiple, 1)
    blocks = -(-units // most_units)
    return -(-units // blocks) * multiple


def height_of(rows: int, most: int) -> int:
    """The height of a register tile of at most `most` rows.

    It is one for all but the shortest, so that a changed batch size needs no other kernel.
    """
    return balanced(rows, most) if not is_symbolic(rows) and rows <= 2 * most else most


def width_of(columns: int, most: int) -> int:
    """The width of a register tile: `most` columns, or half as many if that covers all columns.

    Half of a tile is whole vectors only if its width is a power of two.
    """
    is_narrow = most & (most - 1) == 0 and usual_of(columns) <= most // 2
    return most // 2 if is_narrow else most


def cost_of_tile(sizes: tuple[int, int, int], tile: Tile, threads: int, is_packed: bool) -> float:
    """The cost of a step of the depth in multiplications: idle ones, packing and masked stores too.

    `sizes` are rows, columns and depth. Each block packs its rows if `is_packed`, or if tiles do
    not cover them exactly; otherwise it reads them in place. Blocks have the same number of strips.
    """
    rows, columns, depth = sizes
    height, width = height_of(rows, tile.rows), width_of(columns, tile.columns)
    strips = -(-hint_of(columns) // width)
    fewest = -(-strips * width // tile.block_columns)
    blocks = min(max(fewest, -(-2 * threads // -(-hint_of(rows) // tile.block_rows))), strips)
    strips = blocks * -(-strips // blocks)
    cost = -(-rows // height) * strips * (height * width + _STEP)
    if is_packed or not divides(height, rows):
        cost += PACKING * rows * -(-columns // tile.block_columns)
    masked = 0 if divides(width, columns) else hint_of(rows * columns * _MASKED) / hint_of(depth)
    return float(hint_of(cost) + masked)


def exact_block(extent: int, most: int) -> int | None:
    """The size of equal blocks of at most `most` that cover `extent` exactly, or None.

    It prefers multiples of 16, which are packed in whole vectors, to sizes that are hardly longer.
    """
    if is_symbolic(extent):
        size = exact_block(content_of(extent), most)
        if size is not None and size >= _SHORTEST_BLOCK:
            return size
        return extent if hint_of(extent) <= most and extent <= _GROWTH * most else None
    fewest = -(-extent // most)
    sizes = [extent // n for n in range(fewest, 3 * fewest) if extent % n == 0]
    long = [size for size in sizes if 4 * size >= 3 * sizes[0]]
    return next((size for size in long if size % 16 == 0), sizes[0] if sizes else None)


def window_block(offsets: int, inner: int, most: int) -> int:
    """The size of equal blocks of a depth with window offsets outside and `inner` channels inside.

    A block has whole offsets, or an equal part of one.
    """
    if inner > most:
        return exact_block(inner, most) or balanced(inner, most)
    fitting = [n for n in range(1, offsets + 1) if offsets % n == 0 and 2 * n * inner <= 3 * most]
    return fitting[-1] * inner


def _block_sizes(units: int, most: int, exact: bool) -> list[int]:
    """The largest sizes, at most 16, of equal blocks that cover some units."""
    exact = exact and not is_symbolic(units)
    units = hint_of(units)
    counts = range(-(-units // most), units + 1)
    sizes = dict.fromkeys(-(-units // n) for n in counts if not exact or units % n == 0)
    return list(sizes)[:16]
