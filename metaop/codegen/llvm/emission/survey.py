"""A survey of the body of a loop: buffers written, accumulators, types, amount of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from metaop.codegen.nest.ir import (
    Accumulate,
    Apply,
    CheckedIndex,
    Choose,
    Condition,
    Expr,
    For,
    ForeignCall,
    Let,
    Load,
    MicroKernel,
    QuotientIndex,
    RemainderIndex,
    Statement,
    Store,
    Sum,
    Update,
    ValueIndex,
    parts_of,
)
from metaop.elementwise.functions import FUNCTIONS
from metaop.unified_graph.dtype import DType


class Survey:
    """The facts about one body, including its inner loops."""

    def __init__(self, body: Iterable[Statement], buffers: dict[int, tuple[str, DType]]) -> None:
        self.written: set[int] = set()
        self.accumulated: dict[str, None] = {}
        self.work = 0
        self.weights: Counter[int] = Counter()
        self.inner_accumulators = 0
        self.has_serial_functions = self.has_loops = False
        self.conditions: dict[Condition, None] = {}
        self.divided: dict[QuotientIndex | RemainderIndex, None] = {}
        self._buffers = buffers
        self._seen: set[int] = set()
        self._visit(body)

    def _visit(self, body: Iterable[Statement]) -> None:
        for statement in body:
            if isinstance(statement, For):
                self.has_loops = True
                self.inner_accumulators += len(statement.accumulators)
                self._visit(statement.body)
            elif isinstance(statement, MicroKernel):
                self.written.add(statement.target)
            elif isinstance(statement, ForeignCall):
                self.written.update(statement.buffers)
            else:
                self._simple(statement)

    def _simple(self, statement: Statement) -> None:
        if isinstance(statement, (Store, Update)):
            self._index(statement.offset)
            self.written.add(statement.buffer)
            self.weights[self._buffers[statement.buffer][1].itemsize] += 1
        elif isinstance(statement, Accumulate):
            self.accumulated[statement.name] = None
        if isinstance(statement, (Store, Update, Accumulate, Let, CheckedIndex)):
            for part in parts_of(statement.value, self._seen):
                self.work += 1
                if isinstance(part, Apply):
                    self.has_serial_functions |= FUNCTIONS[part.function].is_serial
                if isinstance(part, Load):
                    self._index(part.offset)
                if isinstance(part, (Load, Choose)):
                    self.conditions.update(dict.fromkeys(part.conditions))
                if isinstance(part, (Load, Apply)) and part.dtype.kind != "bool":
                    self.weights[part.dtype.itemsize] += 1

    def _index(self, index: Sum) -> bool:
        """Collects what is divided; returns whether an index depends on loops alone."""
        every = True
        for factor, _ in index.terms:
            is_known = not isinstance(factor, ValueIndex)
            if isinstance(factor, (QuotientIndex, RemainderIndex)):
                is_known = self._index(factor.dividend)
                if is_known:
                    self.divided[factor] = None
            every = every and is_known
        return every

    @property
    def element_bytes(self) -> int:
        """The element size for which vector registers are filled: the most frequent one.

        Among equally frequent ones it is the largest below 8 bytes: vectors of twice the length are
        cheap to split, and 8-byte lanes are often integers that are computed in 32 bits.
        """
        if not self.weights:
            return 1
        return max(self.weights, key=lambda size: (self.weights[size], size < 8, size))


def loaded_buffers(expr: Expr) -> set[int]:
    """The buffers that an expression reads."""
    return {part.buffer for part in parts_of(expr) if isinstance(part, Load)}
