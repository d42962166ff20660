"""From a kernel to its loop nests: one function that chooses the schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from metaop.codegen.lowering.base import LoweredKernel
from metaop.codegen.lowering.contract import Contract, Tile
from metaop.codegen.lowering.loops import joined_plan, plain_plan
from metaop.codegen.lowering.rows import Rows
from metaop.codegen.lowering.scatter import Scatter, lower_fill
from metaop.fusion.kernel import Kernel
from metaop.unified_graph.node import Node


@dataclass(frozen=True)
class Machine:
    """What schedules need to know of the machine: the register tile and the number of threads."""

    tile: Tile = field(default_factory=Tile)
    threads: int = 1


def lower(
    kernel: Kernel, is_stored: Callable[[Node], bool], uses: dict[Node, int], machine: Machine
) -> list[LoweredKernel]:
    """The launches that compute a kernel: one, or two when a result must be initialised first."""
    if kernel.scatter:
        return [lower_fill(kernel.roots[0]), Scatter(kernel, is_stored, uses).lower()]
    if kernel.contraction is not None:
        return [Contract(kernel, is_stored, uses, machine.tile, machine.threads).lower()]
    probe = Rows(kernel, is_stored, uses, plain_plan(kernel))
    probe.lower()
    plan = joined_plan(kernel, probe.values.offsets)
    return [Rows(kernel, is_stored, uses, plan).lower()]
