"""Loop plans: which loops run over the box of a kernel, after joining axes that stay affine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from metaop.codegen.nest.ir import LONGEST_STRIDE
from metaop.fusion.kernel import Indices, Kernel, box_axes
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Quotient, Remainder
from metaop.unified_graph.symbolic import divides, hint_of, is_at_most, surely_equal

# Joined reduced axes stay below this length, because every loop level accumulates separately.
_LONGEST_REDUCTION = 1 << 14
# Windows of at most this many elements are reduced for many neighbouring results at once, if these
# fill a vector and read elements close to each other.
_LARGEST_WINDOW = 64
_FEWEST_LANES = 8
# With fewer lanes than this, unrolled bodies do not pay.
_FEWEST_WRITTEN_OUT = 3
# Rows with fewer results leave too many lanes of a vector idle.
_SHORT_ROW = 12
# Divisors whose remainders are interleaved by shuffles, and divisors that fill vectors.
_INTERLEAVED, _FILLING = (2, 4), 16
# The lanes of a GPU that run in step, and the fewest results that keep most of its threads busy.
_WARP, _FILLING_RESULTS = 32, 1 << 17
# The fewest iterations of both loops of a transposition for which tiles pay.
_FEWEST_TURNED = 8


@dataclass(frozen=True)
class Loop:
    """One loop over a joined run of box axes."""

    name: str
    extent: int
    reduced: bool


@dataclass(frozen=True)
class LoopPlan:
    """The loops of a kernel, outermost first, and the box axes in terms of their variables.

    `transposed` names the loop along which reads are contiguous, unless it is the last one, along
    which stores are contiguous. Loops in `unrolled` are not among `loops`; their iterations are
    unrolled in the innermost body.
    """

    loops: tuple[Loop, ...]
    axes: Indices
    transposed: str | None = None
    unrolled: tuple[Loop, ...] = ()

    def kept(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if not loop.reduced)

    def reduced(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.reduced)


def plain_plan(kernel: Kernel) -> LoopPlan:
    """One loop for every axis of the box with an extent above 1."""
    loops = [
        Loop(f"i{k}", extent, k in kernel.reduced)
        for k, extent in enumerate(kernel.shape)
        if extent != 1
    ]
    return LoopPlan(_lane_last(loops, _lane(loops)), box_axes(kernel.shape))


def written_out_plan(
    kernel: Kernel,
    exprs: Sequence[IndexExpr],
    places: Sequence[IndexExpr],
    targets: Sequence[IndexExpr],
    residues: Set[int],
) -> LoopPlan | None:
    """The joined plan with reduced loops and those of `residues` unrolled, if lanes can run.

    They need a kept loop whose neighbouring iterations read elements that are close together. Short
    rows are joined if read offsets and `targets` stay affine, even if guards do not.
    """
    found = _written_out(_joined_loops(kernel, exprs, residues), residues)
    if found.loops and hint_of(found.loops[-1].extent) < _SHORT_ROW:
        found = _written_out(_joined_loops(kernel, [*places, *targets], residues), residues)
    window = math.prod(loop.extent for loop in found.unrolled)
    if window < 2 or not found.loops or hint_of(found.loops[-1].extent) < _FEWEST_WRITTEN_OUT:
        return None
    lane = Axis(found.loops[-1].name, found.loops[-1].extent)
    inside = {Axis(f"i{k}", extent): found.axes[k] for k, extent in enumerate(kernel.shape)}
    along = (place.substitute(inside.get) for place in places)  # type: ignore[arg-type]
    return None if any(abs(x.coefficient(lane)) > LONGEST_STRIDE for x in along) else found


def _written_out(joined: tuple[list[Loop], Indices], residues: Set[int]) -> LoopPlan:
    loops, axes = joined
    inside = [loop for loop in loops if loop.reduced or int(loop.name[1:]) in residues]
    outside = tuple(loop for loop in loops if loop not in inside)
    return LoopPlan(outside, axes, unrolled=tuple(inside))


def joined_plan(
    kernel: Kernel, exprs: Iterable[IndexExpr], places: Iterable[IndexExpr]
) -> LoopPlan:
    """Neighbouring axes joined into one loop wherever every index expression stays affine.

    `exprs` are those of the plain plan; `places` are those among them at which buffers are read.
    """
    loops, axes = _joined_loops(kernel, list(exprs), frozenset())
    lane = _lane(plain_plan(kernel).loops)
    window = hint_of(math.prod(loop.extent for loop in loops if loop.reduced))
    if lane is None or _is_distant(lane, window, places):
        return LoopPlan(tuple(loops), axes)
    return LoopPlan(_lane_last(loops, lane), axes)


def _joined_loops(
    kernel: Kernel, exprs: Sequence[IndexExpr], alone: Set[int]
) -> tuple[list[Loop], Indices]:
    """Loops over joined axes, all except those in `alone`, and the axes in terms of these loops."""
    runs: list[list[int]] = []
    for k, extent in enumerate(kernel.shape):
        if extent == 1:
            continue
        together = runs and not alone & {runs[-1][-1], k}
        if together and _joinable(kernel, runs[-1], k, exprs):
            runs[-1].append(k)
        else:
            runs.append([k])
    loops: list[Loop] = []
    axes: list[IndexExpr] = [index_expr.constant(0)] * len(kernel.shape)
    for run in runs:
        extents = [kernel.shape[k] for k in run]
        name = f"i{run[0]}"
        total = math.prod(extents)
        for k, axis in zip(run, index_expr.unravel(index_expr.axis(name, total), extents)):
            axes[k] = axis
        loops.append(Loop(name, total, run[0] in kernel.reduced))
    return loops, tuple(axes)


def lanes_lie_apart(kernel: Kernel, places: Iterable[IndexExpr]) -> bool:
    """Whether neighbours along a map's last axis read elements that are far apart."""
    loops = plain_plan(kernel).loops
    if kernel.reduced or not loops or hint_of(loops[-1].extent) < _FEWEST_TURNED:
        return False
    last = Axis(loops[-1].name, loops[-1].extent)
    return any(abs(place.coefficient(last)) > LONGEST_STRIDE for place in places)


