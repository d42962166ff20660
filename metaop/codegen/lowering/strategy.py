"""What a strategy is: a way to turn kernels into loop nests, chosen by what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.request import Request


@dataclass(frozen=True)
class Tactic:
    """A strategy for one kernel, and the sizes into which it cuts it.

    `tile` has the register tile of a contraction and the largest blocks around it. A `variant`
    tells tactics of the same strategy apart. `plan` is how the strategy sees the kernel, and
    `share` its time relative to the plain strategy as the model estimates it (0: nothing else comes
    into question); both follow from the kernel and the rest.
    """

    strategy: str
    tile: Tile = field(default_factory=Tile)
    variant: str = ""
    plan: Any = field(default=None, compare=False, repr=False)
    share: float = field(default=1.0, compare=False)

    @property
    def name(self) -> str:
        """The strategy and its variant."""
        return f"{self.strategy} {self.variant}".rstrip()

    def __str__(self) -> str:
        tile = self.tile
        blocks = f"{tile.block_rows}x{tile.block_columns}x{tile.depth}"
        return f"{self.name}, tiles {tile.rows}x{tile.columns}, blocks {blocks}"


@dataclass(frozen=True)
class Strategy:
    """A row of the table: what a strategy needs, what it gains, and its two functions.

    `plan` tells what the launches are made from, and is None or False for a kernel that the
    strategy does not compute. `lower` makes the launches of a tactic.
    """

    name: str
    needs: str
    why: str
    plan: Callable[[Request], Any]
    lower: Callable[[Request, Tactic], list[LoweredKernel]]

    def tactics(self, request: Request) -> Iterable[Tactic]:
        """The ways in which it would compute a kernel."""
        plan = self.plan(request)
        return [Tactic(self.name, plan=plan, share=0.0)] if plan else []


class Rival(Strategy):
    """A strategy that others may beat: `plan` yields its tactics, and a tuner measures them."""

    def tactics(self, request: Request) -> Iterable[Tactic]:
        found: Iterable[Tactic] = self.plan(request)
        return found
