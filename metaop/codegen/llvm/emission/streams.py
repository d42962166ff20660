"""Nontemporal stores: what they need before the loop, and at the end of a kernel.

A processor collects such stores until a cache line is full, so only whole aligned vectors are
written in this way. Elements before the first aligned one in a vector loop use plain stores.
"""

from __future__ import annotations

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.lanes import NO_LANES, Lanes, Resolved
from metaop.codegen.llvm.emission.memory import MemoryWriter
from metaop.codegen.llvm.emission.scalars import Coefficient
from metaop.codegen.llvm.target import Target
from metaop.codegen.nest.ir import For, LoopIndex, Store, simple_statements

# Loops with fewer vectors use plain stores.
_FEWEST_VECTORS = 8


class StreamWriter:
    """Decides which stores of vector loops are nontemporal: those to `buffers`."""

    def __init__(
        self,
        code: Code,
        index: IndexWriter,
        memory: MemoryWriter,
        target: Target,
        buffers: frozenset[int],
    ) -> None:
        self.code = code
        self.index = index
        self.memory = memory
        self.target = target
        self.buffers = buffers

    def stores(self, loop: For, count: int) -> list[Store]:
        """The stores directly in a vector loop that fill whole vectors of neighbours.

        Of a buffer there are all stores in the loop or none. All lie whole vectors from the first.
        """
        is_short = isinstance(loop.extent, int) and loop.extent < _FEWEST_VECTORS * count
        if not self.buffers or is_short:
            return []
        stores = [one for one in simple_statements(loop.body) if isinstance(one, Store)]
        direct = [one for one in loop.body if isinstance(one, Store)]
        fitting = [one for one in direct if self._fits(one, loop, count)]
        others = {
            one.buffer
            for one in stores
            if one not in fitting or not _are_alike(one, fitting[0], count)
        }
        return [one for one in fitting if one.buffer not in others]

    def _fits(self, store: Store, loop: For, count: int) -> bool:
        if store.buffer not in self.buffers or store.conditions:
            return False
        if not all(isinstance(factor, LoopIndex) for factor, _ in store.offset.terms):
            return False
        along = [scale for factor, scale in store.offset.terms if factor == LoopIndex(loop.axis)]
        size = self.memory.buffers[store.buffer][1].itemsize
        return along == [1] and size * count == self.target.vector_bytes

    def first_aligned(
        self, stores: list[Store], loop: For, start: Coefficient, stop: Coefficient, count: int
    ) -> Coefficient:
        """The first iteration from which the vectors of all stores are aligned.

        It is `stop` if their buffers are misaligned by different amounts.
        """
        index, code = self.index, self.code
        index.enter(loop.axis, start, loop.extent)
        index.lanes = Lanes(loop.axis, start, count)
        places = [index.resolve(store.offset).uniform for store in stores]
        index.lanes = NO_LANES
        misplaced = [self._misplaced(store, place) for store, place in zip(stores, places)]
        first = misplaced[0]
        missing = index.binary("and", index.binary("sub", 0, first), self.target.vector_bytes - 1)
        size = self.memory.buffers[stores[0].buffer][1].itemsize
        head = index.binary("lshr", missing, size.bit_length() - 1)
        aligned = index.lesser(index.binary("add", start, head), stop)
        for other in misplaced[1:]:
            alike = code.pure(f"icmp eq i64 {first}, {other}", str(first), str(other))
            text = f"select i1 {alike}, i64 {aligned}, i64 {stop}"
            aligned = code.pure(text, alike, str(aligned), str(stop))
        return aligned

    def _misplaced(self, store: Store, place: Resolved) -> Coefficient:
        """The bytes by which an access exceeds an aligned address."""
        address = self.memory.address(store.buffer, place)
        number = self.code.pure(f"ptrtoint ptr {address} to i64", address)
        return self.index.binary("and", number, self.target.vector_bytes - 1)

    def finish(self) -> None:
        """Writes a fence, so that other threads see nontemporal stores like all others."""
        if self.buffers and self.target.has("sse"):
            self.code.declare("declare void @llvm.x86.sse.sfence()")
            self.code.line("call void @llvm.x86.sse.sfence()")


def _are_alike(store: Store, first: Store, count: int) -> bool:
    """Whether the vectors of two stores begin at the same iterations, if their buffers do so."""
    if store.offset.terms != first.offset.terms:
        return False
    here, there = store.offset.constant, first.offset.constant
    if isinstance(here, int) and isinstance(there, int):
        return (here - there) % count == 0
    return here is there
