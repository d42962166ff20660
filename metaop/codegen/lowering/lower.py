"""From a kernel to its loop nests: one function that chooses the schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.base.loops import (
    along_reduced,
    divided,
    joined_plan,
    lanes_lie_apart,
    plain_plan,
    transposed,
)
from metaop.codegen.lowering.contractions.thin import Thin
from metaop.codegen.lowering.custom import lower_code
from metaop.codegen.lowering.machine import Machine
from metaop.codegen.lowering.reductions.outer import OuterReduction, column_width
from metaop.codegen.lowering.reductions.scans import Scan
from metaop.codegen.lowering.reductions.windows import Windows, windows_plan
from metaop.codegen.lowering.repetition import lower_loop
from metaop.codegen.lowering.scatters.bitonic import lower_order_by_comparisons
from metaop.codegen.lowering.scatters.order import lower_order
from metaop.codegen.lowering.scatters.replacement import lower_replacement
from metaop.codegen.lowering.scatters.scatter import Segments, lower_fill
from metaop.codegen.lowering.stencils.geometry import Stencil
from metaop.codegen.lowering.stencils.stencil import lower_stencil
from metaop.codegen.lowering.tactic import Tactic, default_tactic
from metaop.codegen.lowering.winograd.geometry import Geometry
from metaop.codegen.lowering.winograd.sums import LongWindows
from metaop.codegen.lowering.winograd.windows import lower_winograd
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.reduce.replacement import Replacement
from metaop.reindex.order import Order
from metaop.unified_graph.node import Node

if TYPE_CHECKING:
    from metaop.codegen.schedule import Schedule


def lower(
    kernel: Kernel,
    storage: Storage,
    uses: dict[Node, int],
    machine: Machine,
    step: Schedule | None = None,
) -> list[LoweredKernel]:
    """The launches that compute a kernel.

    Usually one; two if a result must be initialised first; for a contraction, one per case,
    possibly after one that prepares a factor. The launch of a loop repeats a `step`.
    """
    launches = _lower(kernel, storage, uses, machine, step)
    return [launch.in_chunks(machine.thresholds) for launch in launches]


def _lower(
    kernel: Kernel,
    storage: Storage,
    uses: dict[Node, int],
    machine: Machine,
    step: Schedule | None,
) -> list[LoweredKernel]:
    if step is not None:
        return lower_loop(kernel, step)
    if kernel.alone:
        return _lower_alone(kernel.roots[0], machine.backend)
    if kernel.scatter and machine.backend == "llvm" and _is_sorted(kernel):
        return [Segments(kernel, storage, uses).lower()]
    if kernel.scatter:
        return [lower_fill(kernel.roots[0]), machine.scatter(kernel, storage, uses).lower()]
    tactic = default_tactic(kernel, storage, uses, machine)
    if tactic is None:
        return [_lower_rows(kernel, storage, uses, machine)]
    if machine.choose is not None:
        tactic = machine.choose(kernel, storage, uses, machine, tactic)
    return _lower_by(tactic, kernel, storage, uses, machine)


def _is_sorted(kernel: Kernel) -> bool:
    """Whether a scatter may combine the points of each row in registers."""
    (root,) = kernel.roots
    assert isinstance(root.op, Reduce)
    return root.op.is_sorted and root.dtype.compute is root.dtype


def _lower_alone(root: Node, backend: str) -> list[LoweredKernel]:
    if isinstance(root.op, Order):
        return lower_order(root) if backend == "llvm" else lower_order_by_comparisons(root)
    if isinstance(root.op, Replacement):
        return lower_replacement(root)
    return lower_code(root, backend)


def lower_by(
    tactic: Tactic, kernel: Kernel, storage: Storage, uses: dict[Node, int], machine: Machine
) -> list[LoweredKernel]:
    """The launches that compute a contraction by a tactic."""
    launches = _lower_by(tactic, kernel, storage, uses, machine)
    return [launch.in_chunks(machine.thresholds) for launch in launches]


def _lower_by(
    tactic: Tactic, kernel: Kernel, storage: Storage, uses: dict[Node, int], machine: Machine
) -> list[LoweredKernel]:
    tile, threads, windows = tactic.tile, machine.threads, tactic.windows
    if tactic.schedule == "panels":
        return machine.contract.launches(kernel, storage, uses, tile, threads)
    if tactic.schedule == "thin":
        return [Thin(kernel, storage, uses, tile, threads).lower()]
    if isinstance(windows, Stencil):
        lanes, thresholds = machine.lanes, machine.thresholds
        return [lower_stencil(kernel, storage, uses, windows, lanes, thresholds)]
    if isinstance(windows, Geometry):
        return lower_winograd(kernel, storage, uses, tile, threads, windows)
    assert windows is not None
    return [LongWindows(kernel, storage, uses, tile, threads, windows).lower()]


def _lower_rows(
    kernel: Kernel, storage: Storage, uses: dict[Node, int], machine: Machine
) -> LoweredKernel:
    """Lowers twice: only the finished index expressions tell which axes can be one loop."""
    thresholds = machine.thresholds
    if kernel.scan is not None:
        return Scan(kernel, storage, uses, thresholds, not machine.rows.TURNS).lower()
    unrolled = windows_plan(kernel, storage, uses, thresholds) if machine.windows else None
    if unrolled is not None:
        return Windows(kernel, storage, uses, unrolled, thresholds).lower()
    probe = machine.rows(kernel, storage, uses, plain_plan(kernel), thresholds)
    places = probe.places_in_box()
    plan = joined_plan(kernel, probe.values.offsets, places)
    if lanes_lie_apart(kernel, places):
        plan = transposed(kernel, plan, plan, places)
    width = None
    if not machine.rows.TURNS:
        plan = along_reduced(kernel, plan, places)
    else:
        width = column_width(kernel, plan, places, machine.threads, thresholds)
    if width is not None:
        found = OuterReduction(kernel, storage, uses, plan, thresholds, width).lower_columns()
        if found is not None:
            return found
    rows = machine.rows(kernel, storage, uses, plan, thresholds)
    lowered = rows.lower()
    if kernel.reduced or not plan.loops or plan.transposed or not machine.rows.TURNS:
        return lowered
    finer = divided(plan, rows.values.offsets)
    if finer is plan:
        return lowered
    schedule = Windows if finer.unrolled else machine.rows
    return schedule(kernel, storage, uses, finer, thresholds).lower()
