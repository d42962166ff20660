"""A kernel to be lowered, and what several strategies ask about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from metaop.codegen.lowering.base.blocks import Tile, cost_of_tile
from metaop.codegen.lowering.base.loops import (
    LoopPlan,
    along_reduced,
    joined_plan,
    lanes_lie_apart,
    plain_plan,
    transposed,
)
from metaop.codegen.lowering.contractions.axes import ContractionAxes, narrowest
from metaop.codegen.lowering.machine import Machine
from metaop.codegen.lowering.reductions.outer import column_width
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of

if TYPE_CHECKING:
    from metaop.codegen.schedule import Schedule

# Another register tile pays if products and packing then take at most this share.
_CHEAPER = 0.97


@dataclass(eq=False)
class Request:
    """A kernel, its storage, how often nodes are used, and the machine; of a loop, its step."""

    kernel: Kernel
    storage: Storage
    uses: dict[Node, int]
    machine: Machine
    step: Schedule | None = None

    @property
    def parts(self) -> tuple[Kernel, Storage, dict[Node, int], Machine]:
        """The kernel, its storage, the uses of nodes, and the machine."""
        return self.kernel, self.storage, self.uses, self.machine

    @cached_property
    def tile(self) -> Tile:
        """The register tile for the types of the factors, and for the rows and columns."""
        contraction, total, tile = self.kernel.contraction, self.kernel.roots[0].dtype, None
        assert contraction is not None
        types = {narrowest(contraction.left), narrowest(contraction.right)}
        usual = self.machine.tile
        if total is dtypes.int32:
            most = max(dtype.itemsize for dtype in types)
            tile = (most == 1 and usual.int8) or (most <= 2 and usual.int16) or None
        elif total is not dtypes.float64 and types == {dtypes.bfloat16}:
            tile = usual.narrow and usual.narrow.if_it_works
        return tile or self._cheapest_tile()

    def _cheapest_tile(self) -> Tile:
        """The register tile that covers a result with the fewest idle products and least packing.

        The usual one stays where that makes no difference, and for a batch: its members may
        exchange rows with other contractions, slice by slice, if all of them cut rows alike.
        """
        axes = ContractionAxes(self.kernel, self.storage, self.uses)
        usual = self.machine.tile
        if hint_of(math.prod(axes.batch)) > 1:
            return usual
        sizes = math.prod(axes.rows), math.prod(axes.columns), math.prod(axes.depth)
        is_packed = axes.rows_are_neighbours()
        tiles = [replace(usual, rows=rows, columns=columns) for rows, columns in self.machine.tiles]
        costs = {
            tile: cost_of_tile(sizes, tile, self.machine.threads, is_packed)
            for tile in (usual, *tiles)
        }
        best = min(costs, key=costs.__getitem__)
        return best if costs[best] < _CHEAPER * costs[usual] else usual

    @cached_property
    def row_plan(self) -> LoopPlan:
        """The loops of a map or of reductions, in rows.

        The plain loops are lowered first: only finished index expressions tell which axes join.
        """
        return self._row_plan_and_width[0]

    @cached_property
    def column_width(self) -> int | None:
        """The columns of a task; None if no reduction is along outer axes."""
        return self._row_plan_and_width[1]

    @cached_property
    def _row_plan_and_width(self) -> tuple[LoopPlan, int | None]:
        kernel, machine = self.kernel, self.machine
        plain, thresholds = plain_plan(kernel), machine.thresholds
        probe = machine.rows(kernel, self.storage, self.uses, plain, thresholds)
        places = probe.places_in_box()
        plan = joined_plan(kernel, probe.values.offsets, places)
        if lanes_lie_apart(kernel, places):
            plan = transposed(kernel, plan, plan, places)
        if not machine.rows.TURNS:
            return along_reduced(kernel, plan, places), None
        return plan, column_width(kernel, plan, places, machine.threads, thresholds)
