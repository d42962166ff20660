"""The ways to compute a contraction: what the analytic model chooses, and what else there is.

A tactic is plain data: the model here chooses one, and lowering carries it out. The machine may
replace it by another one, for example one that a tuner measured to be faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from metaop.codegen.lowering.base.blocks import Tile, cost_of_tile
from metaop.codegen.lowering.contractions.axes import ContractionAxes, narrowest
from metaop.codegen.lowering.contractions.thin import Thin
from metaop.codegen.lowering.machine import Machine
from metaop.codegen.lowering.stencils.geometry import Stencil, stencil_of
from metaop.codegen.lowering.winograd.geometry import Geometry, geometries
from metaop.codegen.lowering.winograd.geometry import excess_of_rounding as excess_of_short
from metaop.codegen.lowering.winograd.geometry import share_of_work as share_of_short
from metaop.codegen.lowering.winograd.sums import Pair, long_windows
from metaop.codegen.lowering.winograd.sums import excess_of_rounding as excess_of_long
from metaop.codegen.lowering.winograd.sums import share_of_work as share_of_long
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of

# Schedules that cut a contraction by sizes other than those of blocks.
_OWN_SIZES = ("stencil", "thin")
# The most that a task owns: tiles of short products; rows and channels of long windows.
_MOST_TILES = 192
_MOST_ROWS, _MOST_CHANNELS = 128, 128
# The bound of the rounding of fewer products, relative to plain sums.
_MOST_EXCESS = 4
# Fewer products pay if their work is at most this share of plain sums.
_WORTH = 0.85
# Another register tile pays if products and packing then take at most this share.
_CHEAPER = 0.97


@dataclass(frozen=True)
class Tactic:
    """A schedule of a contraction, and the sizes into which it cuts it.

    `schedule` is "panels", "thin", "stencil", "winograd 4x4" (short products for so many results at
    once) or "long windows". `tile` has the register tile and the largest blocks around it.
    `windows` is how the schedule sees the contraction, None for panels and thin ones, and `share`
    its time relative to panels as the model estimates it; both follow from the contraction and the
    rest.
    """

    schedule: str
    tile: Tile
    windows: Stencil | Geometry | Pair | None = field(default=None, compare=False, repr=False)
    share: float = field(default=1.0, compare=False)

    def __str__(self) -> str:
        tile = self.tile
        blocks = f"{tile.block_rows}x{tile.block_columns}x{tile.depth}"
        return f"{self.schedule}, tiles {tile.rows}x{tile.columns}, blocks {blocks}"


def default_tactic(
    kernel: Kernel, storage: Storage, uses: dict[Node, int], machine: Machine
) -> Tactic | None:
    """The tactic that the analytic model prefers; None for kernels that are not contractions."""
    best = None
    for tactic in tactics(kernel, storage, uses, machine):
        if tactic.schedule == "stencil":
            return tactic
        pays = tactic.schedule == "panels" or tactic.share <= _WORTH
        if pays and (best is None or tactic.share < best.share):
            best = tactic
    return best


def tactics(
    kernel: Kernel, storage: Storage, uses: dict[Node, int], machine: Machine
) -> Iterator[Tactic]:
    """One tactic for every schedule that a contraction can take on this machine, panels last."""
    tile = machine.tile
    panels = Tactic("panels", _fitting(kernel, storage, uses, machine))
    rate = panels.tile.rate
    stencil = stencil_of(kernel, storage) if machine.stencils else None
    if stencil is not None:
        yield Tactic("stencil", tile, stencil, 0.0)
    if kernel.contraction is None:
        return
    if machine.thin:
        thin = Thin(kernel, storage, uses, panels.tile, machine.threads).share()
        if thin is not None:
            yield Tactic("thin", panels.tile, share=thin)
    if machine.filters:
        short = replace(tile, block_columns=_MOST_TILES)
        for geometry in geometries(kernel, storage):
            if excess_of_short(kernel, geometry) > _MOST_EXCESS:
                continue
            share = share_of_short(kernel, geometry, short)
            results = "x".join(map(str, geometry.results))
            yield Tactic(f"winograd {results}", short, geometry, share * rate)
        long = replace(tile, block_rows=_MOST_ROWS, block_columns=_MOST_CHANNELS)
        pair = long_windows(kernel, storage)
        if pair is not None and excess_of_long(kernel, pair) <= _MOST_EXCESS:
            yield Tactic("long windows", long, pair, share_of_long(kernel, pair, long) * rate)
    yield panels


def _fitting(kernel: Kernel, storage: Storage, uses: dict[Node, int], machine: Machine) -> Tile:
    """The register tile for the types of the factors, and for the rows and columns."""
    contraction, total, tile = kernel.contraction, kernel.roots[0].dtype, machine.tile
    if contraction is None:
        return tile
    types = {narrowest(contraction.left), narrowest(contraction.right)}
    fitting: Tile | None = None
    if total is dtypes.int32:
        most = max(dtype.itemsize for dtype in types)
        fitting = (most == 1 and tile.int8) or (most <= 2 and tile.int16) or None
    elif total is not dtypes.float64 and types == {dtypes.bfloat16}:
        fitting = tile.narrow and tile.narrow.if_it_works
    return fitting or _cheapest(ContractionAxes(kernel, storage, uses), machine)


def _cheapest(axes: ContractionAxes, machine: Machine) -> Tile:
    """The register tile that covers a result with the fewest idle products and the least packing.

    The usual one stays where that makes no difference, and for a batch: its members may exchange
    rows with other contractions, slice by slice, if all of them cut rows alike.
    """
    usual = machine.tile
    if hint_of(math.prod(axes.batch)) > 1:
        return usual
    sizes = math.prod(axes.rows), math.prod(axes.columns), math.prod(axes.depth)
    is_packed = axes.rows_are_neighbours()
    tiles = [replace(usual, rows=height, columns=width) for height, width in machine.tiles]
    costs = {tile: cost_of_tile(sizes, tile, is_packed) for tile in (usual, *tiles)}
    best = min(costs, key=costs.__getitem__)
    return best if costs[best] < _CHEAPER * costs[usual] else usual


def other_tiles(tactic: Tactic, machine: Machine) -> list[Tactic]:
    """The tactic with the machine's other register tiles, if it has one of them."""
    tile, usual = tactic.tile, machine.tile
    sizes = (tile.rows, tile.columns)
    known = ((usual.rows, usual.columns), *machine.tiles)
    if tactic.schedule in _OWN_SIZES or sizes not in known:
        return []
    others = (one for one in known if one != sizes)
    tiles = (replace(tile, rows=rows, columns=columns) for rows, columns in others)
    return [replace(tactic, tile=one) for one in tiles if one.is_possible]


def other_blocks(tactic: Tactic) -> list[Tactic]:
    """The tactic with one of its blocks halved or doubled."""
    if tactic.schedule in _OWN_SIZES:
        return []
    tile, found = tactic.tile, []
    for name in ("depth", "block_rows", "block_columns"):
        size = getattr(tile, name)
        found += [replace(tile, **{name: other}) for other in (size // 2, 2 * size)]
    return [replace(tactic, tile=one) for one in found if one.is_possible]
