"""The state of a translation: the statements so far, the names, and the memories.

Every access is proved to be in bounds, or checked when the kernel runs.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from metaop.codegen.nest import ir
from metaop.kernels.source import Source
from metaop.kernels.values import (
    Index,
    Test,
    Value,
    as_value,
    constant,
    converted,
    plus,
    times,
    truth,
    variable,
)
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType


@dataclass(eq=False)
class Buffer:
    """A memory; `position` counts inputs, then results, then shared memories.

    `space` is "global", "shared" or "scratch"; scratch memory has a negative position.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    space: str
    position: int
    is_read_only: bool = False
    # Whether it is a Python float that was passed as an argument.
    is_number: bool = False


class Memory(NamedTuple):
    """A buffer or a part of one: element (i, j, …) lies at `offset + i·strides[0] + …`.

    `conditions` keep accesses inside the buffer.
    """

    buffer: Buffer
    offset: Index
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    conditions: tuple[ir.Condition, ...] = ()


def whole(buffer: Buffer) -> Memory:
    """All of a buffer."""
    strides = [1]
    for extent in reversed(buffer.shape[1:]):
        strides.append(strides[-1] * extent)
    own = tuple(reversed(strides))[: len(buffer.shape)]
    return Memory(buffer, constant(0), buffer.shape, own)


class Place(NamedTuple):
    """One element: its offset, and the conditions under which it may be accessed."""

    buffer: Buffer
    offset: ir.Sum
    conditions: tuple[ir.Condition, ...]


