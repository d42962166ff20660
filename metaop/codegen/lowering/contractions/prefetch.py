"""What micro-kernels ask for while they multiply, so that memory does not wait for them.

Packing reads much and computes nothing; multiplying reads little. So the lines of memory that the
next block packs are asked for, one at each turn of a few steps, while this one is multiplied; and
where rows of the left factor are read in place, those of the next panels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from metaop.codegen.lowering.base.values import Values
from metaop.codegen.nest import ir
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Symbol

# A line of memory holds so many elements, give or take a factor of two, and takes so many turns.
_LINE = 16
_TURNS = _LINE // ir.STEPS

# A buffer and an offset in it.
Read = tuple[int, IndexExpr]
# What becomes of the axes and symbols of a block in the next one.
Following = Mapping[str, IndexExpr]


def right_prefetches(
    values: Values, reads: Iterable[Read], following: Following, at: tuple[IndexExpr, int, int]
) -> list[ir.Ahead]:
    """What the last panels of a block ask for: what the next block reads into the same strip.

    A block of few panels asks for a part of it. `reads` depend on the lane "l" of a strip and on
    the step "k"; `at` is the panel, the number of panels, and the columns of a strip.
    """
    panel, panels, columns = at
    found = []
    for number, place in dict.fromkeys(reads):
        lane, step = _distance(place, "l"), _distance(place, "k")
        symbols = {atom.name for atom in place.atoms() if isinstance(atom, Symbol)}
        if lane == 0 or step == 0 or not symbols <= following.keys():
            continue
        # Where steps are neighbours, lanes take turns, each asks for many steps. Where lanes are,
        # panels ask for all lanes of a step of each turn, then for those of the next one.
        turns, apart = (_TURNS, _TURNS) if step == 1 and lane != 1 else (1, _LINE // abs(lane) or 1)
        lines = -(-columns // apart)
        asking = min(lines if turns > 1 else lines * ir.STEPS, panels)
        first = panel - (panels - asking)
        places = {**following, "l": first % lines * apart, "k": first // lines}
        start = place.substitute(_renamed(places))
        # Also where it always holds: so blocks of few and of many panels have one form.
        guards = (ir.InBounds(values.sum(first), asking),)
        found.append(ir.Ahead(number, values.sum(start), step * ir.STEPS, lane, turns, guards))
    return found


def left_prefetches(
    values: Values, left: Read, stride: int, at: tuple[IndexExpr, int, IndexExpr, int]
) -> list[ir.Ahead]:
    """What the first strips of every few panels ask for: the rows of the panels behind.

    Rows lie `stride` apart from `left` on; `at` is the panel, the number of panels, the strip, and
    the rows of a panel.
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
    """How far apart the first two places along an axis lie."""

    def at(index: int) -> int:
        def move(atom: Atom) -> IndexExpr | None:
            if not isinstance(atom, (Axis, Symbol)):
                return None
            return index_expr.constant(index if atom.name == axis else 0)

        return place.substitute(move).constant

    return at(1) - at(0)
