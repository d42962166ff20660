"""Integers that vary between lanes: 32-bit vectors if literals prove that these suffice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.scalars import Coefficient, ScalarArithmetic, reciprocal
from metaop.codegen.nest.ir import NEAR, Condition, Integer, Sum

# Sums of two numbers below this, and their differences, fit into 32 bits.
SMALL = 1 << 29


class Resolved(NamedTuple):
    """An index: `constant + Σ scalar * coefficient + lane * lane_coefficient + Σ vectors`.

    `scalars` are names of i64 values with literal coefficients, `vectors` names of vectors with
    coefficients; `lane` counts 0, 1, … over the lanes.
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
    """The enclosing vector loop: `copies` groups of `count` neighbouring iterations.

    A lane runs iteration `base + copy * count + lane`; `mask` has the active lanes, or is None if
    all are.
    """

    axis: str
    base: Coefficient
    count: int
    copies: int = 1
    mask: str | None = None


NO_LANES = Lanes("", 0, 1)


class Pieces(NamedTuple):
    """Where a vector changes its value: at the lanes where `(start + lane) // width` does.

    The start is uniform and not negative. A width that is a name is wide.
    """

    start: Resolved
    width: Coefficient

    def phase(self, width: int) -> Resolved:
        """The start modulo a width."""
        scalars = tuple((name, scale % width) for name, scale in self.start.scalars)
        kept = tuple(sorted(term for term in scalars if term[1]))
        return Resolved(self.start.constant % width, kept)


class Segment(NamedTuple):
    """Lanes whose accesses are evenly spaced: a mask, and what to add to the index of lane 0."""

    mask: str
    moved: Coefficient


