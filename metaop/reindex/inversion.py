"""Scatter to gather: a reduction whose write map is affine, as guarded reads.

`y[m(i)] ⊕= x[i]` is solved for `i`: each target index gives an equation `m_j(i) = t_j`, where an
affine sum of axes (or of quotients and remainders of axes, as reshapes leave them) equals an axis
of the result. Sums whose terms are like the digits of a number have one solution. Where they are
not, as in `h = s*oh + d*kh - p`, some axes stay free and the result reduces over those.

With a stride, only every s-th value of `kh` solves the equation: `kh = s*j + (h+p) % s`. The axis
of the result is then cut into (position, residue), `h = s*position + residue`, so that everything
stays affine and nothing is computed that a guard would throw away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import reshape, slice_dimension
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Divisible, Guard, IndexMap, Within, axis_range
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Lookup, Quotient, Remainder
from metaop.unified_graph.node import Node, constant
from metaop.unified_graph.symbolic import (
    NotGeneralError,
    is_symbolic,
    narrowed,
    surely_less,
)

Term = tuple[Atom, int]
Equation = tuple[IndexExpr, IndexExpr]
# (divisor, modulus or None, value): the value of `dividend // divisor % modulus`.
Digit = tuple[int, "int | None", IndexExpr]

# With symbols for sizes, results may ask at most this many times as many elements as there are.
_MOST_ASKED = 8


def invert(node: Node) -> Node | None:
    """An equivalent graph in which every result element gathers what is combined into it.

    `node` is a Reduce; the result is a guarded Reindex, reduced over trailing axes when several
    elements can meet in one place. None when the map looks indices up in a tensor, unless its other
    indices determine every axis: `y[n, t[n]] += x[n]` is `y[n, c] = x[n] where t[n] == c`.
    Raises NotGeneralError if symbols hide where elements go, so that each would be asked for often.
    """
    op: Any = node.op
    source, index_map = node.inputs[0], op.map
    identity = op.reducer.identity(node.dtype)
    if index_map.lookups() and not _looks_up_known_axes(index_map):
        return None
    if index_map.never or not source.size or not node.size:
        return constant(identity, node.dtype, node.shape)
    gather, free, strides = inverse_map(index_map, node.shape)
    if free and any(map(is_symbolic, (*gather.domain, *index_map.domain))):
        asked, present = prod(gather.domain), prod(index_map.domain)
        if asked > _MOST_ASKED * present:  # else a condition for the sizes of the program
            raise NotGeneralError(f"the inverse of {index_map} depends on sizes")
    # Without a reduction each element is a guarded read, for which a cut changes nothing.
    strides = strides if free else {}
    cut = _cut_by_residue(gather.domain, strides)
    whole = gather.after(cut)
    if _may_leave(whole, source.shape):
        ends = [Within(cut.indices[k], node.shape[k]) for k in strides]
        whole = IndexMap(whole.domain, whole.indices, (*whole.guards, *ends))
    gathered = reindex(source, whole, identity, node.inputs[1:])
    trailing = range(gathered.ndim - free, gathered.ndim)
    return _joined(reduce_axes(op.reducer.name, gathered, trailing), node.shape, strides)


def _cut_by_residue(domain: Sequence[int], strides: Mapping[int, int]) -> IndexMap:
    """The map from a box in which some axes are (position, residue) pairs to the box `domain`."""
    shape: list[int] = []
    for k, extent in enumerate(domain):
        shape += [-(-extent // strides[k]), strides[k]] if k in strides else [extent]
    axes = iter(IndexMap.axes(shape))
    indices = [
        next(axes) * strides[k] + next(axes) if k in strides else next(axes)
        for k in range(len(domain))
    ]
    return IndexMap(shape, indices)


def _may_leave(index_map: IndexMap, shape: Sequence[int]) -> bool:
    """Whether an index without a guard of its own may lie outside of the tensor."""
    bounds = {guard.expr: guard.extent for guard in index_map.guards if isinstance(guard, Within)}
    return any(
        not index.is_within(extent) and bounds.get(index, extent + 1) > extent
        for index, extent in zip(index_map.indices, shape)
    )


def _joined(node: Node, shape: Sequence[int], strides: Mapping[int, int]) -> Node:
    """The result whose cut axes are whole again, without what lies behind their ends."""
    whole = tuple(
        -(-extent // strides[k]) * strides[k] if k in strides else extent
        for k, extent in enumerate(shape)
    )
    node = reshape(node, whole)
    for k in strides:
        node = slice_dimension(node, k, 0, shape[k])
    return node


def _looks_up_known_axes(index_map: IndexMap) -> bool:
    return all(
        axis.is_constant or axis in index_map.indices for axis in index_map.axes(index_map.domain)
    )


def _has_lookup(expr: IndexExpr) -> bool:
    return any(isinstance(atom, Lookup) for atom in expr.atoms())


def inverse_map(index_map: IndexMap, target: Sequence[int]) -> tuple[IndexMap, int, dict[int, int]]:
    """The map from (element of the target, free axes) to the one point that is mapped there.

    Its guards hold where there is such a point. Also returns the number of free axes, which come
    behind the axes of the target, and the axes of the target of which the map takes quotients and
    remainders, with the divisor.
    """
    solver = _Solver(index_map.domain, index_map.guards)
    places = [_result_axis(k, extent) for k, extent in enumerate(target)]
    equations = list(zip(index_map.indices, places))
    solver.solve([equation for equation in equations if not _has_lookup(equation[0])])
    for left, right in equations:
        if _has_lookup(left):
            solver.require_equal(solver.substitute(left), right)
    indices = [solver.substitute(axis) for axis in IndexMap.axes(index_map.domain)]
    guards = [guard._replace(expr=solver.substitute(guard.expr)) for guard in index_map.guards]
    # The axes have had names of their own so far, to tell them from those of the source.
    domain = (*target, *solver.free)
    numbers: dict[Atom, IndexExpr] = {}
    for k, axis in enumerate([*places, *solver.free_axes]):
        for atom, _ in axis.terms:
            numbers[atom] = index_expr.axis(k, domain[k])

    def renumber(expr: IndexExpr) -> IndexExpr:
        return expr.substitute(numbers.get)

    return (
        IndexMap(
            domain,
            [renumber(index) for index in indices],
            [guard._replace(expr=renumber(guard.expr)) for guard in (*solver.guards, *guards)],
        ),
        len(solver.free),
        solver.strides,
    )


def _result_axis(position: int, extent: int) -> IndexExpr:
    return index_expr.axis(f"result{position}", extent)


class _Solver:
    """Solves equations for the axes of a box; what it cannot determine becomes a free axis."""

    def __init__(self, domain: Sequence[int], guards: Iterable[Guard] = ()) -> None:
        # An axis of extent 1 is the constant 0 and needs no solution.
        self.unknown: set[Atom] = {Axis(k, n) for k, n in enumerate(domain) if n > 1}
        # The values of an axis outside which a guard does not hold.
        self.ranges: dict[Atom, tuple[int, int]] = {
            axis: (start, stop) for axis, start, stop in filter(None, map(axis_range, guards))
        }
        self.values: dict[Atom, IndexExpr] = {}
        self.digits: dict[IndexExpr, list[Digit]] = {}
        self.guards: list[Guard] = []
        self.free: list[int] = []
        self.free_axes: list[IndexExpr] = []
        self.strides: dict[int, int] = {}

    def substitute(self, expr: IndexExpr) -> IndexExpr:
        """`expr` with everything that is known put in."""
        return expr.substitute(self.values.get)

    def solve(self, equations: list[Equation]) -> None:
        """Determines every axis from `expression = value` equations."""
        while equations or self.digits:
            if not equations:
                equations = self._join_digits()
                continue
            equations = [(self.substitute(left), right) for left, right in equations]
            chosen = min(equations, key=lambda equation: self._cost(equation[0]))
            equations.remove(chosen)
            self._solve_one(*chosen)
        for axis in sorted(self.unknown, key=lambda atom: atom.name):  # type: ignore[attr-defined]
            if axis not in self.values:
                start, stop = self.ranges.get(axis, (axis.low, axis.high + 1))
                self.values[axis] = self._free_digit(start, stop - 1)

    def _cost(self, left: IndexExpr) -> int:
        """How many values the axes have that solving this equation would leave free."""
        free, _ = _choose(self._terms(left))
        return prod(atom.high - atom.low + 1 for atom, _ in free)

    def _terms(self, expr: IndexExpr) -> list[Term]:
        return [term for term in expr.terms if self._is_unknown(term[0])]

    def _is_unknown(self, atom: Atom) -> bool:
        return any(inner in self.unknown for inner in index_expr.of(atom).atoms())

    def _new_free(self, atom: Atom) -> IndexExpr:
        extent = atom.high - atom.low + 1
        axis = index_expr.axis(f"free{len(self.free)}", extent)
        self.free.append(extent)
        self.free_axes.append(axis)
        return axis + atom.low

    def require_equal(self, left: IndexExpr, right: IndexExpr) -> None:
        """A guard that holds where two expressions are equal."""
        self.guards.append(Within(left - right, 1))

    def _solve_one(self, left: IndexExpr, right: IndexExpr) -> None:
        terms = self._terms(left)
        if not terms:
            self.require_equal(left, right)
            return
        known = left
        for atom, coefficient in terms:
            known = known - index_expr.of(atom) * coefficient
        right = right - known
        if self._solve_strided(terms, right) or self._solve_stretched(terms, right):
            return
        free, determined = _choose(terms)
        for atom, coefficient in free:
            value = self._new_free(atom)
            self._assign(atom, value)
            right = right - value * coefficient
        # Count every term from its smallest value: then the sum is a number with digits >= 0.
        for atom, coefficient in determined:
            right = right - coefficient * (atom.low if coefficient > 0 else atom.high)
        for position, (atom, coefficient) in enumerate(determined):
            step = abs(coefficient)
            if position == len(determined) - 1:
                self.guards.append(Divisible(right, step))
            digit, right = right // step, right % step
            self.guards.append(Within(digit, atom.high - atom.low + 1))
            self._assign(atom, digit + atom.low if coefficient > 0 else atom.high - digit)

    def _solve_strided(self, terms: list[Term], right: IndexExpr) -> bool:
        """Solves `stride*x + y = t + constant`, where `t` is an axis of the result.

        `y = stride*j + t' % stride` and `x = t' // stride - j` with `t' = t + constant` and a free
        `j`, which has one value only when `y` is below the stride. False when the equation is of
        another form, or when leaving `x` or `y` free would leave fewer values.
        """
        if len(right.terms) != 1:
            return False
        (outer, stride) = max(terms, key=lambda term: term[1])
        rest = [term for term in terms if term[0] is not outer]
        (place, factor) = right.terms[0]
        if len(rest) > 1 or not (isinstance(outer, Axis) and isinstance(place, Axis)):
            return False
        if not str(place.name).startswith("result"):
            return False
        position = int(str(place.name).removeprefix("result"))
        if stride < 2 or factor != 1 or position in self.strides or place.extent < stride:
            return False
        if not rest:
            self.strides[position] = stride
            self.guards.append(Divisible(right, stride))
            self._assign_within(outer, right // stride)
            return True
        (inner, unit) = rest[0]
        if unit != 1 or not isinstance(inner, Axis):
            return False
        windows = -(-inner.extent // stride)
        if windows > min(inner.extent, outer.extent):
            return False
        self.strides[position] = stride
        j = self._free_digit(0, windows - 1)
        self._assign_within(inner, j * stride + right % stride)
        self._assign_within(outer, right // stride - j)
        return True

    def _solve_stretched(self, terms: list[Term], right: IndexExpr) -> bool:
        """Solves `step * ((a*x + b) // c) + y = right`, as of windows that begin at fractions.

        `a*x + b` lies in a range of `c * ceil(extent of y / step)` numbers, which holds few
        multiples of `a`: `x` is the last of them, less a free axis, unless all values of `x` are
        fewer. `y` may be missing.
        """
        quotients = [term for term in terms if isinstance(term[0], Quotient)]
        rest = [atom for atom, unit in terms if isinstance(atom, Axis) and unit == 1]
        if len(quotients) != 1 or len(rest) > 1 or len(rest) + 1 != len(terms):
            return False
        ((quotient, step),) = quotients
        assert isinstance(quotient, Quotient)
        dividend, divisor = quotient.dividend, quotient.divisor
        if step < 1 or len(dividend.terms) != 1:
            return False
        ((outer, factor),) = dividend.terms
        if not isinstance(outer, Axis) or factor < 2:
            return False
        width = rest[0].extent if rest else 1
        last = ((right // step + 1) * divisor - 1 - dividend.constant) // factor
        few = narrowed(-(-(divisor * -(-width // step)) // factor))
        if surely_less(outer.extent, few):
            self._assign(outer, self._new_free(outer))
        else:
            self._assign_within(outer, last - self._free_digit(0, few - 1))
        offset = right - self.substitute(dividend) // divisor * step
        if rest:
            self._assign_within(rest[0], offset)
        else:
            self.require_equal(offset, index_expr.constant(0))
        return True

    def _assign_within(self, axis: Axis, value: IndexExpr) -> None:
        self._assign(axis, value)
        self.guards.append(Within(value, axis.extent))

    def _assign(self, atom: Atom, value: IndexExpr) -> None:
        self.values[atom] = value
        if isinstance(atom, Axis):
            self.unknown.discard(atom)
        elif isinstance(atom, Quotient):
            self.digits.setdefault(atom.dividend, []).append((atom.divisor, None, value))
        else:
            assert isinstance(atom, Remainder)
            self.guards.append(Within(value, atom.divisor))
            dividend, divisor = atom.dividend, 1
            if len(dividend.terms) == 1 and dividend.terms[0][1] == 1 and not dividend.constant:
                inner = dividend.terms[0][0]
                if isinstance(inner, Quotient):
                    dividend, divisor = inner.dividend, inner.divisor
            self.digits.setdefault(dividend, []).append((divisor, atom.divisor, value))

    def _join_digits(self) -> list[Equation]:
        """One equation for each dividend of which quotients and remainders are known."""
        # The values of quotients and remainders are spent here; only those of axes remain.
        self.values = {a: v for a, v in self.values.items() if isinstance(a, Axis)}
        pending, self.digits = self.digits, {}
        equations: list[Equation] = []
        for dividend, digits in pending.items():
            dividend = self.substitute(dividend)
            if self._terms(dividend):
                value, digits = self._compose(dividend, digits)
                equations.append((dividend, value))
            else:
                value = dividend
            for divisor, modulus, digit in digits:
                part = value // divisor
                self.require_equal(part if modulus is None else part % modulus, digit)
        return equations

    def _compose(
        self, dividend: IndexExpr, digits: Iterable[Digit]
    ) -> tuple[IndexExpr, list[Digit]]:
        """The number that has these digits, and the digits that it does not account for."""
        total = index_expr.constant(0)
        place = 1
        complete = False
        rest: list[Digit] = []
        for digit in sorted(digits, key=lambda digit: (digit[0], digit[1] is None)):
            divisor, modulus, value = digit
            if complete or divisor % place:
                rest.append(digit)
                continue
            if divisor > place:
                total = total + self._free_digit(0, divisor // place - 1) * place
            total = total + value * divisor
            if modulus is None:
                complete = True
            else:
                place = divisor * modulus
        if not complete and surely_less(dividend.high - dividend.low, place):
            # A stretch shorter than the modulus holds each remainder once: a roll.
            total = (total - dividend.low) % place + dividend.low
        elif not complete:
            low, high = dividend.low // place, dividend.high // place
            total = total + self._free_digit(low, high) * place
        return total, rest

    def _free_digit(self, low: int, high: int) -> IndexExpr:
        if low == high:
            return index_expr.constant(low)
        axis = index_expr.axis(f"free{len(self.free)}", high - low + 1)
        self.free.append(high - low + 1)
        self.free_axes.append(axis)
        return axis + low


def _choose(terms: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """Splits a sum into terms to leave free, as few values as possible, and digits to determine.

    Among equals the last axes are left free: those of a window stand behind those of its positions.
    The digits come largest step first; the smaller ones never add up to the step of a larger one.
    """
    if not terms:
        return [], []
    best: tuple[int, list[Term], list[Term]] | None = None
    for count in range(len(terms)):
        for free in combinations(terms, count):
            cost = prod(atom.high - atom.low + 1 for atom, _ in free)
            if best is not None and (cost, count) > (best[0], len(best[1])):
                continue
            digits = sorted((t for t in terms if t not in free), key=lambda term: -abs(term[1]))
            if index_expr.are_digits(digits):
                best = cost, list(free), digits
    assert best is not None, "a single term is always a digit"
    return best[1], best[2]
