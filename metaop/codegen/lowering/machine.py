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
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.fusion.two_stages import Cutter, cut_long_rows
from metaop.unified_graph.node import Node

if TYPE_CHECKING:
    from metaop.codegen.lowering.tactic import Tactic

    # Chooses the tactic of a contraction, given the one that the analytic model prefers.
    Chooser = Callable[[Kernel, Storage, dict[Node, int], "Machine", Tactic], Tactic]


@dataclass(frozen=True)
class Machine:
    """The schedules of a machine, and what they need to know of it.

    `tile` is its register tile, `tiles` are further ones (rows, columns) that it has registers for,
    `threads` their number; `rows`, `contract` and `scatter` are the
    schedules of the three sorts of kernels; `backend` names the printer of its nests. `filters`
    allows Winograd's method for windows of three taps, `stencils` windows that slide over planes,
    `windows` to write small ones out, `thin` to read factors of thin contractions where they lie.
    Accesses to `lanes` elements of 4 bytes at once may be masked at no cost (0: there are no such).
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
    filters: bool = False
    stencils: bool = True
    windows: bool = True
    thin: bool = True
    lanes: int = 0
    thresholds: Thresholds = PLAIN
    # The text of a machine is part of keys on disk, and that of a function contains its address.
    cut: Cutter = field(default=cut_long_rows, repr=False)
    choose: Chooser | None = field(default=None, compare=False, repr=False)
