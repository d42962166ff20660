"""Index arithmetic: sums of factors resolved into a uniform part and a part per lane."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.conditions import Conditions
from metaop.codegen.llvm.emission.lanes import (
    NO_LANES,
    SMALL,
    Lanes,
    Pieces,
    Resolved,
)
from metaop.codegen.llvm.emission.scalars import Coefficient
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.nest.ir import (
    NEAR,
    WIDE,
    Argument,
    Integer,
    LoopIndex,
    QuotientIndex,
    RemainderIndex,
    Sum,
    ValueIndex,
)

# Lanes mostly have one quotient by a divisor of so many times their width.
_MOSTLY = 6


class IndexWriter(Conditions):
    """Writes index arithmetic.

    `loops` binds axes to i64 names or literals, `bindings` the names of Let and CheckedIndex, in
    one copy of a vector loop, to values.
    """

    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.loops: dict[str, Coefficient] = {}
        self.bindings: dict[tuple[str, int], Value] = {}

    def bound_value(self, name: str, copy: int) -> Value:
        """The value of a name; one bound outside a vector loop is the same in all copies."""
        return self.bindings.get((name, copy)) or self.bindings[name, 0]

    def enter(self, axis: str, place: Coefficient, extent: Integer | ValueIndex) -> None:
        """Binds an axis to an iteration of its loop."""
        self.loops[axis] = place
        if isinstance(place, str):
            last = extent - 1 if isinstance(extent, int) else math.inf
            self.limits[place] = min(last, self.limits.get(place, last))

    @contextmanager
    def along(
        self, axis: str, base: Coefficient, place: Coefficient, mask: str | None = None
    ) -> Iterator[None]:
        """A scope in which the lanes run along another axis, at one index of their own."""
        lanes = self.lanes
        self.loops[lanes.axis] = place
        self.lanes = Lanes(axis, base, lanes.count, 1, mask)
        try:
            yield
        finally:
            self.lanes = lanes

    @contextmanager
    def at(self, places: dict[str, Coefficient]) -> Iterator[None]:
        """A scope without lanes, at one index of each axis."""
        lanes, before = self.lanes, self.loops
        self.lanes, self.loops = NO_LANES, {**self.loops, **places}
        try:
            yield
        finally:
            self.lanes, self.loops = lanes, before

    def integer(self, value: Integer) -> Coefficient:
        """A literal, or the name of an argument's value."""
        if not isinstance(value, Argument):
            return value
        name = f"%a{value.position}"
        if value.is_natural:
            self.limits[name] = math.inf
        if value.is_wide:
            self.wide_names.add(name)
        if value.is_near:
            self.near_names.add(name)
        return name

    def extent(self, value: Integer | ValueIndex) -> Coefficient:
        """How many iterations a loop has."""
        if isinstance(value, ValueIndex):
            return self.total(self.resolve(Sum(((value, 1),), 0)))
        return self.integer(value)

    def rest_along(self, axis: str, index: Sum, is_natural: bool = False) -> Coefficient | None:
        """What an index adds to an axis, if that is the same in all iterations.

        None also if it may be negative and must be natural.
        """
        along = [scale for factor, scale in index.terms if factor == LoopIndex(axis)]
        others = tuple(term for term in index.terms if term[0] != LoopIndex(axis))
        if along != [1] or not all(isinstance(factor, LoopIndex) for factor, _ in others):
            return None
        rest = self.resolve(Sum(others, index.constant))
        return None if is_natural and not self._is_natural(rest) else self.total(rest)

    def has_one_quotient(self, factor: QuotientIndex | RemainderIndex) -> str | None:
        """Whether the lanes of all copies have one quotient, as an i1; None if that is known, or is
        seldom so."""
        dividend, divisor = self.resolve(factor.dividend), self.integer(factor.divisor)
        steps = dividend.lane
        if not (isinstance(steps, int) and isinstance(divisor, int)) or dividend.vectors:
            return None
        width = steps * (self.lanes.count * self.lanes.copies - 1)
        if not 0 < _MOSTLY * width <= divisor:
            return None
        if self._is_natural(dividend) and self.is_within(dividend, divisor):
            return None
        rest = self._rest(dividend, divisor)
        return self.code.pure(f"icmp ult i64 {rest}, {divisor - width}", str(rest))

    def resolve(self, index: Sum, copy: int = 0) -> Resolved:
        """A sum in one of the copies of a vector loop, resolved."""
        terms = _Terms(self)
        terms.add_scaled(self.integer(index.constant), 1)
        for factor, coefficient in index.terms:
            scale = self.integer(coefficient)
            if isinstance(factor, LoopIndex):
                self._add_axis(terms, factor.axis, scale, copy)
            elif isinstance(factor, ValueIndex):
                self._add_value(terms, self.bound_value(factor.name, copy), scale)
            else:
                terms.add(self._divided(factor, copy), scale)
        return terms.resolved()

    def _add_axis(self, terms: _Terms, axis: str, scale: Coefficient, copy: int) -> None:
        lanes = self.lanes
        inside = axis == lanes.axis
        start = lanes.base if inside else self.loops[axis]
        if isinstance(start, str):
            self.limits.setdefault(start, math.inf)
        terms.add_scaled(start, scale)
        if inside:
            terms.add_scaled(copy * lanes.count, scale)
            if lanes.count > 1:
                terms.lane = self.binary("add", terms.lane, scale)

    def _add_value(self, terms: _Terms, value: Value, scale: Coefficient) -> None:
        with self.code.placed(self.code.level_among(value.text)):
            wide = self.code.to_type(value, "i64")
        if wide.lanes > 1:
            terms.vectors.append((wide.text, scale))
        else:
            terms.add_scaled(int(wide.text) if wide.is_constant else wide.text, scale)

    # --- quotients and remainders -----------------------------------------------------------

    def _divided(self, factor: QuotientIndex | RemainderIndex, copy: int) -> Resolved:
        dividend = self.resolve(factor.dividend, copy)
        divisor = self.integer(factor.divisor)
        quotient = isinstance(factor, QuotientIndex)
        whole = self.total(dividend.uniform)
        operation = "div" if quotient else "rem"
        if not dividend.varies:
            return self._whole(f"u{operation}", whole, divisor)
        # The lanes differ little: divide once for all of them and correct in each.
        natural = self._is_natural(dividend)
        sign = "u" if natural else "s"
        if isinstance(divisor, int) and (factor.dividend, factor.divisor) in self.undivided:
            rest = self._rest(dividend, divisor)
            if not quotient:
                return self._named(rest)._replace(lane=dividend.lane)
            return self._whole("sdiv", self.binary("sub", whole, rest), divisor)
        if natural and self.is_within(dividend, divisor):
            shared = self._whole(f"u{operation}", whole, divisor)
            return shared if quotient else shared._replace(lane=dividend.lane)
        rest = self.binary(f"{sign}rem", whole, divisor)
        moved = self._lane_quotients(dividend, rest, divisor, natural)
        if quotient:
            shared = self._whole(f"{sign}div", whole, divisor)
            return shared._replace(vectors=((moved, 1),))
        minus = self.binary("sub", 0, divisor)
        self.scale(moved, minus, divisor)
        vectors = (*dividend.vectors, (moved, minus))
        remainder = self._whole(f"{sign}rem", whole, divisor)
        return remainder._replace(lane=dividend.lane, vectors=vectors)

    def _lane_quotients(
        self,
        dividend: Resolved,
        rest: Coefficient,
        divisor: Coefficient,
        natural: bool,
    ) -> str:
        bound = self.bound(dividend)
        are_neighbours = dividend.lane == 1 and natural and not dividend.vectors
        if divisor in self.wide_names and are_neighbours and self.lanes.count <= WIDE:
            result = self.next_quotients(rest, divisor)
            self.pieces[result] = Pieces(dividend.uniform, divisor)
            return result
        if bound is not None and divisor in self.near_names and bound < NEAR // 4:
            return self.near_quotients(dividend, rest, divisor)
        if bound is None or isinstance(divisor, str) or divisor + bound >= SMALL // 2:
            return self.wide_quotients(dividend, rest, divisor)
        result = self.small_quotients(dividend, rest, divisor, natural)
        pieces = self.common_pieces(dividend) if dividend.lane == 0 else None
        if are_neighbours:
            pieces = Pieces(dividend.uniform, divisor)
        if pieces is not None:
            self.pieces[result] = pieces
        return result

    def _rest(self, dividend: Resolved, divisor: int) -> Coefficient:
        """The remainder of lane 0, never negative."""
        whole = self.total(dividend.uniform)
        if self._is_natural(dividend):
            return self.binary("urem", whole, divisor)
        rest = self.binary("srem", whole, divisor)
        if isinstance(rest, int):
            return rest % divisor
        sign = self.binary("ashr", rest, 63)
        return self.binary("add", rest, self.binary("and", sign, divisor))

    def _is_natural(self, index: Resolved) -> bool:
        """Whether the uniform part of an index is provably not negative."""
        return index.constant >= 0 and all(
            scale >= 0 and name in self.limits for name, scale in index.scalars
        )

    def _whole(self, operation: str, whole: Coefficient, divisor: Coefficient) -> Resolved:
        return self._named(self.binary(operation, whole, divisor), operation[0] == "u")

    def _named(self, value: Coefficient, is_natural: bool = True) -> Resolved:
        if isinstance(value, int):
            return Resolved(value, ())
        if is_natural:
            self.limits.setdefault(value, math.inf)
        return Resolved(0, ((value, 1),))