def transposed(
    kernel: Kernel, plain: LoopPlan, plan: LoopPlan, places: Iterable[IndexExpr]
) -> LoopPlan:
    """The plan with the loop along which reads are contiguous as its transposed one.

    Without such a loop before the last, it is the plan `plain`. `places` are the index expressions,
    in the axes of the box, at which buffers are read.
    """
    last = Axis(plain_plan(kernel).loops[-1].name, plain_plan(kernel).loops[-1].extent)
    apart = [place for place in places if abs(place.coefficient(last)) > LONGEST_STRIDE]
    for loop in plan.loops[:-1]:
        inside = [k for k, index in enumerate(plan.axes) if _uses(index, loop)]
        axis = Axis(f"i{inside[-1]}", kernel.shape[inside[-1]])
        if hint_of(loop.extent) >= _FEWEST_TURNED and any(x.coefficient(axis) == 1 for x in apart):
            return replace(plan, transposed=loop.name)
    return plain


def along_reduced(kernel: Kernel, plan: LoopPlan, places: Iterable[IndexExpr]) -> LoopPlan:
    """The plan of a GPU, whose lanes need a long loop.

    A last loop that is reduced is joined with reduced loops around it, until it is long enough and
    inside of at most one of them. Where there are few
    results, and the last loop over them is short, lanes run along all reduced loops instead, unless
    they would read elements that are far apart: the gradients of weights of small windows. `places`
    are the index expressions, in the axes of the box, at which buffers are read.
    """
    kept, reduced = plan.kept(), list(plan.reduced())
    if not reduced:
        return plan
    if plan.loops[-1].reduced:
        # Groups of lanes share the loop around the last one.
        first = min(len(reduced) - 1, 1)
        while first and hint_of(math.prod(loop.extent for loop in reduced[first:])) < _WARP:
            first -= 1
        return _joined_last(plan, reduced[first:])
    total = math.prod(loop.extent for loop in reduced)
    results = math.prod(loop.extent for loop in kept)
    if hint_of(total) < _WARP or hint_of(results) >= _FILLING_RESULTS:
        return plan
    innermost = max(k for k in kernel.reduced if kernel.shape[k] != 1)
    axis = Axis(f"i{innermost}", kernel.shape[innermost])
    is_close = all(abs(place.coefficient(axis)) <= LONGEST_STRIDE for place in places)
    return _joined_last(plan, reduced) if is_close and hint_of(kept[-1].extent) < _WARP else plan


def _joined_last(plan: LoopPlan, together: Sequence[Loop]) -> LoopPlan:
    """The plan with some reduced loops as a single one, the last of all."""
    others = tuple(loop for loop in plan.loops if loop not in together)
    if len(together) == 1:
        return replace(plan, loops=(*others, *together))
    _, parts = split_index(together, "r")

    def moved(atom: Atom) -> IndexExpr | None:
        return parts.get(str(atom.name)) if isinstance(atom, Axis) else None

    total = math.prod(loop.extent for loop in together)
    axes = tuple(index.substitute(moved) for index in plan.axes)
    return replace(plan, loops=(*others, Loop("r", total, True)), axes=axes)


