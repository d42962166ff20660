"""Which statements access which buffers, and where the lanes of a row must synchronise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from metaop.codegen.nest import ir


def accesses(item: object) -> tuple[set[int], set[int]]:
    """The buffers that statements or expressions read, and those that they write."""
    reads: set[int] = set()
    writes: set[int] = set()
    _collect(item, reads, writes)
    return reads, writes


def loads(item: object) -> Iterator[ir.Load]:
    """All loads in statements or expressions."""
    if isinstance(item, ir.Load):
        yield item
    if isinstance(item, tuple):
        for part in item:
            yield from loads(part)


def _collect(item: object, reads: set[int], writes: set[int]) -> None:
    if isinstance(item, ir.Load):
        reads.add(item.buffer)
    elif isinstance(item, (ir.Store, ir.Update)):
        writes.add(item.buffer)
        if isinstance(item, ir.Update):
            reads.add(item.buffer)
    if isinstance(item, tuple):
        for part in item:
            _collect(part, reads, writes)


@dataclass
class Hazards:
    """The memory accesses of the lanes of a row since their last synchronisation.

    Buffers in `private` belong to one lane and need none. `sharing` pairs results with the operands
    that they may alias.
    """

    sharing: Sequence[tuple[int, int]] = ()
    private: set[int] = field(default_factory=set)
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)

    def must_wait(self, statement: ir.Statement) -> bool:
        """Whether a statement accesses what other lanes may still use; records its accesses."""
        reads, writes = accesses(statement)
        conflict = (reads & self.writes) | (writes & (self.reads | self.writes))
        if not isinstance(statement, ir.For):
            # The first lane writes what all have read; in a loop, each lane has its own elements.
            taken = {operand for result, operand in self.sharing if result in writes}
            conflict |= taken & self.reads
        waits = bool(conflict - self.private)
        if waits:
            self.clear()
        self.add(statement)
        return waits

    def add(self, statement: object) -> None:
        """Records the accesses of a statement, or of a whole body before its loop repeats."""
        reads, writes = accesses(statement)
        self.reads |= reads
        self.writes |= writes

    def clear(self) -> None:
        """Records that all lanes have synchronised."""
        self.reads.clear()
        self.writes.clear()
