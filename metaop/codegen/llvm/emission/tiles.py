"""Tiles: loads that are strided across lanes, but contiguous along a serial loop.

`vector for l { serial for k { … x[l * stride + k] … } }` would gather one element per lane in every
iteration. Instead, a square tile, with as many iterations as lanes, is loaded with one vector per
lane along the serial axis, and transposed into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.memory import MemoryWriter, storage_type
from metaop.codegen.llvm.emission.scalars import Coefficient
from metaop.codegen.llvm.instructions.conversion import compute_type
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.llvm.transposition import symbol_for
from metaop.codegen.nest.ir import (
    Accumulate,
    CheckedIndex,
    Condition,
    For,
    InBounds,
    Integer,
    Let,
    Load,
    LoopIndex,
    QuotientIndex,
    RemainderIndex,
    Store,
    Sum,
    Update,
    ValueIndex,
    parts_of,
)

# Shorter serial loops would leave most of a tile unused.
_SHORTEST = 4


@dataclass(frozen=True)
class Tile:
    """The values of a load in memory, one iteration of the serial loop after another.

    `like` is a vector of the same kind; booleans are stored as numbers, nonzero if true.
    """

    place: str
    like: Value
    is_bool: bool


class Span(NamedTuple):
    """The iterations of a tile: from `start` on as many as there are lanes, but all below `stop`.

    `is_whole` says whether none of them reaches `stop`; None stands for what is not known.
    """

    start: Coefficient
    stop: Coefficient
    is_whole: str | None = "true"


class _Rows(NamedTuple):
    """A tile before it is transposed: `number` vectors of one kind, `step` bytes apart."""

    address: str
    step: Coefficient
    like: Value
    number: int


class TileWriter:
    """Finds the loads of serial loops that are worth tiles, and writes the tiles."""

    def __init__(
        self,
        code: Code,
        index: IndexWriter,
        memory: MemoryWriter,
        loop: Callable[..., list[Value]],
    ) -> None:
        self.code = code
        self.index = index
        self.memory = memory
        self.loop = loop

    # --- which loads ------------------------------------------------------------------------

    def wanted(self, loop: For, written: Iterable[int]) -> list[Load]:
        """The loads of a serial loop, inside a vector loop, that should come from tiles."""
        lanes = self.index.lanes
        if lanes.count == 1 or loop.kind != "serial" or _is_short(loop.extent):
            return []
        untouched = [x for x in _loads(loop) if x.buffer not in written]
        return [x for x in untouched if self._is_apart(x, loop.axis)]

    def _is_apart(self, load: Load, axis: str) -> bool:
        """Whether a load is strided across lanes but contiguous along the loop."""
        lanes, memory = self.index.lanes, self.memory
        every = [load.offset, *(condition.index for condition in load.conditions)]
        terms = [term for part in every for term in _all_terms(part)]
        if any(isinstance(factor, ValueIndex) and self._changes(factor) for factor, _ in terms):
            return False
        along = [c for factor, c in load.offset.terms if factor == LoopIndex(axis)]
        nested = any(factor == LoopIndex(axis) for factor, _ in _nested_terms(load.offset))
        near = len(along) == 1 and memory.is_near(self.index.integer(along[0]))
        if not (near or nested) or not _mentions(load.offset, lanes.axis):
            return False
        if (load.conditions or nested or lanes.mask) and not memory.has_masks(load.dtype):
            return False
        self.index.loops[axis] = 0
        here = self.index.resolve(load.offset)
        if not here.varies or (here.lane in (1, -1) and not here.vectors):
            return False
        if memory.segments(load.dtype, here) is not None:
            return False
        with self.index.along(axis, 0, lanes.base):
            there = self.index.resolve(load.offset)
            if there.lane == 1 and not there.vectors:
                return True
            return memory.segments(load.dtype, there) is not None

    def _changes(self, factor: ValueIndex) -> bool:
        """Whether a value changes in the loop or varies between lanes."""
        found = self.index.bindings.get((factor.name, 0))
        return found is None or found.lanes > 1

    # --- tiles ------------------------------------------------------------------------------

    def read(self, load: Load, copy: int, axis: str, span: Span) -> Tile:
        """The values of a load in a tile of iterations."""
        lanes, code = self.index.lanes, self.code
        start, stop, is_whole = span
        first = self.index.binary("add", lanes.base, copy * lanes.count)
        present = None if is_whole == "true" else self.index.lanes_below(start, stop)

        def row(lane: Coefficient) -> Value:
            exists = None if lanes.mask is None else self._exists(lanes.mask, lane)
            mask = self.memory.lane_mask(exists, present)
            place = self.index.binary("add", first, lane)
            with self.index.along(axis, start, place, mask.text if mask else None):
                value = self.code.splat(self.memory.load(load, 0), lanes.count)
            return self.code.to_type(value, "i8", False) if value.type == "i1" else value

        rows = inside = None
        if is_whole is not None and not lanes.mask:
            rows = self._where_they_lie(load, axis, start, first)
            inside = self._all_exist(load, axis, start, first, rows.number) if rows else None
        if rows is None or inside is None or is_whole is None:
            found = self._row_by_row(row)
            self._transpose(found, found.address)
            return Tile(found.address, found.like, load.dtype.kind == "bool")
        place = code.reserve(lanes.count, rows.like.full_type)
        inside = self._all([x for x in (is_whole, inside) if x != "true"])
        if inside == "true":
            self._transpose(rows, place)
        else:
            code.either(
                inside,
                lambda: self._transpose(rows, place),
                lambda: self._transpose(self._row_by_row(row), place),
            )
        return Tile(place, rows.like, load.dtype.kind == "bool")

    def _transpose(self, rows: _Rows, place: str) -> None:
        code, symbol = self.code, symbol_for(rows.like.type, self.index.lanes.count, rows.number)
        code.declare(f"declare void @{symbol}(ptr, i64, ptr)")
        code.line(f"call void @{symbol}(ptr {rows.address}, i64 {rows.step}, ptr {place})")

    def _all_exist(
        self, load: Load, axis: str, start: Coefficient, first: Coefficient, rows: int
    ) -> str | None:
        """Whether the conditions of a load hold in the whole tile; None if that is not simple.

        Bounds of a sum hold between two iterations and two lanes if they hold in all corners.
        """
        across = self.index.lanes.axis
        if not all(isinstance(one, InBounds) for one in load.conditions):
            return None
        found: dict[str, None] = {}
        for condition in load.conditions:
            if {LoopIndex(across), LoopIndex(axis)} & {
                factor for factor, _ in _nested_terms(condition.index)
            }:
                return None
            for iteration in (start, self.index.binary("add", start, self.index.lanes.count - 1)):
                for lane in (first, self.index.binary("add", first, rows - 1)):
                    holds = self._holds(condition, {axis: iteration, across: lane})
                    if holds is None:
                        return None
                    found[holds] = None
        found.pop("true", None)
        return self._all(list(found))

    def _holds(self, condition: Condition, places: dict[str, Coefficient]) -> str | None:
        """Whether a condition holds at a place of a tile; None if that differs between lanes."""
        with self.index.at(places):
            scalar, varying = self.index.conditions((condition,), 0)
        return None if varying is not None else scalar or "true"

    def _all(self, conditions: list[str]) -> str:
        """The conjunction of conditions."""
        if not conditions:
            return "true"
        first, *others = conditions
        for other in others:
            first = self.code.pure(f"and i1 {first}, {other}", first, other)
        return first

    def _existing(self, load: Load, axis: str, start: Coefficient, first: Coefficient) -> int:
        """The number of lanes, from the first one on, behind which no lane exists for certain."""
        count, across = self.index.lanes.count, self.index.lanes.axis
        if not isinstance(first, int):
            return count
        while count > 1 and any(
            self._holds(one, {axis: start, across: first + count - 1}) == "false"
            for one in load.conditions
            if isinstance(one, InBounds)
        ):
            count -= 1
        return count

    def _where_they_lie(
        self, load: Load, axis: str, start: Coefficient, first: Coefficient
    ) -> _Rows | None:
        """The rows of a tile in the buffer itself, if they are evenly spaced runs of it."""
        element = storage_type(load.dtype)
        if element != compute_type(load.dtype):
            return None
        across = self.index.resolve(load.offset)
        with self.index.along(axis, start, first):
            along = self.index.resolve(load.offset)
        if across.vectors or along.vectors or along.lane != 1:
            return None
        address = self.memory.address(load.buffer, along.uniform)
        step = self.index.binary("mul", across.lane, load.dtype.itemsize)
        like = self.memory.constant(0, load.dtype, self.index.lanes.count)
        return _Rows(address, step, like, self._existing(load, axis, start, first))

    def _row_by_row(self, row: Callable[[Coefficient], Value]) -> _Rows:
        """The rows of a tile, copied to memory of their own by a loop."""
        code, count = self.code, self.index.lanes.count
        found: list[_Rows] = []

        def once(lane: Coefficient, _: list[Value]) -> list[Value]:
            value = row(lane)
            place = code.reserve(count, value.full_type)
            found.append(_Rows(place, _bytes(value), value, count))
            code.store(value, code.value(self._slot(place, lane, value), "ptr"), _bytes(value))
            return []

        self.loop(0, count, 1, [], frozenset(), once)
        return found[0]

    def _exists(self, mask: str, lane: Coefficient) -> str:
        """One bit of a mask."""
        code, count = self.code, self.index.lanes.count
        bits = code.pure(f"bitcast <{count} x i1> {mask} to i{count}", mask)
        wide = code.pure(f"zext i{count} {bits} to i64", bits) if count < 64 else bits
        moved = code.pure(f"lshr i64 {wide}, {lane}", wide, str(lane))
        return code.pure(f"trunc i64 {moved} to i1", moved)

    def column(self, tile: Tile, number: Coefficient) -> Value:
        """The values of one iteration."""
        like = tile.like
        slot = self._slot(tile.place, number, like)
        text = self.code.here(f"load {like.full_type}, ptr {slot}, align {_bytes(like)}")
        column = self.code.like(like, text)
        return column.differs(0) if tile.is_bool else column

    def _slot(self, place: str, number: Coefficient, like: Value) -> str:
        text = f"getelementptr {like.full_type}, ptr {place}, i64 {number}"
        return self.code.pure(text, str(number))


def _bytes(x: Value) -> int:
    return x.lanes * x.bits // 8


def _is_short(extent: Integer | ValueIndex) -> bool:
    return isinstance(extent, int) and extent < _SHORTEST


def _loads(loop: For) -> Iterator[Load]:
    """The loads of the statements directly in a loop."""
    seen: set[int] = set()
    for statement in loop.body:
        if isinstance(statement, (Let, Store, Update, Accumulate, CheckedIndex)):
            for part in parts_of(statement.value, seen):
                if isinstance(part, Load):
                    yield part


def _nested_terms(index: Sum) -> Iterator[tuple]:
    """The terms inside the quotients and remainders of a sum."""
    for factor, _ in index.terms:
        if isinstance(factor, (QuotientIndex, RemainderIndex)):
            yield from _all_terms(factor.dividend)


def _all_terms(index: Sum) -> Iterator[tuple]:
    yield from index.terms
    yield from _nested_terms(index)


def _mentions(index: Sum, axis: str) -> bool:
    return any(factor == LoopIndex(axis) for factor, _ in _all_terms(index))
