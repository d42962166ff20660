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


def offsets(item: object, buffer: int) -> Iterator[ir.Sum]:
    """The offsets of all accesses to a buffer."""
    if isinstance(item, (ir.Load, ir.Store, ir.Update, ir.SharedPanel)) and item.buffer == buffer:
        yield item.offset
    if isinstance(item, tuple):
        for part in item:
            yield from offsets(part, buffer)


def _collect(item: object, reads: set[int], writes: set[int]) -> None:
    if isinstance(item, ir.Load):
        reads.add(item.buffer)
    elif isinstance(item, (ir.Store, ir.Update)):
        writes.add(item.buffer)
        if isinstance(item, ir.Update):
            reads.add(item.buffer)
    elif isinstance(item, ir.WarpProduct):
        reads |= {item.left.buffer, item.right.buffer, item.target}
        writes.add(item.target)
    if isinstance(item, tuple):
        for part in item:
            _collect(part, reads, writes)


@dataclass
class Hazards:
    """The memory accesses of the lanes of a row since their last synchronisation.

    Buffers in `private` belong to one lane and need none. `sizes` are those of shared memory.
    `sharing` pairs results with the operands that they may alias.
    """

    sharing: Sequence[tuple[int, int]] = ()
    private: set[int] = field(default_factory=set)
    sizes: dict[int, ir.Integer] = field(default_factory=dict)
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)

    def must_wait(self, statement: ir.Statement) -> bool:
        """Whether a statement accesses what other lanes may still use; records its accesses."""
        reads, writes = accesses(statement)
        conflict = (reads & self.writes) | (writes & self.reads)
        # An element of a result has one value, no matter who writes it last.
        conflict |= {buffer for buffer in writes & self.writes if buffer < 0}
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

    def enter(self, loop: ir.For) -> bool:
        """Records the accesses of one turn of a loop before the next one begins.

        A buffer may have slots that turns use one after another. The next turn uses another slot
        than this one; before it uses the slot of an earlier turn, this one has synchronised. So
        turns need no synchronisation for it, but the first one may: then the result is True.
        """
        reads, writes = accesses(loop.body)
        rotating = {buffer for buffer in reads & writes if self._rotates(buffer, loop)}
        waits = bool(rotating & (self.reads | self.writes))
        if waits:
            self.clear()
        self.reads |= reads - rotating
        self.writes |= writes - rotating
        return waits

    def _rotates(self, buffer: int, loop: ir.For) -> bool:
        """Whether turns use slots one after another, and synchronise between writing and reading.

        They do if no statement does both.
        """
        size = self.sizes.get(buffer)
        for statement in loop.body:
            reads, writes = accesses(statement)
            if buffer in reads & writes:
                return False
        return isinstance(size, int) and all(
            any(_is_slot(factor, coefficient, loop, size) for factor, coefficient in one.terms)
            for one in offsets(loop.body, buffer)
        )

    def clear(self) -> None:
        """Records that all lanes have synchronised."""
        self.reads.clear()
        self.writes.clear()


def _is_slot(factor: ir.Factor, coefficient: ir.Integer, loop: ir.For, size: int) -> bool:
    """Whether a term is the start of a slot, of which a buffer has several in turn or one per turn.

    An access stays in its slot, because one in the last slot would leave the buffer otherwise.
    """
    turn, slots = ir.LoopIndex(loop.axis), loop.extent
    if isinstance(factor, ir.RemainderIndex) and factor.dividend == ir.Sum(((turn, 1),), 0):
        slots = factor.divisor
    elif factor != turn:
        return False
    if not isinstance(coefficient, int) or not isinstance(slots, int):
        return False
    return slots > 1 and slots * coefficient == size
