"""Prefetches of micro-kernels while they multiply, so that memory is not idle.

Packing reads much and computes nothing; multiplying reads little. So while a block is multiplied,
every few steps prefetch a cache line that the next block packs, and, if rows of the left factor are
read in place, lines of the next panels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from metaop.codegen.lowering.base.values import Values
from metaop.codegen.nest import ir
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Symbol
from metaop.unified_graph.symbolic import hint_of

# The elements of a cache line, within a factor of two, and the turns per line.
_LINE = 16
_TURNS = _LINE // ir.STEPS

# A buffer and an offset in it.
Read = tuple[int, IndexExpr]
# The values of a block's axes and symbols in the next block.
Following = Mapping[str, IndexExpr]


def right_prefetches(
    values: Values, reads: Iterable[Read], following: Following, at: tuple[IndexExpr, int, int]
) -> list[ir.Ahead]:
    """The prefetches of a block's last panels: what the next block reads into the same strip.

    A block with few panels prefetches a part of it. `reads` depend on the lane "l" of a strip and
    on the step "k"; `at` is the panel, the number of panels, and the columns of a strip.
    """
    panel, panels, columns = at
    found = []
    for number, place in dict.fromkeys(reads):
        lane, step = _distance(place, "l"), _distance(place, "k")
        symbols = {atom.name for atom in place.atoms() if isinstance(atom, Symbol)}
        if lane == 0 or step == 0 or not symbols <= following.keys():
            continue
        # If steps are contiguous, lanes take turns, and each prefetches many steps. If lanes are,
        # panels prefetch all lanes of a step of each turn, then those of the next step.
        along = step == 1 and lane != 1
        turns, apart = (_TURNS, _TURNS) if along else (1, _LINE // abs(hint_of(lane)) or 1)
        lines = -(-columns // apart)
        asking = min(lines if turns > 1 else lines * ir.STEPS, panels)
        first = panel - (panels - asking)
        places = {**following, "l": first % lines * apart, "k": first // lines}
        start = place.substitute(_renamed(places))
        # Even if it always holds, so that blocks of few and of many panels have the same form.
        guards = (ir.InBounds(values.sum(first), asking),)
        found.append(ir.Ahead(number, values.sum(start), step * ir.STEPS, lane, turns, guards))
    return found


def left_prefetches(
    values: Values, left: Read, stride: int, at: tuple[IndexExpr, int, IndexExpr, int]
) -> list[ir.Ahead]:
    """The prefetches of the first strips of every few panels: the rows of the following panels.

    Rows have the stride `stride` from `left` on; `at` is the panel, the number of panels, the
    strip, and the rows of a panel.
    """
    panel, panels, strip, rows = at
    together = max(_LINE // rows, 1)
    if panels <= together:
        return []
    start = values.sum(left[1] + (together * rows + strip * _TURNS) * stride)
    guards = (
        ir.InBounds(values.sum(strip), ir.STEPS),
        ir.MultipleOf(values.sum(panel), together),
        ir.InBounds(values.sum(panel), panels - together),
    )
    return [ir.Ahead(left[0], start, ir.STEPS, stride, _TURNS, guards)]


def _renamed(places: Following) -> Callable[[Atom], IndexExpr | None]:
    return lambda atom: places.get(str(atom.name)) if isinstance(atom, (Axis, Symbol)) else None


def _distance(place: IndexExpr, axis: str) -> int:
    """The distance of the first two elements along an axis."""

    def at(index: int) -> int:
        def move(atom: Atom) -> IndexExpr | None:
            if not isinstance(atom, (Axis, Symbol)):
                return None
            return index_expr.constant(index if atom.name == axis else 0)

        return place.substitute(move).constant

    return at(1) - at(0)
