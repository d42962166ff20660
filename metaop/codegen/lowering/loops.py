"""Loop plans: which loops run over the box of a kernel, after joining axes that stay affine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metaop.fusion.kernel import Indices, Kernel, box_axes
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Axis, IndexExpr

# Joined reduced axes stay below this length: every loop level adds up its own partial results.
_LONGEST_REDUCTION = 1 << 14


@dataclass(frozen=True)
class Loop:
    """One loop over a joined run of box axes."""

    name: str
    extent: int
    reduced: bool


@dataclass(frozen=True)
class LoopPlan:
    """The loops of a kernel, outermost first, and the box axes in terms of their variables."""

    loops: tuple[Loop, ...]
    axes: Indices

    def kept(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if not loop.reduced)

    def reduced(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.reduced)


def plain_plan(kernel: Kernel) -> LoopPlan:
    """One loop for every axis of the box longer than 1."""
    loops = tuple(
        Loop(f"i{k}", extent, k in kernel.reduced)
        for k, extent in enumerate(kernel.shape)
        if extent != 1
    )
    return LoopPlan(loops, box_axes(kernel.shape))


def joined_plan(kernel: Kernel, exprs: Iterable[IndexExpr]) -> LoopPlan:
    """Neighbouring axes joined into one loop wherever every index expression stays affine."""
    runs: list[list[int]] = []
    exprs = list(exprs)
    for k, extent in enumerate(kernel.shape):
        if extent == 1:
            continue
        if runs and _joinable(kernel, runs[-1], k, exprs):
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
    return LoopPlan(tuple(loops), tuple(axes))


def _joinable(kernel: Kernel, run: list[int], k: int, exprs: Sequence[IndexExpr]) -> bool:
    previous = run[-1]
    if (previous in kernel.reduced) != (k in kernel.reduced):
        return False
    extent = kernel.shape[k]
    if k in kernel.reduced:
        if math.prod([kernel.shape[j] for j in run]) * extent > _LONGEST_REDUCTION:
            return False
    outer = Axis(f"i{previous}", kernel.shape[previous])
    inner = Axis(f"i{k}", extent)
    for expr in exprs:
        if expr.coefficient(outer) != expr.coefficient(inner) * extent:
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
    """One loop variable over several loops: the variable, and every loop's index in it."""
    total = math.prod([loop.extent for loop in loops])
    variable = index_expr.axis(name, total)
    parts = index_expr.unravel(variable, [loop.extent for loop in loops])
    return variable, {loop.name: part for loop, part in zip(loops, parts)}
