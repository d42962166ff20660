"""Accumulators of loops: their start, how values are accumulated, and how lanes are combined."""

from __future__ import annotations

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.expression import ExpressionWriter
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.memory import MemoryWriter
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.nest.ir import Accumulate, Accumulator
from metaop.reduce.reducers import REDUCERS


class Accumulators:
    """Writes the operations on accumulators.

    `known` are those of the enclosing loops, `running` those of them that a vector loop carries
    from lane to lane.
    """

    def __init__(
        self, code: Code, index: IndexWriter, memory: MemoryWriter, expressions: ExpressionWriter
    ) -> None:
        self.code = code
        self.index = index
        self.memory = memory
        self.expressions = expressions
        self.known: dict[str, Accumulator] = {}
        self.running: frozenset[str] = frozenset()

    def accumulate(self, statement: Accumulate, copy: int) -> None:
        """Combines a value into an accumulator; masked-off lanes keep theirs."""
        bindings, name = self.index.bindings, statement.name
        old = bindings[name, copy]
        new, mask = self.expressions.value(statement.value, copy), self.index.lanes.mask
        if name in self.running and old.lanes > 1:
            bindings[name, copy] = self._run_on(name, old, new, mask)
            return
        # The new value first, so that work on it alone need not wait for the old one.
        new = self.combine(name, new, old)
        if mask is not None:
            new = self.code.select(self.code.value(mask, "i1", old.lanes), new, old)
        bindings[name, copy] = new

    def _run_on(self, name: str, old: Value, new: Value, mask: str | None) -> Value:
        """A prefix scan over the lanes, from the last lane of the vector before.

        It takes a logarithmic number of steps.
        """
        code, count = self.code, old.lanes
        nothing = self.identities([name], count)[name]
        new = self.expressions.splat(new, count)
        if mask is not None:
            new = code.select(code.value(mask, "i1", count), new, nothing)
        step = 1
        while step < count:
            # Lanes of the second operand are counted on from those of the first.
            order = [lane - step if lane >= step else count for lane in range(count)]
            with code.placed(code.level_among(new.text)):
                moved = code.shuffle(new, nothing, order)
            new = self.combine(name, moved, new)
            step *= 2
        return self.combine(name, new, self._last_lane(old, count))

    def _last_lane(self, value: Value, count: int) -> Value:
        """The value of the last lane, splatted."""
        code = self.code
        with code.placed(code.level_among(value.text)):
            return code.splat(code.extract(value, value.lanes - 1), count)

    def start(self, name: str, lanes: int) -> None:
        """Binds an accumulator at the start of its loop."""
        value = self.identities([name], lanes)[name]
        for copy in range(self.index.lanes.copies):
            self.index.bindings[name, copy] = value

    def identities(self, names: list[str], lanes: int) -> dict[str, Value]:
        """The initial values of accumulators."""
        result = {}
        for name in names:
            accumulator = self.known[name]
            identity = REDUCERS[accumulator.reducer].identity(accumulator.dtype)
            result[name] = self.memory.constant(identity, accumulator.dtype, lanes)
        return result

    def combine(self, name: str, left: Value, right: Value) -> Value:
        """Two values of an accumulator, combined."""
        return self.combined(self.known[name].reducer, left, right)

    def combined(self, reducer: str, left: Value, right: Value) -> Value:
        """Two values, combined by a reducer."""
        return self.expressions.apply(REDUCERS[reducer].combine, left, right)

    def across(self, partial: dict[str, Value]) -> dict[str, Value]:
        """The results across all lanes; a running result is that of the last lane."""
        return {
            name: self._last_lane(value, 1)
            if name in self.running
            else self.across_lanes(self.known[name].reducer, value)
            for name, value in partial.items()
        }

    def across_lanes(self, reducer: str, value: Value) -> Value:
        """All lanes combined, as a tree."""
        while value.lanes > 1:
            with self.code.placed(self.code.level_among(value.text)):
                halves = self.code.halves(value)
            value = self.combined(reducer, *halves)
        return value

    def tree(self, name: str, ended: dict[tuple[str, int], Value], copies: int) -> Value:
        """The combined results of the copies of a vector loop."""
        values = [ended[name, copy] for copy in range(copies)]
        while len(values) > 1:
            values = [self.combine(name, *values[k : k + 2]) for k in range(0, len(values), 2)]
        return values[0]
