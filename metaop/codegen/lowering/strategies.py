"""All strategies on one page: the ways to turn a kernel into loop nests, in the order of asking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.base.loops import LoopPlan, divided
from metaop.codegen.lowering.contractions.thin import Thin
from metaop.codegen.lowering.custom import lower_code
from metaop.codegen.lowering.reductions.outer import OuterReduction
from metaop.codegen.lowering.reductions.scans import Scan
from metaop.codegen.lowering.reductions.windows import Windows, windows_plan
from metaop.codegen.lowering.repetition import lower_loop
from metaop.codegen.lowering.request import Request
from metaop.codegen.lowering.scatters.bitonic import lower_order_by_comparisons
from metaop.codegen.lowering.scatters.order import lower_order
from metaop.codegen.lowering.scatters.replacement import lower_replacement
from metaop.codegen.lowering.scatters.scatter import Segments, lower_fill
from metaop.codegen.lowering.stencils.geometry import share_of_work as share_of_stencil
from metaop.codegen.lowering.stencils.geometry import stencil_of
from metaop.codegen.lowering.stencils.stencil import lower_stencil
from metaop.codegen.lowering.strategy import Rival, Strategy, Tactic
from metaop.codegen.lowering.winograd.geometry import excess_of_rounding as excess_of_short
from metaop.codegen.lowering.winograd.geometry import geometries
from metaop.codegen.lowering.winograd.geometry import share_of_work as share_of_short
from metaop.codegen.lowering.winograd.sums import LongWindows, long_windows
from metaop.codegen.lowering.winograd.sums import excess_of_rounding as excess_of_long
from metaop.codegen.lowering.winograd.sums import share_of_work as share_of_long
from metaop.codegen.lowering.winograd.windows import lower_winograd
from metaop.fusion.kernel import Kernel
from metaop.reduce.meta_op import Reduce
from metaop.reduce.replacement import Replacement
from metaop.reindex.order import Order
from metaop.unified_graph.code import Code
from metaop.unified_graph.node import MetaOp

# The most that a task owns: tiles of short products; rows and channels of long windows.
_MOST_TILES = 192
_MOST_ROWS, _MOST_CHANNELS = 128, 128
# The bound of the rounding of fewer products, relative to plain sums.
_MOST_EXCESS = 4


def tactics(request: Request, sort: type[Strategy] = Strategy) -> Iterator[Tactic]:
    """How each strategy of a sort that the machine has would compute a kernel.

    The last one is plain: it needs the least.
    """
    for strategy in STRATEGIES:
        if isinstance(strategy, sort) and strategy.name not in request.machine.without:
            yield from strategy.tactics(request)


# --- kernels of one operator, and scatters -----------------------------------------------------


def _is_alone(kernel: Kernel, op: type[MetaOp]) -> bool:
    return kernel.alone and isinstance(kernel.roots[0].op, op)


def _lower_repetition(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    return lower_loop(request.kernel, tactic.plan)


def _is_sorted(kernel: Kernel) -> bool:
    """Whether a scatter may combine the points of each row in registers."""
    op, dtype = kernel.roots[0].op, kernel.roots[0].dtype
    is_sorted = isinstance(op, Reduce) and op.is_sorted
    return kernel.scatter and is_sorted and dtype.compute is dtype


def _lower_segments(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    return [Segments(request.kernel, request.storage, request.uses).lower()]


def _lower_scatter(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    kernel, storage, uses, machine = request.parts
    return [lower_fill(kernel.roots[0]), machine.scatter(kernel, storage, uses).lower()]


# --- sums of products --------------------------------------------------------------------------


def _stencil(request: Request) -> Iterator[Tactic]:
    found = stencil_of(request.kernel, request.storage)
    if found is not None:
        machine = request.machine
        share = share_of_stencil(request.kernel, found, machine.lanes or machine.tile.columns // 2)
        yield Tactic("stencil", machine.tile, plan=found, share=share)


def _lower_stencil(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    kernel, storage, uses, machine = request.parts
    lanes, thresholds = machine.lanes, machine.thresholds
    return [lower_stencil(kernel, storage, uses, tactic.plan, lanes, thresholds)]


def _thin(request: Request) -> Iterator[Tactic]:
    if request.kernel.contraction is not None:
        share = _thin_nest(request, request.tile).share()
        if share is not None:
            yield Tactic("thin", request.tile, share=share)


def _thin_nest(request: Request, tile: Tile) -> Thin:
    kernel, storage, uses, machine = request.parts
    return Thin(kernel, storage, uses, tile, machine.threads)


def _lower_thin(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    return [_thin_nest(request, tactic.tile).lower()]


def _winograd(request: Request) -> Iterator[Tactic]:
    kernel, tile = request.kernel, replace(request.machine.tile, block_columns=_MOST_TILES)
    if kernel.contraction is None:
        return
    for geometry in geometries(kernel, request.storage):
        if excess_of_short(kernel, geometry) <= _MOST_EXCESS:
            share = share_of_short(kernel, geometry, tile) * request.tile.rate
            yield Tactic("winograd", tile, "x".join(map(str, geometry.results)), geometry, share)


def _lower_winograd(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    kernel, storage, uses, machine = request.parts
    return lower_winograd(kernel, storage, uses, tactic.tile, machine.threads, tactic.plan)


def _long_windows(request: Request) -> Iterator[Tactic]:
    kernel = request.kernel
    if kernel.contraction is None:
        return
    tile = replace(request.machine.tile, block_rows=_MOST_ROWS, block_columns=_MOST_CHANNELS)
    pair = long_windows(kernel, request.storage)
    if pair is not None and excess_of_long(kernel, pair) <= _MOST_EXCESS:
        share = share_of_long(kernel, pair, tile) * request.tile.rate
        yield Tactic("long windows", tile, plan=pair, share=share)


def _lower_long_windows(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    kernel, storage, uses, machine = request.parts
    return [LongWindows(kernel, storage, uses, tactic.tile, machine.threads, tactic.plan).lower()]


def _panels(request: Request) -> Iterator[Tactic]:
    if request.kernel.contraction is not None:
        yield Tactic("panels", request.tile)


def _lower_panels(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    kernel, storage, uses, machine = request.parts
    return machine.contract.launches(kernel, storage, uses, tactic.tile, machine.threads)


# --- maps and other reductions -----------------------------------------------------------------


def _lower_scan(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    kernel, storage, uses, machine = request.parts
    lanes_are_tasks = not machine.rows.TURNS
    return [Scan(kernel, storage, uses, machine.thresholds, lanes_are_tasks).lower()]


def _windows(request: Request) -> LoopPlan | None:
    kernel, storage, uses, machine = request.parts
    if kernel.contraction is not None:
        return None
    return windows_plan(kernel, storage, uses, machine.thresholds)


def _lower_windows(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    kernel, storage, uses, machine = request.parts
    return [Windows(kernel, storage, uses, tactic.plan, machine.thresholds).lower()]


def _columns(request: Request) -> LoweredKernel | None:
    """The nest itself: only a finished one tells whether it reads along its columns."""
    kernel, storage, uses, machine = request.parts
    if kernel.contraction is not None or request.column_width is None:
        return None
    plan, width = request.row_plan, request.column_width
    columns = OuterReduction(kernel, storage, uses, plan, machine.thresholds, width)
    return columns.lower_columns(machine.threads)


def _lower_columns(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    return [tactic.plan]


def _rows(request: Request) -> LoopPlan | None:
    return request.row_plan if request.kernel.contraction is None else None


def _lower_rows(request: Request, tactic: Tactic) -> list[LoweredKernel]:
    kernel, storage, uses, machine = request.parts
    plan, thresholds = tactic.plan, machine.thresholds
    rows = machine.rows(kernel, storage, uses, plan, thresholds)
    lowered = rows.lower()
    if kernel.reduced or not plan.loops or plan.transposed or not machine.rows.TURNS:
        return [lowered]
    finer = divided(plan, rows.values.offsets)
    if finer is plan:
        return [lowered]
    nest = Windows if finer.unrolled else machine.rows
    return [nest(kernel, storage, uses, finer, thresholds).lower()]


STRATEGIES = (
    Strategy(
        "repetition",
        "a loop of the program",
        "the launches of one step run again and again, on addresses that advance",
        lambda request: request.step,
        _lower_repetition,
    ),
    Strategy(
        "radix sort",
        "rows to sort, on a CPU",
        "it makes no comparisons: the time does not depend on the keys",
        lambda request: _is_alone(request.kernel, Order),
        lambda request, tactic: lower_order(request.kernel.roots[0]),
    ),
    Strategy(
        "bitonic sort",
        "rows to sort",
        "all comparisons of a step run side by side",
        lambda request: _is_alone(request.kernel, Order),
        lambda request, tactic: lower_order_by_comparisons(request.kernel.roots[0]),
    ),
    Strategy(
        "replacement",
        "a table with replaced rows",
        "a table that nothing else needs is not copied",
        lambda request: _is_alone(request.kernel, Replacement),
        lambda request, tactic: lower_replacement(request.kernel.roots[0]),
    ),
    Strategy(
        "custom",
        "a kernel that a user wrote",
        "it has nests of its own",
        lambda request: _is_alone(request.kernel, Code),
        lambda request, tactic: lower_code(request.kernel.roots[0], request.machine.backend),
    ),
    Strategy(
        "segments",
        "a scatter to rows in ascending order, on a CPU",
        "the points of a row are combined in registers",
        lambda request: _is_sorted(request.kernel),
        _lower_segments,
    ),
    Strategy(
        "scatter",
        "writes at indices from data",
        "each point is combined with what its place has",
        lambda request: request.kernel.scatter,
        _lower_scatter,
    ),
    Rival(
        "stencil",
        "sums of products over windows that slide over planes, in few channels",
        "all taps read a plane in a near cache, and nothing is packed",
        _stencil,
        _lower_stencil,
    ),
    Rival(
        "thin",
        "a contraction of few rows, or of few products, of known size",
        "the right factor is read once, where it is",
        _thin,
        _lower_thin,
    ),
    Rival(
        "winograd",
        "a contraction along windows of three taps, whose rounding stays in bounds",
        "four results along an axis take six products instead of twelve",
        _winograd,
        _lower_winograd,
    ),
    Rival(
        "long windows",
        "a contraction with three results along an axis, whose rounding stays in bounds",
        "four positions along an axis take six products instead of twelve",
        _long_windows,
        _lower_long_windows,
    ),
    Rival(
        "panels",
        "a contraction",
        "packed factors feed a tile of registers",
        _panels,
        _lower_panels,
    ),
    Strategy(
        "scan",
        "a reduction over a triangle",
        "a running result takes one step for each element",
        lambda request: request.kernel.scan is not None,
        _lower_scan,
    ),
    Strategy(
        "windows",
        "reductions of few elements, for many neighbours",
        "the offsets of an unrolled window are literals, so nothing is tested",
        _windows,
        _lower_windows,
    ),
    Strategy(
        "columns",
        "reductions along outer axes",
        "memory is read in its order, with the results in a near cache",
        _columns,
        _lower_columns,
    ),
    Strategy(
        "rows",
        "a map, or reductions",
        "a task has whole rows, so that several passes over one stay in a near cache",
        _rows,
        _lower_rows,
    ),
)