class Memories:
    """The state of a translation, and the statements that touch memory.

    `frames` are the open bodies, innermost last; `active` the conditions under which the current
    line runs; `lost` says why a name no longer has a value.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.frames: list[list[ir.Statement]] = [[]]
        self.checks: list[dict[Any, str]] = [{}]
        self.active: tuple[ir.Condition, ...] = ()
        self.names: dict[str, Any] = {}
        self.lost: dict[str, str] = {}
        self.in_lanes = False
        self.allocated: list[ir.Alloc] = []
        # The global and shared buffers of the current launch, with the kinds of accesses.
        self.used: dict[Buffer, set[str]] = {}
        self._count = itertools.count(1)

    def error(self, message: str, node: ast.AST, fix: str) -> Exception:
        """An error at the line of a node."""
        return self.source.error(message, node, fix)

    # --- statements and names ---------------------------------------------------------------------

    def fresh(self, prefix: str) -> str:
        """A unique name."""
        return f"{prefix}{next(self._count)}"

    def emit(self, statement: ir.Statement) -> None:
        """Appends a statement to the innermost body."""
        self.frames[-1].append(statement)

    @contextmanager
    def body(self) -> Iterator[list[ir.Statement]]:
        """Collects the statements inside in a separate body."""
        self.frames.append([])
        self.checks.append({})
        try:
            yield self.frames[-1]
        finally:
            self.frames.pop()
            self.checks.pop()

    def bound(self, value: Value) -> Value:
        """Binds the value to a name, so that it is computed once, here."""
        if isinstance(value.expr, (ir.Number, ir.Name)):
            return value
        name = self.fresh("v")
        self.emit(ir.Let(name, value.expr))
        return value._replace(expr=ir.Name(name, value.dtype))

    def index(self, item: Any, node: ast.AST) -> Index:
        """A number as an index."""
        if isinstance(item, Index):
            return item
        if isinstance(item, Value) and item.dtype.kind == "int":
            name = self.fresh("n")
            self.emit(ir.Let(name, converted(item, dtypes.int64)))
            return variable(ir.ValueIndex(name))
        raise self.error("an index is an integer", node, "convert it: cast(value, metaop.int64)")

    # --- conditions -------------------------------------------------------------------------------

    @contextmanager
    def under(self, test: Any, holds: bool = True) -> Iterator[None]:
        """Makes the statements inside run only if a test holds, or only if it does not."""
        before = self.active
        if isinstance(test, Test) and holds:
            added = test.conditions
        else:
            flag = self.fresh("n")
            self.emit(ir.Let(flag, converted(truth(as_value(test)), dtypes.int64)))
            factor = ir.ValueIndex(flag)
            # 1 - flag is 0, or flag is 0.
            index = ir.Sum(((factor, -1),), 1) if holds else ir.Sum(((factor, 1),), 0)
            added = (ir.InBounds(index, 1),)
        self.active = (*before, *(one for one in added if one not in before))
        try:
            yield
        finally:
            self.active = before

    def range_of(self, index: Index) -> tuple[int, int]:
        """The range of an index under the active conditions."""
        low, high = index.low, index.high
        terms = dict(index.terms)
        for condition in self.active:
            if not isinstance(condition, ir.InBounds):
                continue
            tested = Index(condition.index, 0, 0)
            last = condition.extent - 1  # type: ignore[operator]
            if dict(tested.terms) == terms:
                moved = index.start - tested.start
                low, high = max(low, moved), min(high, last + moved)
            elif {factor: -scale for factor, scale in tested.terms} == terms:
                moved = index.start + tested.start
                low, high = max(low, moved - last), min(high, moved)
        return low, high

    # --- accesses ---------------------------------------------------------------------------------

    def place(self, memory: Memory, indices: Sequence[Index], node: ast.AST) -> Place:
        """One element of a memory."""
        part = self.part(memory, indices, node)
        return Place(part.buffer, part.offset.sum, part.conditions)

    def part(self, memory: Memory, indices: Sequence[Index], node: ast.AST) -> Memory:
        """The part of a memory with its first dimensions fixed."""
        offset, conditions = memory.offset, memory.conditions
        for index, extent, stride in zip(indices, memory.shape, memory.strides):
            inside, added = self._inside(index, extent, memory.buffer.name, node)
            offset = plus(offset, times(inside, stride))
            conditions += tuple(one for one in added if one not in conditions)
        taken = len(indices)
        return Memory(
            memory.buffer, offset, memory.shape[taken:], memory.strides[taken:], conditions
        )

    def _inside(
        self, index: Index, extent: int, name: str, node: ast.AST
    ) -> tuple[Index, tuple[ir.Condition, ...]]:
        """An index that is inside its dimension under the conditions returned with it."""
        if index.low >= 0 and index.high < extent:
            return index, ()
        low, high = self.range_of(index)
        if low >= 0 and high < extent:
            return index, self.active
        if not self.active and (high < 0 or low >= extent):
            found = str(index.start) if index.constant is not None else f"{low} … {high}"
            raise self.error(
                f"index {found} is out of range for a dimension of {name} of size {extent}",
                node,
                f"stay within 0 … {extent - 1}; indices do not count from the end",
            )
        checked = self._checked(index, extent)
        if _has_values(index.sum):
            return variable(ir.ValueIndex(checked), 0, extent - 1), ()
        return index, (ir.InBounds(index.sum, extent),)

    def _checked(self, index: Index, extent: int) -> str:
        """The name of an index that the kernel checks when it runs."""
        key = (index.sum, extent, self.active)
        for known in self.checks:
            if key in known:
                return known[key]
        name = self.checks[-1][key] = self.fresh("c")
        self.emit(ir.CheckedIndex(name, ir.IndexValue(index.sum), extent, 0, self.active))
        return name

    def number(self, buffer: Buffer, access: str) -> int:
        """The number of a buffer in the current launch."""
        if buffer.space == "scratch":
            return buffer.position
        self.used.setdefault(buffer, set()).add(access)
        return list(self.used).index(buffer)

    def load(self, place: Place) -> Value:
        """The element at a place; 0 where it must not be accessed."""
        dtype = place.buffer.dtype
        number = self.number(place.buffer, "read")
        return Value(ir.Load(number, place.offset, dtype, place.conditions), dtype)

    def store(self, place: Place, item: Any, node: ast.AST) -> None:
        """Writes an element."""
        self._check_writable(place, node)
        value = converted(as_value(item), place.buffer.dtype)
        number = self.number(place.buffer, "write")
        self.emit(ir.Store(number, place.offset, value, self._when(place)))

    def update(self, place: Place, reducer: str, item: Any, node: ast.AST) -> None:
        """Combines a value into an element atomically."""
        self._check_writable(place, node)
        value = converted(as_value(item), place.buffer.dtype)
        for access in ("read", "write"):
            number = self.number(place.buffer, access)
        is_atomic = place.buffer.space != "scratch"
        conditions = self._when(place)
        self.emit(ir.Update(number, place.offset, reducer, value, conditions, is_atomic))

    def _when(self, place: Place) -> tuple[ir.Condition, ...]:
        return tuple(dict.fromkeys((*place.conditions, *self.active)))

    def _check_writable(self, place: Place, node: ast.AST) -> None:
        if place.buffer.is_read_only:
            raise self.error(
                f"{place.buffer.name} is an input, and inputs are never changed",
                node,
                "write to an output, or copy the input to scratch memory first",
            )

    def allocate(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Memory:
        """Allocates memory private to a task."""
        size = 1
        for extent in shape:
            size *= extent
        buffer = Buffer(name, dtype, shape, "scratch", -len(self.allocated) - 1)
        self.allocated.append(ir.Alloc(buffer.position, max(size, 1), dtype))
        return whole(buffer)


def _has_values(item: object) -> bool:
    """Whether an index depends on a number known only when the kernel runs."""
    if isinstance(item, ir.ValueIndex):
        return True
    return isinstance(item, tuple) and any(map(_has_values, item))
