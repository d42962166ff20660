"""Cases of a contraction: parts in which guards leave a smaller sum.

The gradient of a strided convolution has an axis of residues, and a guard that ties it to the
offsets of the window: `0 <= 2*j + (r+1) % 2 < 3` holds for two values of `j` if `r` is 1, for one
if it is 0. Each residue becomes a case, which sums only over the values that its guard admits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import map_at
from metaop.fusion.kernel import Indices, box_axes
from metaop.fusion.recognise import Contraction, accesses, axes_of
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Divisible, Guard
from metaop.unified_graph.index_expr import Axis, IndexExpr, Lookup, Symbol, of
from metaop.unified_graph.node import Constant, Node, Shape
from metaop.unified_graph.symbolic import is_symbolic, surely_less, usual_of

# Axes with more values, and more cases in all, would make too many small kernels.
_MOST_VALUES = 4
_MOST_CASES = 16
# A case with fewer columns is not worth a kernel.
_FEWEST_COLUMNS = 64
# The cases together must do at most this fraction of the work.
_MOST_WORK = 0.8


@dataclass(frozen=True)
class Case:
    """Axes of the result at fixed indices, and the remaining ranges of the summed axes.

    `ranges` holds (start, extent); a sum over an extent of 0 is zero.
    """

    fixed: Mapping[int, int] = field(default_factory=dict)
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the sum is empty."""
        return any(extent == 0 for _, extent in self.ranges.values())


WHOLE = Case()
# Guards, in their order; None stands for a value that is zero everywhere.
Needed: TypeAlias = "dict[Guard, None] | None"


def cases(contraction: Contraction, shape: Shape, has_buffer: Callable[[Node], bool]) -> list[Case]:
    """The cases that make up the contraction; only the whole if splitting does not pay."""
    depth = set(contraction.depth)
    # Where one factor is zero, nothing is summed.
    needed = [
        guard
        for factor in (contraction.left, contraction.right)
        for guard in _needed(factor, box_axes(shape), has_buffer, {}) or ()
    ]
    guards = [one for one in dict.fromkeys(needed) if _is_decided_by_residues(one, shape, depth)]
    fixed = sorted({axis for guard in guards for axis in axes_of(guard.expr) - depth})
    count = math.prod(shape[axis] for axis in fixed)
    columns = math.prod(shape[axis] for axis in contraction.columns if axis not in fixed)
    if not fixed or count > _MOST_CASES or usual_of(columns) < _FEWEST_COLUMNS:
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
    """The kept axes that determine, by guards of what `nodes` read, the range of the others.

    Empty if they have too many values.
    """
    box = box_axes(shape)
    guards = (
        guard
        for node in nodes
        for _, of_read in accesses(node, box, has_buffer)
        for guard in of_read
        if _is_decided_by_residues(guard, shape, summed)
    )
    found = {axis for guard in guards for axis in axes_of(guard.expr) - summed}
    return found if math.prod(shape[axis] for axis in found) <= _MOST_CASES else set()


def _needed(
    node: Node,
    at: Indices,
    has_buffer: Callable[[Node], bool],
    known: dict[tuple[Node, Indices], Needed],
) -> Needed:
    """The guards without any of which the value of `node`, read at `at`, is zero."""
    place = node, at
    if place not in known:
        op = node.op
        if isinstance(op, Constant):
            known[place] = None if op.value(node.dtype) == 0 else {}
        elif has_buffer(node) or not isinstance(op, (Elementwise, Reindex)):
            known[place] = {}
        elif isinstance(op, Elementwise):
            operands = [_needed(source, at, has_buffer, known) for source in node.inputs]
            known[place] = _needed_of_function(op.function.degree, operands)
        elif op.fill != 0:
            known[place] = {}
        else:
            targets, guards = map_at(op.map, at, _looked_up)
            source = _needed(node.inputs[0], targets, has_buffer, known)
            known[place] = None if source is None else {**dict.fromkeys(guards), **source}
    return known[place]


def _needed_of_function(degree: str, operands: Sequence[Needed]) -> Needed:
    """The guards that a function needs, from those of its operands: see `ScalarFunction.degree`."""
    if degree == "multilinear":
        if None in operands:
            return None
        return {guard: None for one in operands if one is not None for guard in one}
    if degree == "linear in first":
        return operands[0]
    if degree not in ("linear", "linear in branches"):
        return {}
    parts = [one for one in operands[degree == "linear in branches" :] if one is not None]
    if not parts:
        return None
    return {guard: None for guard in parts[0] if all(guard in one for one in parts)}


def _looked_up(lookup: Lookup, inside: Indices, guards: object) -> IndexExpr:
    return index_expr.symbol("looked up", 0, lookup.bound - 1)


def _are_few(extents: Iterable[int]) -> bool:
    return all(not is_symbolic(extent) and extent <= _MOST_VALUES for extent in extents)


def _is_decided_by_residues(guard: Guard, shape: Shape, depth: Set[int]) -> bool:
    """Whether a guard tests a few indices of the result, alone or beside a step of the depth."""
    axes = axes_of(guard.expr)
    kept, summed = axes - depth, axes & depth
    if not kept or len(summed) > 1 or not _are_few(shape[axis] for axis in kept):
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
    return not axes_of(residue) & depth and surely_less(residue.high - residue.low, abs(step))


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
