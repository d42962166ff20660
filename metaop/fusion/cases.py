"""Cases of a contraction: parts in which guards leave a smaller sum.

The gradient of a strided convolution has an axis of residues, and a guard that ties it to the
offsets of the window: `0 <= 2*j + (r+1) % 2 < 3` holds for two values of `j` where `r` is 1, for
one where it is 0. Each residue becomes a case of its own, whose sum runs over what is left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from metaop.fusion.kernel import box_axes
from metaop.fusion.recognise import Contraction, accesses, axes_of
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Divisible, Guard
from metaop.unified_graph.index_expr import Axis, IndexExpr, Lookup, Symbol, of
from metaop.unified_graph.node import Node, Shape

# Axes with more values, and more cases in all, would make too many small kernels.
_MOST_VALUES = 4
_MOST_CASES = 16
# A case with fewer columns is not worth a kernel.
_FEWEST_COLUMNS = 64
# The cases together must not do more than this part of the work.
_MOST_WORK = 0.8


@dataclass(frozen=True)
class Case:
    """Axes of the result at fixed indices, and what is left of the axes that are summed over.

    `ranges` holds (start, extent); a sum over an extent of 0 is zero.
    """

    fixed: Mapping[int, int] = field(default_factory=dict)
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is summed."""
        return any(extent == 0 for _, extent in self.ranges.values())


WHOLE = Case()


def cases(contraction: Contraction, shape: Shape, has_buffer: Callable[[Node], bool]) -> list[Case]:
    """The cases that together are the contraction; one that is the whole if there is no gain."""
    depth = set(contraction.depth)
    factors = (contraction.left, contraction.right)
    guards = _deciding_guards(factors, shape, depth, has_buffer)
    fixed = sorted({axis for guard in guards for axis in axes_of(guard.expr) - depth})
    count = math.prod(shape[axis] for axis in fixed)
    columns = math.prod(shape[axis] for axis in contraction.columns if axis not in fixed)
    if not fixed or count > _MOST_CASES or columns < _FEWEST_COLUMNS:
        return [WHOLE]
    found = [
        _case(dict(zip(fixed, values)), guards, shape, contraction.depth)
        for values in itertools.product(*(range(shape[axis]) for axis in fixed))
    ]
    whole = math.prod(shape[axis] for axis in contraction.depth)
    left = [
        math.prod(case.ranges.get(axis, (0, shape[axis]))[1] for axis in contraction.depth)
        for case in found
    ]
    return found if sum(left) <= _MOST_WORK * whole * count else [WHOLE]


def residue_axes(
    nodes: Iterable[Node], shape: Shape, summed: Set[int], has_buffer: Callable[[Node], bool]
) -> set[int]:
    """The kept axes that decide, in guards of what `nodes` read, over which of the others to sum.

    Empty if they have too many values.
    """
    guards = _deciding_guards(nodes, shape, summed, has_buffer)
    found = {axis for guard in guards for axis in axes_of(guard.expr) - summed}
    return found if math.prod(shape[axis] for axis in found) <= _MOST_CASES else set()


def _deciding_guards(
    nodes: Iterable[Node], shape: Shape, summed: Set[int], has_buffer: Callable[[Node], bool]
) -> list[Guard]:
    """The guards of what nodes read that residues decide."""
    box = box_axes(shape)
    found: dict[Guard, None] = {}
    for node in nodes:
        for _, guards in accesses(node, box, has_buffer):
            for guard in guards:
                if _is_decided_by_residues(guard, shape, summed):
                    found[guard] = None
    return list(found)


def _is_decided_by_residues(guard: Guard, shape: Shape, depth: Set[int]) -> bool:
    """Whether a guard tests a few indices of the result, alone or beside a step of the depth."""
    axes = axes_of(guard.expr)
    kept, summed = axes - depth, axes & depth
    if not kept or len(summed) > 1 or any(shape[axis] > _MOST_VALUES for axis in kept):
        return False
    if any(isinstance(atom, (Symbol, Lookup)) for atom in guard.expr.atoms()):
        return False
    if not summed:
        return True
    steps = [(a, c) for a, c in guard.expr.terms if isinstance(a, Axis) and axes_of(of(a)) & depth]
    if len(steps) != 1:
        return False
    (atom, step) = steps[0]
    residue = guard.expr - of(atom) * step
    return not axes_of(residue) & depth and residue.high - residue.low < abs(step)


def _case(
    fixed: dict[int, int], guards: Iterable[Guard], shape: Sequence[int], depth: Sequence[int]
) -> Case:
    ranges: dict[int, tuple[int, int]] = {}
    for guard in guards:
        (axis,) = axes_of(guard.expr) & set(depth) or (None,)
        if axis is None:
            if not _holds(guard, fixed):
                return Case(fixed, {depth[0]: (0, 0)})
            continue
        start, extent = ranges.get(axis, (0, shape[axis]))
        kept = [k for k in range(start, start + extent) if _holds(guard, {**fixed, axis: k})]
        ranges[axis] = (kept[0], kept[-1] + 1 - kept[0]) if kept else (0, 0)
    return Case(fixed, ranges)


def _holds(guard: Guard, indices: Mapping[int, int]) -> bool:
    value = _at(guard.expr, indices)
    if isinstance(guard, Divisible):
        return value % guard.divisor == 0
    return 0 <= value < guard.extent


def _at(expr: IndexExpr, indices: Mapping[int, int]) -> int:
    def known(atom: object) -> IndexExpr | None:
        if isinstance(atom, Axis):
            return index_expr.constant(indices.get(int(str(atom.name)[1:]), 0))
        return None

    value = expr.substitute(known)
    assert value.is_constant
    return value.constant
