"""Scratch memory of a task: small buffers on the stack, large ones in one block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.memory import MemoryWriter, storage_type
from metaop.codegen.llvm.emission.scalars import Coefficient
from metaop.codegen.llvm.scratch_blocks import SYMBOL
from metaop.codegen.nest.ir import Alloc, Statement, simple_statements

# The most bytes of stack that one kernel may use.
_STACK_BYTES = 64 << 10
_ALIGNMENT = 64
# The error code for exhausted memory; the requested bytes are reported as the value.
OUT_OF_MEMORY = 2
# Where callers give kernels their scratch memory, `ptr SCRATCH(ptr error, i64 bytes)` tells of it.
SCRATCH = "metaop_scratch"


class Scratch:
    """Acquires all scratch buffers at the start of a kernel and releases them at its end.

    Large buffers are in a block that kernels use in turn, or in one of the caller's if `given`.
    """

    def __init__(
        self, code: Code, index: IndexWriter, memory: MemoryWriter, given: bool = False
    ) -> None:
        self.code = code
        self.index = index
        self.memory = memory
        self._given = given
        self._owned: str | None = None
        self._leave = ""

    def acquire(self, body: Iterable[Statement]) -> None:
        """Assigns an address to every Alloc of the kernel."""
        stack = 0
        large: list[tuple[Alloc, Coefficient]] = []
        for alloc in _allocs(body):
            size = self._bytes(alloc)
            self.memory.buffers[alloc.buffer] = (f"%b{alloc.buffer}", alloc.dtype)
            if isinstance(size, int) and stack + size <= _STACK_BYTES:
                stack += size
                count = max(size // alloc.dtype.itemsize, 1)
                kind = f"[{count} x {storage_type(alloc.dtype)}]"
                self.code.line(f"%b{alloc.buffer} = alloca {kind}, align {_ALIGNMENT}")
            else:
                large.append((alloc, size))
        if large:
            self._allocate(large)

    def release(self) -> None:
        """Frees what was acquired."""
        if self._owned is None:
            return
        code = self.code
        if not self._given:
            code.line(f"call void @{SYMBOL}(ptr %scratch, i64 0)")
        code.line(f"br label %{self._leave}")
        code.start_block(self._leave)

    def _bytes(self, alloc: Alloc) -> Coefficient:
        """The size rounded up to the alignment."""
        binary = self.index.binary
        size = binary("mul", self.index.integer(alloc.elements), alloc.dtype.itemsize)
        if isinstance(size, int):
            return -(-size // _ALIGNMENT) * _ALIGNMENT
        return binary("and", binary("add", size, _ALIGNMENT - 1), -_ALIGNMENT)

    def _allocate(self, large: list[tuple[Alloc, Coefficient]]) -> None:
        code, binary = self.code, self.index.binary
        starts: list[Coefficient] = []
        total: Coefficient = 0
        for _, size in large:
            starts.append(total)
            total = binary("add", total, size)
        if self._given:
            code.declare(f"declare ptr @{SCRATCH}(ptr, i64)")
            self._owned = code.here(f"call ptr @{SCRATCH}(ptr %error, i64 {total})")
        else:
            # Blocks are aligned like those of `malloc`: not every system has `aligned_alloc`.
            code.declare(f"declare void @{SYMBOL}(ptr, i64)")
            longer = binary("add", total, _ALIGNMENT - 1)
            code.line("%scratch = alloca ptr, align 8")
            code.line(f"call void @{SYMBOL}(ptr %scratch, i64 {longer})")
            self._owned = code.here("load ptr, ptr %scratch")
        failed, ready, self._leave = map(code.new_label, ("failed", "ready", "leave"))
        none = code.emit(f"icmp eq ptr {self._owned}, null")
        code.line(f"br i1 {none}, label %{failed}, label %{ready}")
        code.line_label(failed)
        report(code, OUT_OF_MEMORY, 0, total, 0)
        code.line(f"br label %{self._leave}")
        code.line_label(ready)
        block = self._owned if self._given else self._aligned(self._owned)
        for (alloc, _), start in zip(large, starts):
            name = f"%b{alloc.buffer}"
            code.line(f"{name} = getelementptr i8, ptr {block}, i64 {start}")

    def _aligned(self, start: str) -> str:
        """The first aligned address from one on."""
        self.code.declare("declare ptr @llvm.ptrmask.p0.i64(ptr, i64)")
        end = self.code.here(f"getelementptr i8, ptr {start}, i64 {_ALIGNMENT - 1}")
        return self.code.here(f"call ptr @llvm.ptrmask.p0.i64(ptr {end}, i64 {-_ALIGNMENT})")


def most_scratch(body: Iterable[Statement]) -> Any:
    """The most bytes that a kernel may request; symbolic if sizes are."""
    total: Any = 0
    for alloc in _allocs(body):
        elements: Any = alloc.elements
        size = elements * alloc.dtype.itemsize + _ALIGNMENT - 1
        total += size // _ALIGNMENT * _ALIGNMENT
    return total


def report(code: Code, number: int, operator: int, value: Coefficient, bound: Coefficient) -> None:
    """Writes an error to the kernel's error slot, unless it already has one."""
    kind = "{ i64, i1 }"
    pair = code.here(f"cmpxchg ptr %error, i64 0, i64 {number} acq_rel monotonic")
    first = code.here(f"extractvalue {kind} {pair}, 1")
    inside, after = code.new_label("report"), code.new_label("reported")
    code.line(f"br i1 {first}, label %{inside}, label %{after}")
    code.line_label(inside)
    for position, word in enumerate((operator, value, bound), start=1):
        place = code.here(f"getelementptr i64, ptr %error, i64 {position}")
        code.line(f"store i64 {word}, ptr {place}")
    code.line(f"br label %{after}")
    code.line_label(after)


def _allocs(body: Iterable[Statement]) -> Iterator[Alloc]:
    return (one for one in simple_statements(body) if isinstance(one, Alloc))
