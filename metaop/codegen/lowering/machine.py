"""What schedules need to know of a machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.contractions.packed_gemm import PackedGemm
from metaop.codegen.lowering.reductions.rows import RowReduction
from metaop.codegen.lowering.scatters.scatter import Scatter
from metaop.codegen.machine import PLAIN, Thresholds
from metaop.fusion.two_stages import Cutter, cut_long_rows

if TYPE_CHECKING:
    from metaop.codegen.lowering.request import Request
    from metaop.codegen.lowering.strategy import Tactic

    # Chooses the tactic of a contraction, given the one that the analytic model prefers.
    Chooser = Callable[[Request, Tactic], Tactic]

# The strategies that round more than sums do.
WITH_FEWER_PRODUCTS = ("winograd", "long windows")


@dataclass(frozen=True)
class Machine:
    """A machine as strategies see it, and the nests in which machines differ.

    `tile` is its register tile, `tiles` are further ones (rows, columns) that it has registers for,
    `threads` their number; `rows`, `contract` and `scatter` lower the three sorts of kernels;
    `backend` names the printer of its nests. Strategies named in `without` are not asked. Accesses
    to `lanes` elements of 4 bytes at once may be masked at no cost (0: there are no such).
    `thresholds` follow from its processor. `cut` tells which reductions are computed in two stages.
    `choose` may put another tactic in the place of a contraction's default.
    """

    tile: Tile = field(default_factory=Tile)
    tiles: tuple[tuple[int, int], ...] = ()
    threads: int = 1
    rows: type[RowReduction] = RowReduction
    contract: type[PackedGemm] = PackedGemm
    scatter: type[Scatter] = Scatter
    backend: str = "llvm"
    without: tuple[str, ...] = WITH_FEWER_PRODUCTS
    lanes: int = 0
    thresholds: Thresholds = PLAIN
    # The text of a machine is part of keys on disk, and that of a function contains its address.
    cut: Cutter = field(default=cut_long_rows, repr=False)
    choose: Chooser | None = field(default=None, compare=False, repr=False)