class _Terms:
    """A sum under construction."""

    def __init__(self, writer: IndexWriter) -> None:
        self.writer = writer
        self.constant = 0
        self.scalars: dict[str, int] = {}
        self.lane: Coefficient = 0
        self.vectors: list[tuple[str, Coefficient]] = []

    def add_scaled(self, value: Coefficient, scale: Coefficient) -> None:
        """Adds `value * scale`."""
        if isinstance(value, int):
            if isinstance(scale, int):
                self.constant += value * scale
            else:
                self._count(scale, value)
        elif isinstance(scale, int):
            self._count(value, scale)
        else:
            self._count(str(self.writer.binary("mul", value, scale)), 1)

    def _count(self, name: str, times: int) -> None:
        self.scalars[name] = self.scalars.get(name, 0) + times

    def add(self, index: Resolved, scale: Coefficient) -> None:
        """Adds `index * scale`."""
        binary = self.writer.binary
        self.add_scaled(index.constant, scale)
        for name, coefficient in index.scalars:
            if isinstance(scale, int):
                self.add_scaled(name, coefficient * scale)
            else:
                self.add_scaled(binary("mul", name, coefficient), scale)
        self.lane = binary("add", self.lane, binary("mul", index.lane, scale))
        for name, times in index.vectors:
            self.vectors.append((name, self.writer.rescaled(name, times, scale)))

    def resolved(self) -> Resolved:
        """The sum."""
        scalars = tuple((name, c) for name, c in self.scalars.items() if c != 0)
        return Resolved(self.constant, scalars, self.lane, tuple(self.vectors))