class LaneArithmetic(ScalarArithmetic):
    """Arithmetic on scalar and vector integers.

    `bounds` has the 32-bit vectors with bounds of the magnitude of their elements; all others have
    64 bits. `scaled` has small products of vectors and coefficients. `pieces` has the vectors that
    are constant over runs of lanes, `multiples` the literals of which scalars are multiples,
    `wide_names` and `near_names` the arguments that are wide and near.
    """

    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.lanes = NO_LANES
        # Conditions that hold in the loop that is being written.
        self.assumed: frozenset[Condition] = frozenset()
        # Dividends and divisors whose quotient is the same in all lanes there.
        self.undivided: frozenset[tuple[Sum, Integer]] = frozenset()
        self.bounds: dict[str, int] = {}
        self.pieces: dict[str, Pieces] = {}
        self.multiples: dict[str, int] = {}
        self.scaled: dict[tuple[str, Coefficient], str] = {}
        self.wide_names: set[Coefficient] = set()
        self.near_names: set[Coefficient] = set()

    def total(self, index: Resolved) -> Coefficient:
        """The uniform part as one value: outer terms first, so that they stay outside loops."""
        result: Coefficient = 0
        level_of = self.code.level_of
        for name, scale in sorted(index.scalars, key=lambda term: level_of.get(term[0], 0)):
            result = self.binary("add", result, self.binary("mul", name, scale))
        return self.binary("add", result, index.constant)

    # --- vectors ----------------------------------------------------------------------------

    def splat(self, value: Coefficient, element: str = "i64") -> str:
        """A vector of equal integers."""
        count, code = self.lanes.count, self.code
        if isinstance(value, int):
            return "zeroinitializer" if value == 0 else f"splat ({element} {value})"
        kind = f"<{count} x {element}>"
        first = code.pure(f"insertelement {kind} poison, {element} {value}, i64 0", value)
        shuffle = f"shufflevector {kind} {first}, {kind} poison, <{count} x i32> zeroinitializer"
        return code.pure(shuffle, first)

    def iota(self, scale: int = 1, element: str = "i32") -> str:
        """The lane's number times a literal."""
        return vector_literal([lane * scale for lane in range(self.lanes.count)], element)

    def lanes_below(self, base: Coefficient, stop: Coefficient, count: int = 0) -> str:
        """The mask of lanes, counted from `base`, below `stop`."""
        code, count = self.code, count or self.lanes.count
        if isinstance(base, int) and isinstance(stop, int):
            return vector_literal([int(lane < stop - base) for lane in range(count)], "i1")
        left = code.emit(f"sub i64 {stop}, {base}")
        narrow = code.value(code.emit(f"trunc i64 {left} to i32"), "i32")
        iota = vector_literal(list(range(count)), "i32")
        return code.emit(f"icmp slt <{count} x i32> {iota}, {code.splat(narrow, count).text}")

    def vector_binary(self, operation: str, left: str, right: str, element: str = "i64") -> str:
        """An instruction on vectors."""
        if operation == "add":
            if left == "zeroinitializer":
                return right
            if right == "zeroinitializer":
                return left
        text = f"{operation} <{self.lanes.count} x {element}> {left}, {right}"
        return self.code.pure(text, left, right)

    def compare(self, predicate: str, left: str, right: str, element: str = "i64") -> str:
        """A comparison of vectors."""
        text = f"icmp {predicate} <{self.lanes.count} x {element}> {left}, {right}"
        return self.code.pure(text, left, right)

    def bound(self, index: Resolved) -> int | None:
        """A bound of the lanes' part of an index, if literals prove that it is small."""
        if isinstance(index.lane, str):
            return None
        result = abs(index.lane) * self.lanes.count
        for name, scale in index.vectors:
            product = self.scaled.get((name, scale))
            if product is not None:
                result += self.bounds[product]
            elif isinstance(scale, str) or name not in self.bounds:
                return None
            else:
                result += self.bounds[name] * abs(scale)
        return result if result < SMALL else None

    def small_part(self, index: Resolved) -> str:
        """The lanes' part of an index that has a bound, as a vector of i32."""
        assert isinstance(index.lane, int)
        result = "zeroinitializer" if index.lane == 0 else self.iota(index.lane)
        for name, scale in index.vectors:
            term = self.scaled.get((name, scale), name)
            if scale != 1 and term == name:
                term = self.vector_binary("mul", name, self.splat(scale, "i32"), "i32")
            result = self.vector_binary("add", result, term, "i32")
        return result

    def vector(self, index: Resolved, start: Coefficient | None = None) -> str:
        """An index as a vector of i64; `start` replaces the uniform part."""
        result = self.splat(self.total(index) if start is None else start)
        if not index.varies:
            return result
        if self.bound(index) is not None:
            return self.vector_binary("add", result, self.wide(self.small_part(index)))
        if isinstance(index.lane, int):
            steps = self.iota(index.lane, "i64")
        else:
            steps = self.vector_binary("mul", self.splat(index.lane), self.iota(1, "i64"))
        result = self.vector_binary("add", result, steps)
        for name, scale in index.vectors:
            term = self.wide(name) if name in self.bounds else name
            if scale != 1:
                term = self.vector_binary("mul", term, self.splat(scale))
            result = self.vector_binary("add", result, term)
        return result

    def wide(self, vector: str) -> str:
        """A vector of i32 as i64."""
        count = self.lanes.count
        return self.code.pure(f"sext <{count} x i32> {vector} to <{count} x i64>", vector)

    # --- quotients --------------------------------------------------------------------------

    def small_quotients(
        self, index: Resolved, rest: Coefficient, divisor: int, natural: bool
    ) -> str:
        """floor((rest + the lanes' part) / divisor) in 32 bits.

        The lanes' part has a bound; the rest is between -divisor and divisor, and not negative if
        it is `natural`.
        """
        bound = self.bound(index)
        assert bound is not None
        moved, raised = self._raised(index, rest, divisor, bound, natural)
        quotients = self._natural_quotients(moved, divisor, (raised + 1) * divisor + bound)
        result = self.vector_binary("add", quotients, self.splat(-raised, "i32"), "i32")
        self.bounds[result] = max(raised, (divisor + bound) // divisor)
        return result

    def small_multiples(self, index: Resolved, rest: Coefficient, divisor: int) -> str:
        """Whether `rest + the lanes' part` is a multiple of the divisor, in 32 bits."""
        bound = self.bound(index)
        assert bound is not None
        moved, raised = self._raised(index, rest, divisor, bound, natural=False)
        quotients = self._natural_quotients(moved, divisor, (raised + 1) * divisor + bound)
        product = self.vector_binary("mul", quotients, self.splat(divisor, "i32"), "i32")
        return self.compare("eq", product, moved, "i32")

    def _natural_quotients(self, dividend: str, divisor: int, limit: int) -> str:
        """The quotient of a vector of i32 in 0 … limit by a literal."""
        found = reciprocal(divisor, limit, 32)
        if found is None:
            return self.vector_binary("udiv", dividend, self.splat(divisor, "i32"), "i32")
        factor, shift = found
        product = self.vector_binary("mul", dividend, self.splat(factor, "i32"), "i32")
        return self.vector_binary("lshr", product, self.splat(shift, "i32"), "i32")

    def _raised(
        self, index: Resolved, rest: Coefficient, divisor: int, bound: int, natural: bool
    ) -> tuple[str, int]:
        """The lanes' part plus the rest, and enough multiples of the divisor to be non-negative."""
        rising = isinstance(index.lane, int) and index.lane >= 0 and not index.vectors
        raised = 0 if rising else -(-bound // divisor)
        if not natural:
            raised += 1
        start = self.splat(self.narrow(rest), "i32")
        moved = self.vector_binary("add", start, self.splat(raised * divisor, "i32"), "i32")
        return self.vector_binary("add", moved, self.small_part(index), "i32"), raised

    def wide_quotients(self, index: Resolved, rest: Coefficient, divisor: Coefficient) -> str:
        """floor((rest + the lanes' part) / divisor) as i64, for any divisor.

        The quotient of integers below 2^52, rounded to a double, never crosses an integer, so its
        floor is exact; vector units divide doubles, but not integers.
        """
        code, count = self.code, self.lanes.count
        part = self.vector(index, rest)
        wide = code.pure(f"sitofp <{count} x i64> {part} to <{count} x double>", part)
        under = self.splat(divisor)
        under = code.pure(f"sitofp <{count} x i64> {under} to <{count} x double>", under)
        ratio = code.pure(f"fdiv <{count} x double> {wide}, {under}", wide, under)
        with code.placed(code.level_among(ratio)):
            floor = code.floor(code.value(ratio, "double", count)).text
        return code.pure(f"fptosi <{count} x double> {floor} to <{count} x i64>", floor)

    def near_quotients(self, index: Resolved, rest: Coefficient, divisor: Coefficient) -> str:
        """floor((rest + the lanes' part) / divisor) in 32 bits for a near divisor.

        The rest is between 0 and the divisor, the lanes' part less than a quarter of `NEAR`. So a
        sum plus a half has at most 23 bits, and its product with the rounded reciprocal is nearer
        to the quotient than that is to another integer.
        """
        code, count, bound = self.code, self.lanes.count, self.bound(index)
        assert bound is not None and bound < NEAR // 4
        start = self.splat(self.narrow(rest), "i32")
        moved = self.vector_binary("add", start, self.small_part(index), "i32")
        kind = f"<{count} x float>"
        real = code.pure(f"sitofp <{count} x i32> {moved} to {kind}", moved)
        real = code.pure(f"fadd {kind} {real}, splat (float 5.0e-1)", real)
        under = code.pure(f"sitofp i64 {divisor} to float", str(divisor))
        inverse = code.pure(f"fdiv float 1.0, {under}", under)
        ratio = self.vector_binary("fmul", real, self.splat(inverse, "float"), "float")
        if not (isinstance(index.lane, int) and index.lane >= 0 and not index.vectors):
            with code.placed(code.level_among(ratio)):
                ratio = code.floor(code.value(ratio, "float", count)).text
        result = code.pure(f"fptosi {kind} {ratio} to <{count} x i32>", ratio)
        self.bounds[result] = bound + 1
        return result

    def scale(self, vector: str, scale: Coefficient, divisor: Coefficient) -> None:
        """Notes the product of a vector of quotients and minus their divisor, if it is small."""
        if divisor in self.near_names and vector in self.bounds:
            factor = self.splat(self.narrow(scale), "i32")
            product = self.vector_binary("mul", vector, factor, "i32")
            # The dividends are below twice the divisor.
            self.bounds[product] = 2 * NEAR
            self.scaled[vector, scale] = product

    def rescaled(self, vector: str, scale: Coefficient, factor: Coefficient) -> Coefficient:
        """A coefficient of a vector times a factor."""
        result = self.binary("mul", scale, factor)
        product = self.scaled.get((vector, scale))
        if product is not None and isinstance(factor, int):
            bound = self.bounds[product] * abs(factor)
            if factor != 1 and bound < SMALL:
                product = self.vector_binary("mul", product, self.splat(factor, "i32"), "i32")
                self.bounds[product] = bound
                self.scaled[vector, result] = product
        return result

    def next_quotients(self, rest: Coefficient, divisor: Coefficient) -> str:
        """floor((rest + lane) / divisor) for a wide divisor and a rest below it: 0, then 1."""
        count = self.lanes.count
        first = self.clamped(self.binary("sub", divisor, rest), 0, count)
        later = self.compare("sge", self.iota(), self.splat(first, "i32"), "i32")
        result = self.code.pure(f"zext <{count} x i1> {later} to <{count} x i32>", later)
        self.bounds[result] = 1
        return result

    # --- runs of lanes ----------------------------------------------------------------------

    def is_within(self, index: Resolved, width: Coefficient) -> bool:
        """Whether an evenly spaced index provably crosses no multiple of a width between lanes.

        That holds if lane 0 and the width are multiples of the length of all lanes.
        """
        if index.vectors or not (isinstance(index.lane, int) and isinstance(width, int)):
            return False
        length = abs(index.lane) * self.lanes.count
        parts = [scale * self.multiples.get(name, 1) for name, scale in index.scalars]
        return index.lane > 0 and math.gcd(width, index.constant, *parts) % length == 0

    def common_pieces(self, index: Resolved) -> Pieces | None:
        """The runs of lanes over which all vectors of an index are constant, if there are any."""
        found = [self.pieces.get(name) for name, _ in index.vectors]
        known = [piece for piece in found if piece is not None]
        if not known or len(known) < len(found):
            return None
        if any(isinstance(piece.width, str) for piece in known):
            return known[0] if len(set(known)) == 1 else None
        width = min(int(piece.width) for piece in known)
        phase = known[0].phase(width)
        for piece in known:
            if piece.phase(width) != phase or int(piece.width) % width:
                return None
        return Pieces(phase, width)

    def segments(self, index: Resolved, most: int) -> list[Segment] | None:
        """An index as a limited number of runs of evenly spaced lanes; None if it has none."""
        pieces, count = self.common_pieces(index), self.lanes.count
        if pieces is None or any(name not in self.bounds for name, _ in index.vectors):
            return None
        width = pieces.width
        number = 2 if isinstance(width, str) else (width + count - 2) // width + 1
        if number > most:
            return None
        rest = self.binary("urem", self.total(pieces.start), width)
        if isinstance(width, str):
            starts = [self.clamped(self.binary("sub", width, rest), 0, count)]
        else:
            rest = self.narrow(rest)
            starts = [self.narrow_difference(k * width, rest) for k in range(1, number)]
        return [
            Segment(self._run(segment, starts), self._moved(index, segment, starts))
            for segment in range(number)
        ]

    def _run(self, segment: int, starts: list[Coefficient]) -> str:
        """The lanes of a segment, as a mask."""
        mask = "true"
        if segment > 0:
            mask = self.compare("sge", self.iota(), self.splat(starts[segment - 1], "i32"), "i32")
        if segment < len(starts):
            below = self.compare("slt", self.iota(), self.splat(starts[segment], "i32"), "i32")
            mask = self.both(mask, below, self.lanes.count)
        return mask

    def _moved(self, index: Resolved, segment: int, starts: list[Coefficient]) -> Coefficient:
        """The sum of the vectors of an index in a segment."""
        count, code = self.lanes.count, self.code
        lane: Coefficient = 0
        if segment == len(starts):
            lane = count - 1
        elif segment > 0:
            lane = starts[segment - 1]
            if isinstance(lane, str):
                code.declare("declare i32 @llvm.umin.i32(i32, i32)")
                text = f"call i32 @llvm.umin.i32(i32 {lane}, i32 {count - 1})"
                lane = code.pure(text, lane)
            else:
                lane = min(lane, count - 1)
        total: Coefficient = 0
        for name, scale in index.vectors:
            text = f"extractelement <{count} x i32> {name}, i32 {lane}"
            element = code.pure(text, name, str(lane))
            element = code.pure(f"sext i32 {element} to i64", element)
            total = self.binary("add", total, self.binary("mul", element, scale))
        return total

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


def vector_literal(values: list[int], element: str) -> str:
    """A literal vector of integers."""
    if not any(values):
        return "zeroinitializer"
    return "<" + ", ".join(f"{element} {value}" for value in values) + ">"