def divided(plan: LoopPlan, exprs: Iterable[IndexExpr]) -> LoopPlan:
    """The plan of a map with its last loop cut in two if index expressions divide by a number.

    A last loop of so few iterations is unrolled itself, as over the parts of complex numbers.
    Quotient and remainder become separate loops. With a small divisor, the remainders are unrolled
    and lanes run along the quotient. With one that fills vectors, lanes run along the remainder.
    `exprs` are those of the plan itself.
    """
    last, around = plan.loops[-1], plan.loops[-2:-1]
    if last.extent in _INTERLEAVED and around and hint_of(around[0].extent) >= _FEWEST_LANES:
        return LoopPlan(plan.loops[:-1], plan.axes, unrolled=(last,))
    divisors = _divisors(index_expr.axis(last.name, last.extent), exprs)
    if last.reduced or len(divisors) != 1:
        return plan
    (divisor,) = divisors
    if not divides(divisor, last.extent):
        return plan
    quotient = Loop(f"{last.name}q", last.extent // divisor, False)
    remainder = Loop(f"{last.name}r", divisor, False)
    parts = [index_expr.axis(loop.name, loop.extent) for loop in (quotient, remainder)]
    place = parts[0] * divisor + parts[1]
    axes = tuple(
        index.substitute(lambda atom: place if _is_loop(atom, last) else None)
        for index in plan.axes
    )
    if divisor % _FILLING == 0:
        return LoopPlan((*plan.loops[:-1], quotient, remainder), axes)
    if divisor in _INTERLEAVED and hint_of(quotient.extent) >= _FEWEST_LANES:
        return LoopPlan((*plan.loops[:-1], quotient), axes, unrolled=(remainder,))
    return plan


def _divisors(axis: IndexExpr, exprs: Iterable[IndexExpr]) -> set[int]:
    """The numbers by which an axis is divided."""
    return {
        atom.divisor
        for expr in exprs
        for atom in expr.atoms()
        if isinstance(atom, (Quotient, Remainder)) and atom.dividend == axis
    }


def _is_loop(atom: Atom, loop: Loop) -> bool:
    return isinstance(atom, Axis) and atom.name == loop.name


def _uses(index: IndexExpr, loop: Loop) -> bool:
    return any(isinstance(atom, Axis) and atom.name == loop.name for atom in index.atoms())


def _lane(loops: Sequence[Loop]) -> Loop | None:
    """The kept loop along which the lanes of small windows run, if windows are small here."""
    window = hint_of(math.prod(loop.extent for loop in loops if loop.reduced))
    if not 1 < window <= _LARGEST_WINDOW:
        return None
    fitting = [loop for loop in loops if not loop.reduced and hint_of(loop.extent) >= _FEWEST_LANES]
    return fitting[-1] if fitting else None


def _lane_last(loops: Sequence[Loop], lane: Loop | None) -> tuple[Loop, ...]:
    """The loops with that of the lanes last."""
    ends = [loop for loop in loops if lane is not None and loop.name == lane.name]
    return (*(loop for loop in loops if loop not in ends), *ends)


def _is_distant(lane: Loop, window: int, places: Iterable[IndexExpr]) -> bool:
    """Whether neighbouring results of a kernel read elements that are too far apart.

    Strided reads pay if the windows are large compared to the stride.
    """
    axis = Axis(lane.name, lane.extent)
    longest = max(1, min(LONGEST_STRIDE, (window - 1) // 2))
    return any(abs(place.coefficient(axis)) > longest for place in places)


def _joinable(kernel: Kernel, run: list[int], k: int, exprs: Sequence[IndexExpr]) -> bool:
    previous = run[-1]
    if (previous in kernel.reduced) != (k in kernel.reduced):
        return False
    extent = kernel.shape[k]
    if k in kernel.reduced:
        if not is_at_most(math.prod([kernel.shape[j] for j in run]) * extent, _LONGEST_REDUCTION):
            return False
    outer = Axis(f"i{previous}", kernel.shape[previous])
    inner = Axis(f"i{k}", extent)
    for expr in exprs:
        if not surely_equal(expr.coefficient(outer), expr.coefficient(inner) * extent):
            return False
        if _nested(expr, outer, inner):
            return False
    return True


def _nested(expr: IndexExpr, outer: Axis, inner: Axis) -> bool:
    """Whether one of the axes is part of a quotient, remainder or lookup of the expression."""
    for atom, _ in expr.terms:
        if isinstance(atom, Axis):
            continue
        if any(part in (outer, inner) for part in index_expr.of(atom).atoms()):
            return True
    return False


def split_index(loops: Sequence[Loop], name: str) -> tuple[IndexExpr, dict[str, IndexExpr]]:
    """One loop variable for several loops: the variable, and each loop's index in terms of it."""
    total = math.prod([loop.extent for loop in loops])
    variable = index_expr.axis(name, total)
    parts = index_expr.unravel(variable, [loop.extent for loop in loops])
    return variable, {loop.name: part for loop, part in zip(loops, parts)}
