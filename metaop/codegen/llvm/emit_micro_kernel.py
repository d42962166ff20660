"""The register-tiled inner product of packed panels."""

from __future__ import annotations

from typing import NamedTuple

from metaop.codegen.llvm.conversion import compute_type
from metaop.codegen.llvm.emit_code import Code
from metaop.codegen.llvm.emit_index import IndexWriter
from metaop.codegen.llvm.emit_loops import LoopWriter
from metaop.codegen.llvm.emit_memory import MemoryWriter
from metaop.codegen.llvm.emit_scalars import Coefficient
from metaop.codegen.llvm.value import Value, bits_of
from metaop.codegen.loop_nest import PAIR, MicroKernel, Sum


def write_micro_kernel(
    statement: MicroKernel,
    code: Code,
    index: IndexWriter,
    memory: MemoryWriter,
    loops: LoopWriter,
) -> None:
    """Writes the loop over the depth with all sums in registers, then the tile."""
    _MicroKernel(statement, code, index, memory, loops).write()


class _Asked(NamedTuple):
    """What is asked for: the first address, and the bytes from there for each step and each lane.

    A step is the lane that it is modulo the number of `lanes`.
    """

    start: str
    steps: Coefficient
    sideways: Coefficient
    lanes: int


class _MicroKernel:
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
        self.element = compute_type(statement.dtype)
        # What a step multiplies: a number, or a pair of them.
        self.has_pairs = statement.step == PAIR
        self.factor = "i32" if self.has_pairs else self.element
        widest = loops.target.vector_bytes // statement.dtype.itemsize
        # The greatest power of two that divides the columns, up to a whole register.
        self.lanes = min(widest, statement.columns & -statement.columns)
        self.vectors = statement.columns // self.lanes

    def write(self) -> None:
        statement, code = self.statement, self.code
        left = self._start(statement.left, statement.left_offset)
        right = self._start(statement.right, statement.right_offset)
        depth = self.index.total(self.index.resolve(statement.depth))
        asked = self._asked()
        zero = code.constant(0, self.element, self.lanes)
        sums = [zero] * (statement.rows * self.vectors)

        def step(position: Coefficient, values: list[Value]) -> list[Value]:
            if asked is not None:
                self._ask(asked, position)
            return self._products(left, right, position, values)

        target = frozenset({statement.target})
        sums = self.loops.loop(0, depth, 1, sums, target, step)
        self._write_tile(sums)
        self.memory.stale(statement.target)

    def _start(self, buffer: int, offset: Sum) -> str:
        return self.memory.address(buffer, self.index.resolve(offset))

    def _asked(self) -> _Asked | None:
        """What the first of `ahead` whose conditions hold asks for; else the same bytes always.

        There is one for all of them, because it takes registers away from the product.
        """
        code, index, memory, ahead = self.code, self.index, self.memory, self.statement.ahead
        if not ahead:
            return None
        lanes = max(one.lanes for one in ahead)
        found = _Asked(memory.nowhere, 0, 0, lanes)
        for one in reversed(ahead):
            size = memory.buffers[one.buffer][1].itemsize
            along, across = (
                index.binary("mul", index.integer(x), size) for x in (one.along, one.across)
            )
            sideways = index.binary("sub", across, along) if one.lanes > 1 else 0
            asked = _Asked(self._start(one.buffer, one.offset), along, sideways, lanes)
            condition, _ = memory.masks(one.conditions, 0)
            if condition is not None:
                start, *others = (
                    code.pure(f"select i1 {condition}, {kind} {x}, {kind} {y}", condition, x, y)
                    for kind, x, y in zip(("ptr", "i64", "i64"), map(str, asked), map(str, found))
                )
                asked = _Asked(start, others[0], others[1], lanes)
            found = asked
        return found

    def _ask(self, asked: _Asked, position: Coefficient) -> None:
        code, binary = self.code, self.index.binary
        moved = binary("mul", position, asked.steps)
        if asked.lanes > 1:
            lane = binary("and", position, asked.lanes - 1)
            moved = binary("add", moved, binary("mul", lane, asked.sideways))
        address = self._moved(asked.start, moved, "i8")
        code.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        code.line(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)")

    def _products(
        self, left: str, right: str, position: Coefficient, values: list[Value]
    ) -> list[Value]:
        code, statement, binary = self.code, self.statement, self.index.binary
        stride = statement.left_stride
        along = position if stride is not None else binary("mul", position, statement.rows)
        row_start, row_step = self._moved(left, along), self.index.integer(stride or 1)
        # Rows that are not packed lie apart by numbers, also where steps take pairs.
        unit = "i16" if self.has_pairs and stride is not None else self.factor
        column_start = self._moved(right, binary("mul", position, statement.columns))
        columns = [self._load(column_start, k * self.lanes) for k in range(self.vectors)]
        result = []
        for row in range(statement.rows):
            place = self._moved(row_start, binary("mul", row_step, row), unit)
            address = code.value(place, "ptr")
            factor = code.splat(
                code.load(address, self.factor, align=bits_of(unit) // 8), self.lanes
            )
            for k, column in enumerate(columns):
                result.append(self._added(factor, column, values[row * self.vectors + k]))
        return result

    def _added(self, factor: Value, column: Value, total: Value) -> Value:
        if not self.has_pairs:
            return self.code.fma(factor, column, total)
        code, pairs = self.code, f"<{2 * self.lanes} x bfloat>"
        left, right = (code.emit(f"bitcast {x.typed} to {pairs}") for x in (factor, column))
        symbol = f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}"
        code.declare(f"declare {total.full_type} @{symbol}({total.full_type}, {pairs}, {pairs})")
        operands = f"{total.typed}, {pairs} {left}, {pairs} {right}"
        return code.like(total, code.emit(f"call {total.full_type} @{symbol}({operands})"))

    def _moved(self, start: str, offset: Coefficient, unit: str = "") -> str:
        if offset == 0:
            return start
        text = f"getelementptr {unit or self.factor}, ptr {start}, i64 {offset}"
        return self.code.pure(text, start, str(offset))

    def _load(self, start: str, offset: int) -> Value:
        address = self.code.value(self._moved(start, offset), "ptr")
        return self.code.load(address, self.factor, self.lanes)

    def _write_tile(self, sums: list[Value]) -> None:
        """Stores the sums, with what the tile held before where `accumulate` is not zero."""
        code, statement = self.code, self.statement
        accumulate = self.index.total(self.index.resolve(statement.accumulate))
        if isinstance(accumulate, int):
            self._store(sums, bool(accumulate))
            return
        adding = code.emit(f"icmp ne i64 {accumulate}, 0")
        add, put, done = (code.new_label(stem) for stem in ("add_tile", "put_tile", "tile"))
        code.line(f"br i1 {adding}, label %{add}, label %{put}")
        for label, is_added in ((add, True), (put, False)):
            code.line_label(label)
            with code.branching():
                code.conditional()
                self._store(sums, is_added)
            code.line(f"br label %{done}")
        code.line_label(done)

    def _store(self, sums: list[Value], add: bool) -> None:
        code, statement = self.code, self.statement
        stride = self.index.integer(statement.target_stride)
        start = self._start(statement.target, statement.target_offset)
        for row in range(statement.rows):
            row_start = self._moved(start, self.index.binary("mul", stride, row))
            for k in range(self.vectors):
                address = code.value(self._moved(row_start, k * self.lanes), "ptr")
                total = sums[row * self.vectors + k]
                if add:
                    held = code.here(
                        f"load {total.full_type}, ptr {address.text}, "
                        f"align {statement.dtype.itemsize}"
                    )
                    total = code.add(code.like(total, held), total)
                code.store(total, address)
