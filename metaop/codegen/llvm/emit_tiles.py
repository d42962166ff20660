"""Tiles: loads whose lanes lie apart, but whose elements along a serial loop are neighbours.

`vector for l { serial for k { … x[l * stride + k] … } }` would gather one element for each lane
in every iteration. Instead a square tile, as many iterations as there are lanes, is loaded with
one vector along the serial axis for each lane, and transposed in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from metaop.codegen.llvm.emit_code import Code
from metaop.codegen.llvm.emit_index import IndexWriter
from metaop.codegen.llvm.emit_memory import MemoryWriter
from metaop.codegen.llvm.emit_scalars import Coefficient
from metaop.codegen.llvm.emit_survey import walk
from metaop.codegen.llvm.value import Value
from metaop.codegen.loop_nest import (
    Accumulate,
    CheckedIndex,
    For,
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
)

# Shorter serial loops would leave most of a tile unused.
_SHORTEST = 4
_BLOCK_BYTES = 16


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
        """Whether the lanes of a load lie apart while iterations of the loop are neighbours."""
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
        """Whether a value is not known before the loop, or differs among lanes."""
        found = self.index.bindings.get((factor.name, 0))
        return found is None or found.lanes > 1

    # --- tiles ------------------------------------------------------------------------------

    def read(
        self, load: Load, copy: int, axis: str, start: Coefficient, stop: Coefficient | None
    ) -> list[Value]:
        """The values of a load in as many iterations from `start` on as there are lanes.

        Iterations from `stop` on, unless it is None, are not read.
        """
        lanes = self.index.lanes
        first = self.index.binary("add", lanes.base, copy * lanes.count)
        present = None if stop is None else self.index.lanes_below(start, stop)

        def row(lane: Coefficient) -> Value:
            exists = None if lanes.mask is None else self._exists(lanes.mask, lane)
            mask = self.memory.lane_mask(exists, present)
            place = self.index.binary("add", first, lane)
            with self.index.along(axis, start, place, mask.text if mask else None):
                value = self.code.splat(self.memory.load(load, 0), lanes.count)
            return self.code.to_type(value, "i8", False) if value.type == "i1" else value

        is_plain = not (load.conditions or present or lanes.mask or any(_nested_terms(load.offset)))
        rows = [row(lane) for lane in range(lanes.count)] if is_plain else self._row_by_row(row)
        columns = transposed(self.code, rows)
        if load.dtype.kind == "bool":
            return [column.differs(0) for column in columns]
        return columns

    def _row_by_row(self, row: Callable[[Coefficient], Value]) -> list[Value]:
        """The rows of a tile, read in a loop because each takes many instructions."""
        code, count = self.code, self.index.lanes.count
        found: list[Value] = []

        def once(lane: Coefficient, _: list[Value]) -> list[Value]:
            value = row(lane)
            found.append(value)
            place = code.reserve(count, value.full_type)
            rooms.append(place)
            code.store(value, code.value(self._slot(place, lane, value), "ptr"), _align(value))
            return []

        rooms: list[str] = []
        self.loop(0, count, 1, [], frozenset(), once)
        return [self.fetch(rooms[0], lane, found[0]) for lane in range(count)]

    def _exists(self, mask: str, lane: Coefficient) -> str:
        """One bit of a mask."""
        code, count = self.code, self.index.lanes.count
        bits = code.pure(f"bitcast <{count} x i1> {mask} to i{count}", mask)
        wide = code.pure(f"zext i{count} {bits} to i64", bits) if count < 64 else bits
        moved = code.pure(f"lshr i64 {wide}, {lane}", wide, str(lane))
        return code.pure(f"trunc i64 {moved} to i1", moved)

    def keep(self, columns: Sequence[Value]) -> str:
        """Puts the values of a tile into memory, from where `fetch` takes them one by one."""
        code = self.code
        place = code.reserve(len(columns), columns[0].full_type)
        for number, column in enumerate(columns):
            code.store(column, code.value(self._slot(place, number, column), "ptr"), _align(column))
        return place

    def fetch(self, place: str, number: Coefficient, like: Value) -> Value:
        """One of the values that were kept."""
        slot = self._slot(place, number, like)
        text = self.code.here(f"load {like.full_type}, ptr {slot}, align {_align(like)}")
        return self.code.like(like, text)

    def _slot(self, place: str, number: Coefficient, like: Value) -> str:
        text = f"getelementptr {like.full_type}, ptr {place}, i64 {number}"
        return self.code.pure(text, str(number))


def _align(x: Value) -> int:
    return max(1, x.bits // 8)


def _is_short(extent: Integer | ValueIndex) -> bool:
    return isinstance(extent, int) and extent < _SHORTEST


def _loads(loop: For) -> Iterator[Load]:
    """The loads of the statements directly in a loop."""
    seen: set[int] = set()
    for statement in loop.body:
        if isinstance(statement, (Let, Store, Update, Accumulate, CheckedIndex)):
            for part in walk(statement.value, seen):
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


# --- transposition in registers -----------------------------------------------------------------


def transposed(code: Code, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square of as many rows as they have lanes, a power of two.

    Neighbouring rows are interleaved inside blocks of 16 bytes first, because processors do that
    in one cheap instruction, then whole blocks are brought together.
    """
    count = len(rows)
    block = max(1, min(_BLOCK_BYTES * 8 // rows[0].bits, count))
    groups = [[row] for row in rows]
    unit = 1
    while unit < block:
        groups = [
            [
                code.shuffle(left, right, _interleaved(count, block, unit, high))
                for left, right in zip(groups[k], groups[k + 1])
                for high in (0, 1)
            ]
            for k in range(0, len(groups), 2)
        ]
        unit *= 2
    # A group now has, for each position in a block, a vector of the columns `block` apart.
    found = [{(place, 0): x for place, x in enumerate(group)} for group in groups]
    step = 1
    while len(found) > 1:
        found = [
            {
                (place, first + odd * step): code.shuffle(
                    left[place, first], right[place, first], _every_other(count, block, odd)
                )
                for place, first in left
                for odd in (0, 1)
            }
            for left, right in zip(found[::2], found[1::2])
        ]
        step *= 2
    columns = found[0]
    return [columns[place, first] for first in range(count // block) for place in range(block)]


def _interleaved(count: int, block: int, unit: int, high: int) -> list[int]:
    """Runs of `unit` lanes, alternately of two vectors, from one half of every block."""
    start = high * (block // 2)
    return [
        source * count + first + start + run + lane
        for first in range(0, count, block)
        for run in range(0, block // 2, unit)
        for source in (0, 1)
        for lane in range(unit)
    ]


def _every_other(count: int, block: int, odd: int) -> list[int]:
    """The even or the odd blocks of two vectors."""
    starts = range(odd * block, 2 * count, 2 * block)
    return [start + lane for start in starts for lane in range(block)]
