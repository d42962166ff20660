"""Index arithmetic: sums of factors resolved into a scalar part and a part that lanes differ in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Union

from metaop.codegen.llvm.emit_code import Code
from metaop.codegen.llvm.value import Value
from metaop.codegen.loop_nest import (
    Argument,
    Condition,
    InBounds,
    Integer,
    LoopIndex,
    QuotientIndex,
    RemainderIndex,
    Sum,
    ValueIndex,
)

# Lane arithmetic in 32 bits is exact below this.
_SMALL = 1 << 29
# A literal coefficient, or the name of an i64 value.
Coefficient = Union[int, str]  # noqa: UP007


class Resolved(NamedTuple):
    """An index: `constant + Σ scalar * coefficient + lane * lane_coefficient + Σ vectors`.

    `scalars` are names of i64 values with literal coefficients, `vectors` names of vectors of i64
    with coefficients; `lane` counts 0, 1, … over the lanes.
    """

    constant: int
    scalars: tuple[tuple[str, int], ...]
    lane: Coefficient = 0
    vectors: tuple[tuple[str, Coefficient], ...] = ()

    @property
    def varies(self) -> bool:
        """Whether lanes differ."""
        return self.lane != 0 or bool(self.vectors)

    @property
    def uniform(self) -> Resolved:
        """The part that all lanes share."""
        return Resolved(self.constant, self.scalars)


@dataclass(frozen=True)
class Lanes:
    """The vector loop around the code: `copies` groups of `count` neighbouring iterations.

    Iteration `base + copy * count + lane` runs in a lane; `mask` names the lanes that exist, or
    is None when all do.
    """

    axis: str
    base: Coefficient
    count: int
    copies: int = 1
    mask: str | None = None


NO_LANES = Lanes("", 0, 1)


class IndexWriter:
    """Writes index arithmetic.

    `loops` binds axes to i64 names or literals, `bindings` the names of Let and CheckedIndex, in
    one copy of a vector loop, to values.
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self.lanes = NO_LANES
        self.loops: dict[str, Coefficient] = {}
        self.bindings: dict[tuple[str, int], Value] = {}

    def bound(self, name: str, copy: int) -> Value:
        """The value of a name; what was bound outside a vector loop is the same in its copies."""
        return self.bindings.get((name, copy)) or self.bindings[name, 0]

    # --- scalars ----------------------------------------------------------------------------

    def integer(self, value: Integer) -> Coefficient:
        """A literal, or the name of an argument's value."""
        return f"%a{value.position}" if isinstance(value, Argument) else value

    def binary(self, operation: str, left: Coefficient, right: Coefficient) -> Coefficient:
        """A 64-bit instruction on scalars; sums and products of literals are folded."""
        if operation == "mul":
            if left == 0 or right == 0:
                return 0
            if left == 1:
                return right
            if right == 1:
                return left
        elif right == 0 and operation in ("add", "sub"):
            return left
        elif left == 0 and operation == "add":
            return right
        if isinstance(left, int) and isinstance(right, int) and operation in _FOLD:
            return _FOLD[operation](left, right)
        code = self.code
        level = code.level_among(str(left), str(right))
        if operation in ("udiv", "urem", "srem") and isinstance(right, str):
            level = code.safe_level(level)  # an argument of 0 traps
        return code.at(level, f"{operation} i64 {left}, {right}")

    def total(self, index: Resolved) -> Coefficient:
        """The uniform part as one number: outer terms first, so that they stay outside loops."""
        result: Coefficient = 0
        for name, coefficient in self._outer_first(index.scalars):
            result = self.binary("add", result, self.binary("mul", name, coefficient))
        return self.binary("add", result, index.constant)

    def _outer_first(self, scalars: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
        level_of = self.code.level_of
        return sorted(scalars, key=lambda term: level_of.get(term[0], 0))

    # --- sums -------------------------------------------------------------------------------

    def resolve(self, index: Sum, copy: int = 0) -> Resolved:
        """A sum as it stands in one of the copies of a vector loop."""
        terms = _Terms(self)
        terms.add_scaled(self.integer(index.constant), 1)
        for factor, coefficient in index.terms:
            scale = self.integer(coefficient)
            if isinstance(factor, LoopIndex):
                self._add_axis(terms, factor.axis, scale, copy)
            elif isinstance(factor, ValueIndex):
                self._add_value(terms, self.bound(factor.name, copy), scale)
            else:
                terms.add(self._divided(factor, copy), scale)
        return terms.resolved()

    def _add_axis(self, terms: _Terms, axis: str, scale: Coefficient, copy: int) -> None:
        lanes = self.lanes
        if axis != lanes.axis:
            terms.add_scaled(self.loops[axis], scale)
            return
        terms.add_scaled(lanes.base, scale)
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

    def _divided(self, factor: QuotientIndex | RemainderIndex, copy: int) -> Resolved:
        dividend = self.resolve(factor.dividend, copy)
        divisor = self.integer(factor.divisor)
        quotient = isinstance(factor, QuotientIndex)
        if not dividend.varies:
            whole = self.total(dividend)
            return _single(self.binary("udiv" if quotient else "urem", whole, divisor))
        # The lanes differ little: divide once for all of them and correct in each.
        whole = self.total(dividend.uniform)
        small = not dividend.vectors and isinstance(divisor, int) and _small(dividend, self.lanes)
        signed = "s" if not (small and dividend.lane >= 0) else "u"
        shared = self.binary(f"{signed}div", whole, divisor)
        rest = self.binary(f"{signed}rem", whole, divisor)
        moved = self._lane_quotients(dividend, rest, divisor, small and signed == "u")
        if quotient:
            return _single(shared)._replace(vectors=((moved, 1),))
        minus = self.binary("sub", 0, divisor)
        return _single(rest)._replace(
            lane=dividend.lane, vectors=(*dividend.vectors, (moved, minus))
        )

    def _lane_quotients(
        self, dividend: Resolved, rest: Coefficient, divisor: Coefficient, small: bool
    ) -> str:
        """floor((rest + the lanes' part of the dividend) / divisor) as a vector of i64."""
        code, count = self.code, self.lanes.count
        if small and divisor < _SMALL:
            narrow = rest if isinstance(rest, int) else code.pure(f"trunc i64 {rest} to i32", rest)
            steps = vector_literal([lane * dividend.lane for lane in range(count)], "i32")
            added = self._vector_binary("add", self.splat(narrow, "i32"), steps, "i32")
            divided = self._vector_binary(
                "udiv", added, splat_literal(divisor, count, "i32"), "i32"
            )
            return code.pure(f"zext <{count} x i32> {divided} to <{count} x i64>", divided)
        # A quotient of whole numbers below 2^52 rounds to a double on its own side of the whole
        # numbers, hence its floor is exact; vector units divide doubles, but not integers.
        part = self.vector(dividend._replace(constant=0, scalars=()), rest)
        wide = code.pure(f"sitofp <{count} x i64> {part} to <{count} x double>", part)
        under = self.splat(divisor, "i64")
        under = code.pure(f"sitofp <{count} x i64> {under} to <{count} x double>", under)
        ratio = code.pure(f"fdiv <{count} x double> {wide}, {under}", wide, under)
        with code.placed(code.level_among(ratio)):
            floor = code.floor(code.value(ratio, "double", count)).text
        return code.pure(f"fptosi <{count} x double> {floor} to <{count} x i64>", floor)

    # --- vectors ----------------------------------------------------------------------------

    def splat(self, value: Coefficient, element: str = "i64") -> str:
        """A vector of equal integers."""
        count = self.lanes.count
        if isinstance(value, int):
            return splat_literal(value, count, element)
        return splat(self.code, value, element, count)

    def vector(self, index: Resolved, start: Coefficient | None = None) -> str:
        """An index as a vector of i64; `start` replaces the uniform part."""
        count = self.lanes.count
        result = self.splat(self.total(index) if start is None else start)
        if index.lane != 0:
            if isinstance(index.lane, int):
                steps = vector_literal([lane * index.lane for lane in range(count)], "i64")
            else:
                iota = vector_literal(list(range(count)), "i64")
                steps = self._vector_binary("mul", self.splat(index.lane), iota)
            result = self._vector_binary("add", result, steps)
        for name, coefficient in index.vectors:
            scaled = name
            if coefficient != 1:
                scaled = self._vector_binary("mul", name, self.splat(coefficient))
            result = self._vector_binary("add", result, scaled)
        return result

    def _vector_binary(self, operation: str, left: str, right: str, element: str = "i64") -> str:
        if operation == "add" and left == "zeroinitializer":
            return right
        text = f"{operation} <{self.lanes.count} x {element}> {left}, {right}"
        return self.code.pure(text, left, right)

    # --- conditions -------------------------------------------------------------------------

    def conditions(
        self, conditions: tuple[Condition, ...], copy: int
    ) -> tuple[str | None, str | None]:
        """The conjunction as (an i1, a vector of i1); None stands for true."""
        scalar: str | None = None
        lanes: str | None = None
        for condition in conditions:
            index = self.resolve(condition.index, copy)
            if index.varies:
                mask = self._lanes_hold(condition, index)
                lanes = mask if lanes is None else self.both(lanes, mask, self.lanes.count)
            else:
                holds = self._holds(condition, self.total(index))
                scalar = holds if scalar is None else self.both(scalar, holds, 1)
        return scalar, lanes

    def both(self, left: str, right: str, count: int) -> str:
        """The conjunction of two conditions."""
        if left == "true":
            return right
        if right == "true":
            return left
        if "false" in (left, right):
            return "false"
        kind = f"<{count} x i1>" if count > 1 else "i1"
        return self.code.pure(f"and {kind} {left}, {right}", left, right)

    def _holds(self, condition: Condition, index: Coefficient) -> str:
        code = self.code
        if isinstance(condition, InBounds):
            extent = self.integer(condition.extent)
            if isinstance(index, int) and isinstance(extent, int):
                return "true" if 0 <= index < extent else "false"
            return code.pure(f"icmp ult i64 {index}, {extent}", str(index), str(extent))
        divisor = self.integer(condition.divisor)
        rest = self.binary("srem", index, divisor)
        if isinstance(rest, int):
            return "true" if rest == 0 else "false"
        return code.pure(f"icmp eq i64 {rest}, 0", rest)

    def _lanes_hold(self, condition: Condition, index: Resolved) -> str:
        if isinstance(condition, InBounds):
            extent = self.integer(condition.extent)
            if index.lane in (1, -1) and not index.vectors:
                return self._lane_range(index, extent)
            return self._compare("ult", self.vector(index), self.splat(extent))
        divisor = self.integer(condition.divisor)
        if not index.vectors and isinstance(divisor, int) and _small(index, self.lanes):
            return self._lane_multiples(index, divisor)
        # q * divisor == index for the floor q of the quotient.
        whole = self.total(index.uniform)
        rest = self.binary("srem", whole, divisor)
        quotients = self._lane_quotients(index, rest, divisor, small=False)
        product = self._vector_binary("mul", quotients, self.splat(divisor))
        part = self.vector(index._replace(constant=0, scalars=()), rest)
        return self._compare("eq", product, part)

    def _lane_range(self, index: Resolved, extent: Coefficient) -> str:
        """`0 <= start ± lane < extent` as `first <= lane < last` in 32 bits."""
        start, count = self.total(index.uniform), self.lanes.count
        if index.lane == 1:
            first = self.binary("sub", 0, start)
            last = self.binary("sub", extent, start)
        else:
            first = self.binary("add", self.binary("sub", start, extent), 1)
            last = self.binary("add", start, 1)
        first, last = self._clamped(first), self._clamped(last)
        width = self._narrow_difference(last, first)
        iota = vector_literal(list(range(count)), "i32")
        moved = self._vector_binary("sub", iota, self.splat(first, "i32"), "i32")
        return self._compare("ult", moved, self.splat(width, "i32"), "i32")

    def _clamped(self, value: Coefficient) -> Coefficient:
        """An i64 brought into 0 … lanes, as an i32."""
        count, code = self.lanes.count, self.code
        if isinstance(value, int):
            return min(max(value, 0), count)
        for function, limit in (("smax", 0), ("smin", count)):
            code.declare(f"declare i64 @llvm.{function}.i64(i64, i64)")
            value = code.pure(f"call i64 @llvm.{function}.i64(i64 {value}, i64 {limit})", value)
        return code.pure(f"trunc i64 {value} to i32", value)

    def _narrow_difference(self, left: Coefficient, right: Coefficient) -> Coefficient:
        if isinstance(left, int) and isinstance(right, int):
            return left - right
        return self.code.pure(f"sub i32 {left}, {right}", str(left), str(right))

    def _lane_multiples(self, index: Resolved, divisor: int) -> str:
        """`index % divisor == 0` from the residue of the uniform part, in 32 bits."""
        code, count = self.code, self.lanes.count
        rest = self.binary("srem", self.total(index.uniform), divisor)
        if isinstance(rest, str):
            # The remainder of a negative number is negative; one divisor more makes it legal.
            rest = self.binary("add", rest, divisor)
            rest = code.pure(f"trunc i64 {rest} to i32", rest)
        else:
            rest %= divisor
        steps = [lane * index.lane % divisor for lane in range(count)]
        steps_text = vector_literal(steps, "i32")
        added = self._vector_binary("add", self.splat(rest, "i32"), steps_text, "i32")
        limit = splat_literal(divisor, count, "i32")
        left = self._vector_binary("urem", added, limit, "i32")
        return self._compare("eq", left, "zeroinitializer", "i32")

    def _compare(self, predicate: str, left: str, right: str, element: str = "i64") -> str:
        text = f"icmp {predicate} <{self.lanes.count} x {element}> {left}, {right}"
        return self.code.pure(text, left, right)


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
            value, scale = scale, value
        if isinstance(value, int):
            self.constant += value * scale
            return
        if isinstance(scale, str):
            value, scale = self.writer.binary("mul", value, scale), 1
        self.scalars[value] = self.scalars.get(value, 0) + scale

    def add(self, index: Resolved, scale: Coefficient) -> None:
        """Adds `index * scale`."""
        binary = self.writer.binary
        self.add_scaled(index.constant, scale)
        for name, coefficient in index.scalars:
            self.add_scaled(self.writer.binary("mul", name, coefficient), scale)
        self.lane = binary("add", self.lane, binary("mul", index.lane, scale))
        for name, coefficient in index.vectors:
            self.vectors.append((name, binary("mul", coefficient, scale)))

    def resolved(self) -> Resolved:
        """The sum."""
        scalars = tuple((name, c) for name, c in self.scalars.items() if c != 0)
        return Resolved(self.constant, scalars, self.lane, tuple(self.vectors))


def _single(value: Coefficient) -> Resolved:
    if isinstance(value, int):
        return Resolved(value, ())
    return Resolved(0, ((value, 1),))


def _small(index: Resolved, lanes: Lanes) -> bool:
    return isinstance(index.lane, int) and abs(index.lane) * lanes.count < _SMALL


_FOLD = {
    "add": lambda left, right: left + right,
    "sub": lambda left, right: left - right,
    "mul": lambda left, right: left * right,
    "udiv": lambda left, right: left // right,
    "urem": lambda left, right: left % right,
    "sdiv": lambda left, right: int(abs(left) // right) * (1 if left >= 0 else -1),
    "srem": lambda left, right: abs(left) % right * (1 if left >= 0 else -1),
}


def splat(code: Code, value: str, element: str, count: int) -> str:
    """A vector of `count` equal elements."""
    kind = f"<{count} x {element}>"
    first = code.pure(f"insertelement {kind} poison, {element} {value}, i64 0", value)
    shuffle = f"shufflevector {kind} {first}, {kind} poison, <{count} x i32> zeroinitializer"
    return code.pure(shuffle, first)


def splat_literal(value: int, count: int, element: str) -> str:
    """A literal vector of equal integers."""
    return "zeroinitializer" if value == 0 else f"splat ({element} {value})"


def vector_literal(values: list[int], element: str) -> str:
    """A literal vector of integers."""
    if not any(values):
        return "zeroinitializer"
    return "<" + ", ".join(f"{element} {value}" for value in values) + ">"
