"""The inner product of packed panels in the matrix registers of AMX.

Of the eight registers, four hold the sums of two by two squares of up to 16 x 16 numbers, two hold
rows of the left factor and two rows of the right. A row has 64 bytes: 16 sums, or 16 pairs of
bfloat16. A kernel sets the shapes of the registers once, because setting them clears the registers.
A thread that leaves a kernel releases them, so that interrupts need not save them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.loops import LoopWriter
from metaop.codegen.llvm.emission.memory import MemoryWriter
from metaop.codegen.llvm.emission.scalars import Coefficient
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.nest.ir import MATRIX, PAIR, MicroKernel, Statement, Sum, simple_statements

# Rows of a register, and elements of 32 bits in a row.
SIDE = 16
_ELEMENT_BYTES = 4
_SUMS, _LEFT, _RIGHT = 0, 4, 6  # the numbers of the first registers
_REGISTERS = 8


def matrix_kernels(body: Iterable[Statement]) -> Iterator[MicroKernel]:
    """The inner products of a kernel that need matrix registers."""
    for statement in simple_statements(body):
        if isinstance(statement, MicroKernel) and statement.step == MATRIX:
            yield statement


def configure_matrices(statement: MicroKernel, code: Code) -> None:
    """Sets the shapes of the registers for an inner product."""
    words = struct.unpack("<8q", shapes(statement.rows, statement.columns))
    place = code.reserve(len(words), "i64")
    for number, word in enumerate(words):
        address = code.emit(f"getelementptr i64, ptr {place}, i64 {number}")
        code.line(f"store i64 {word}, ptr {address}")
    _call(code, "ldtilecfg", f"ptr {place}")


def release_matrices(code: Code) -> None:
    """Releases the registers."""
    _call(code, "tilerelease")


def shapes(rows: int, columns: int) -> bytes:
    """The configuration of the registers for a tile of some rows and columns."""
    heights, widths = [0] * _REGISTERS, [0] * _REGISTERS
    high, wide = _parts(rows), _parts(columns)
    for y, height in enumerate(high):
        heights[_LEFT + y], widths[_LEFT + y] = height, SIDE
        for x, width in enumerate(wide):
            heights[_SUMS + 2 * y + x], widths[_SUMS + 2 * y + x] = height, width
    for x, width in enumerate(wide):
        heights[_RIGHT + x], widths[_RIGHT + x] = SIDE, width
    row_bytes = (width * _ELEMENT_BYTES for width in widths)
    # Palette 1; 14 reserved bytes; the bytes of a row and the rows of up to 16 registers.
    return struct.pack("<2B14x8H16x8B8x", 1, 0, *row_bytes, *heights)


def write_matrix_kernel(
    statement: MicroKernel,
    code: Code,
    index: IndexWriter,
    memory: MemoryWriter,
    loops: LoopWriter,
) -> None:
    """Writes the loop over the depth with all sums in registers, then the tile."""
    _MatrixKernel(statement, code, index, memory, loops).write()


class _MatrixKernel:
    def __init__(
        self,
        statement: MicroKernel,
        code: Code,
        index: IndexWriter,
        memory: MemoryWriter,
        loops: LoopWriter,
    ) -> None:
        self.statement = statement
        self.code = code
        self.index = index
        self.memory = memory
        self.loops = loops
        self.high = range(len(_parts(statement.rows)))
        self.wide = range(len(_parts(statement.columns)))

    def write(self) -> None:
        statement = self.statement
        assert statement.left_stride is not None, "rows of the left factor lie apart"
        left = self._start(statement.left, statement.left_offset)
        right = self._start(statement.right, statement.right_offset)
        depth = self.index.total(self.index.resolve(statement.depth))
        self._start_sums()

        def step(position: Coefficient, _: list[Value]) -> list[Value]:
            self._products(left, right, position)
            return []

        self.loops.loop(0, depth, 1, [], frozenset({statement.target}), step)
        self._on_target("tilestored64")
        self.memory.stale(statement.target)

    def _start(self, buffer: int, offset: Sum) -> str:
        return self.memory.address(buffer, self.index.resolve(offset))

    def _moved(self, start: str, elements: Coefficient, unit: str) -> str:
        text = f"getelementptr {unit}, ptr {start}, i64 {elements}"
        return start if elements == 0 else self.code.pure(text, start, str(elements))

    def _start_sums(self) -> None:
        """The previous values of the tile if `accumulate` is not zero, else zeros."""
        code, statement = self.code, self.statement
        accumulate = self.index.total(self.index.resolve(statement.accumulate))
        if isinstance(accumulate, int):
            self._load_or_clear(bool(accumulate))
            return
        adding = code.emit(f"icmp ne i64 {accumulate}, 0")
        add, clear, ready = (code.new_label(stem) for stem in ("add_to_tile", "clear", "ready"))
        code.line(f"br i1 {adding}, label %{add}, label %{clear}")
        for label, is_added in ((add, True), (clear, False)):
            code.line_label(label)
            with code.branching():
                code.conditional()
                self._load_or_clear(is_added)
            code.line(f"br label %{ready}")
        code.line_label(ready)

    def _load_or_clear(self, add: bool) -> None:
        if add:
            self._on_target("tileloadd64")
            return
        for y in self.high:
            for x in self.wide:
                _call(self.code, "tilezero", f"i8 {_SUMS + 2 * y + x}")

    def _on_target(self, operation: str) -> None:
        """Moves the sums between the registers and the tile in memory."""
        statement, binary = self.statement, self.index.binary
        stride = self.index.integer(statement.target_stride)
        start = self._start(statement.target, statement.target_offset)
        for y in self.high:
            row = self._moved(start, binary("mul", stride, y * SIDE), "float")
            for x in self.wide:
                place = self._moved(row, x * SIDE, "float")
                self._transfer(operation, _SUMS + 2 * y + x, place, stride, _ELEMENT_BYTES)

    def _products(self, left: str, right: str, position: Coefficient) -> None:
        statement, binary = self.statement, self.index.binary
        assert statement.left_stride is not None
        stride = self.index.integer(statement.left_stride)
        along = self._moved(left, binary("mul", position, MATRIX), "i16")
        pairs = binary("mul", position, MATRIX // PAIR * statement.columns)
        down = self._moved(right, pairs, "i32")
        for x in self.wide:
            place = self._moved(down, x * SIDE, "i32")
            self._transfer("tileloadd64", _RIGHT + x, place, statement.columns, _ELEMENT_BYTES)
        for y in self.high:
            place = self._moved(along, binary("mul", stride, y * SIDE), "i16")
            self._transfer("tileloadd64", _LEFT + y, place, stride, _ELEMENT_BYTES // PAIR)
            for x in self.wide:
                numbers = _SUMS + 2 * y + x, _LEFT + y, _RIGHT + x
                _call(self.code, "tdpbf16ps", *(f"i8 {number}" for number in numbers))

    def _transfer(
        self, operation: str, register: int, place: str, stride: Coefficient, itemsize: int
    ) -> None:
        """Loads or stores a register whose rows have a stride of `stride` elements in memory."""
        row = self.index.binary("mul", stride, itemsize)
        _call(self.code, operation, f"i8 {register}", f"ptr {place}", f"i64 {row}")


def _call(code: Code, operation: str, *operands: str) -> None:
    types = ", ".join(operand.split()[0] for operand in operands)
    code.declare(f"declare void @llvm.x86.{operation}({types})")
    code.line(f"call void @llvm.x86.{operation}({', '.join(operands)})")


def _parts(extent: int) -> list[int]:
    """The rows or columns of a tile, register by register."""
    assert 0 < extent <= 2 * SIDE
    return [min(SIDE, extent - start) for start in range(0, extent, SIDE)]
