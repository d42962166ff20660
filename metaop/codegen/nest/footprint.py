"""Which elements of its buffers a part of a nest's tasks accesses, as intervals.

The tasks are cut into equal slices of consecutive ones. For each slice, interval arithmetic over
the indices of the nest gives the first and the last element that it may read or write. A guard
narrows the range of its sum wherever that is part of an index.

With plain sizes, the ends of an interval are arrays with one number per slice. With symbolic ones
they are expressions of the number of the slice, and only what is proved is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaop.codegen.nest import ir
from metaop.unified_graph.shape_env import ShapeEnv
from metaop.unified_graph.symbolic import SymInt, surely_equal, surely_less

# An end of an interval.
End = Any


class _NotKnownError(Exception):
    """An end depends on the values of symbols."""


class Interval(NamedTuple):
    """The least and the greatest value, in each slice."""

    low: End
    high: End

    def plus(self, other: Interval, times: Any = 1) -> Interval:
        """The sums with a multiple of a value of the other interval."""
        first, second = other.low * times, other.high * times
        if surely_less(times, 1):
            first, second = second, first
        elif not surely_less(-1, times):
            raise _NotKnownError
        return Interval(self.low + first, self.high + second)

    def joined(self, other: Interval) -> Interval:
        """The interval around both."""
        return Interval(_lesser(self.low, other.low), -_lesser(-self.high, -other.high))

    def is_inside(self, begin: End, end: End) -> bool:
        """Whether it is provably within `begin … end - 1`, in each slice."""
        if isinstance(self.low, np.ndarray):
            return bool((self.low >= begin).all() and (self.high < end).all())
        return surely_less(begin - 1, self.low) and surely_less(self.high, end)


def _lesser(one: End, other: End) -> End:
    if isinstance(one, np.ndarray):
        return np.minimum(one, other)
    if surely_less(other, one):
        return other
    if not surely_less(one - 1, other):
        raise _NotKnownError
    return one


# None stands for values of which nothing is known: those that are read from memory.
Known = Mapping[str, Interval | None]
Conditions = Sequence[ir.Condition]


def reach(
    nest: ir.LoopNest, slices: Any, blocks: int = 1, inner: str = "", env: ShapeEnv | None = None
) -> dict[int, Interval | None]:
    """The elements of each parameter of a nest that each slice of its tasks accesses.

    None means any. The number of tasks must be a multiple of `slices`. With several blocks, each
    block has an interval: it takes its part of the loop `inner` in all tasks of the slice.
    Symbolic sizes have an `env`, and are not cut into blocks.
    """
    surveyor = _Surveyor(nest, slices, blocks, inner, env)
    try:
        surveyor.visit(nest.body, {})
    except _NotKnownError:
        return dict.fromkeys(range(len(nest.parameters)))
    return {number: found for number, found in surveyor.found.items() if number >= 0}


def number_of_slice(slices: Any, env: ShapeEnv | None) -> End:
    """The numbers of the slices, or the symbol for any of them."""
    if env is None:
        return np.arange(slices, dtype=np.int64)
    return env.variable("slice", 0, slices - 1 if type(slices) is int else None)


class _Surveyor:
    """Walks through a nest and records accesses in `found`."""

    def __init__(
        self, nest: ir.LoopNest, slices: Any, blocks: int, inner: str, env: ShapeEnv | None
    ) -> None:
        assert env is None or blocks == 1
        self.found: dict[int, Interval | None] = {}
        self._share = nest.tasks // slices
        numbers = number_of_slice(slices * blocks, env)
        self._start = numbers // blocks * self._share
        self._inner, self._blocks, self._block = inner, blocks, numbers % blocks
        self._zero = numbers * 0

    def visit(self, body: Iterable[ir.Statement], outside: Known) -> None:
        known = dict(outside)
        for statement in body:
            if isinstance(statement, ir.For):
                self.visit(statement.body, {**known, statement.axis: self._axis(statement)})
            elif isinstance(statement, ir.MicroKernel):
                self._micro_kernel(statement, known)
            elif isinstance(statement, ir.ForeignCall):
                self.found.update(dict.fromkeys(statement.buffers))
            elif isinstance(statement, (ir.Store, ir.Update)):
                place = self._sum(statement.offset, known, statement.conditions)
                self._touch(statement.buffer, place)
                self._loads(statement.value, known)
            elif isinstance(statement, (ir.Let, ir.CheckedIndex, ir.Accumulate)):
                self._loads(statement.value, known)
                if not isinstance(statement, ir.Accumulate):
                    known[statement.name] = self._bound(statement, known)

    def _axis(self, loop: ir.For) -> Interval | None:
        if loop.kind == "parallel":
            return Interval(self._start, self._start + (self._share - 1))
        if not isinstance(loop.extent, (int, SymInt)):
            return None
        if loop.axis == self._inner:
            part = loop.extent // self._blocks
            return Interval(self._block * part, self._block * part + (part - 1))
        return self._up_to(loop.extent - 1)

    def _up_to(self, last: Any) -> Interval:
        return Interval(self._zero, self._zero + last)

    def _bound(self, statement: ir.Let | ir.CheckedIndex, known: Known) -> Interval | None:
        """The values of a name."""
        if isinstance(statement, ir.CheckedIndex):
            return self._up_to(_integer(statement.bound) - 1)
        return self._values(statement.value, known)

    def _values(self, expr: ir.Expr, known: Known) -> Interval | None:
        """The values of an index, or of the least or the greatest of two."""
        if isinstance(expr, ir.IndexValue):
            return self._sum(expr.index, known)
        if not isinstance(expr, ir.Apply) or expr.function not in ("minimum", "maximum"):
            return None
        first, second = (self._values(one, known) for one in expr.operands)
        if first is None or second is None:
            return None
        if expr.function == "minimum":
            return Interval(_lesser(first.low, second.low), _lesser(first.high, second.high))
        return Interval(-_lesser(-first.low, -second.low), -_lesser(-first.high, -second.high))

    # --- what is touched ----------------------------------------------------------------------

    def _touch(self, buffer: int, place: Interval | None, further: Interval | None = None) -> None:
        """Records elements of a buffer: an offset, or all up to `further` elements beyond it."""
        if place is not None and further is not None:
            place = Interval(place.low, place.high + further.high)
        before = self.found.get(buffer, place)
        is_known = before is not None and place is not None
        self.found[buffer] = before.joined(place) if is_known else None  # type: ignore

    def _loads(self, expr: ir.Expr, known: Known) -> None:
        for part in ir.parts_of(expr):
            if isinstance(part, ir.Load):
                self._touch(part.buffer, self._sum(part.offset, known, part.conditions))

    def _micro_kernel(self, one: ir.MicroKernel, known: Known) -> None:
        depth = self._sum(one.depth, known)
        if depth is None:
            self.found.update(dict.fromkeys((one.left, one.right, one.target)))
            return
        last = self._zero
        if one.left_stride is None:
            left = Interval(last, depth.high * one.left_pitch - 1)
        else:
            start_of_last = (one.rows - 1) * _integer(one.left_stride)
            left = Interval(last, depth.high * one.step - 1 + start_of_last)
        self._touch(one.left, self._sum(one.left_offset, known), left)
        steps = depth.high * one.packed_steps
        right = Interval(last, steps * one.columns - 1)
        self._touch(one.right, self._sum(one.right_offset, known), right)
        tile = self._up_to((one.rows - 1) * _integer(one.target_stride) + one.columns - 1)
        self._touch(one.target, self._sum(one.target_offset, known), tile)

    # --- indices ------------------------------------------------------------------------------

    def _sum(self, index: ir.Sum, known: Known, conditions: Conditions = ()) -> Interval | None:
        """The values of a sum where conditions hold."""
        terms = {factor: _integer(coefficient) for factor, coefficient in index.terms}
        constant = _integer(index.constant)
        total = self._up_to(0)
        for condition in conditions:
            times = _times_within(condition, terms)
            inside = None if times is None else self._inside(condition, known)
            if times is None or inside is None:
                continue
            for factor, _ in condition.index.terms:
                del terms[factor]
            constant -= _integer(condition.index.constant) * times
            total = total.plus(inside, times)
        total = Interval(total.low + constant, total.high + constant)
        for factor, coefficient in terms.items():
            values = self._factor(factor, known)
            if values is None:
                return None
            total = total.plus(values, coefficient)
        return total

    def _inside(self, condition: ir.Condition, known: Known) -> Interval | None:
        """The values of a condition's sum where the condition holds."""
        assert isinstance(condition, ir.InBounds)
        free = self._sum(condition.index, known)
        last = self._zero + (_integer(condition.extent) - 1)
        if free is None:
            return Interval(self._zero, last)
        if isinstance(last, np.ndarray):
            return Interval(np.maximum(free.low, 0), np.minimum(free.high, last))
        low = free.low if surely_less(-1, free.low) else 0
        return Interval(low, free.high if surely_less(free.high, last) else last)

    def _factor(self, factor: ir.Factor, known: Known) -> Interval | None:
        if isinstance(factor, ir.LoopIndex):
            return known.get(factor.axis)
        if isinstance(factor, ir.ValueIndex):
            return known.get(factor.name)
        dividend, divisor = self._sum(factor.dividend, known), _integer(factor.divisor)
        if dividend is None:
            return None
        quotient = Interval(dividend.low // divisor, dividend.high // divisor)
        if isinstance(factor, ir.QuotientIndex):
            return quotient
        if not isinstance(quotient.low, np.ndarray):
            if surely_equal(quotient.low, quotient.high):
                return Interval(dividend.low % divisor, dividend.high % divisor)
            return self._up_to(divisor - 1)
        is_one = quotient.low == quotient.high
        low = np.where(is_one, dividend.low % divisor, 0)
        return Interval(low, np.where(is_one, dividend.high % divisor, divisor - 1))


def _times_within(condition: ir.Condition, terms: Mapping[ir.Factor, Any]) -> Any:
    """The multiple of a condition's sum that a sum contains; None if it contains none."""
    if not isinstance(condition, ir.InBounds) or not condition.index.terms:
        return None
    found = set()
    for factor, coefficient in condition.index.terms:
        coefficient = _integer(coefficient)
        times = terms.get(factor, 0) // coefficient
        is_whole = surely_equal(times * coefficient, terms.get(factor, 0))
        found.add(times if is_whole and not surely_equal(times, 0) else None)
    return found.pop() if len(found) == 1 else None


def _integer(value: ir.Integer) -> Any:
    """A number, plain or symbolic: nests have no arguments before kernels are shared."""
    assert not isinstance(value, ir.Argument)
    return value
