"""The register-tiled inner product of packed panels."""

from __future__ import annotations

from typing import NamedTuple

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.loops import LoopWriter
from metaop.codegen.llvm.emission.memory import MemoryWriter
from metaop.codegen.llvm.emission.products import FLIP, product_of
from metaop.codegen.llvm.emission.scalars import Coefficient
from metaop.codegen.llvm.instructions.conversion import compute_type
from metaop.codegen.llvm.instructions.value import Value, bits_of
from metaop.codegen.nest.ir import STEPS, Ahead, MicroKernel, Sum


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
    """A prefetch: the first address, and the byte offsets from there per turn and per lane.

    The lane of a turn is its number modulo `lanes`.
    """

    start: str
    along: Coefficient
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
        self.product = product_of(statement)
        # What a step multiplies: one element, or several neighbours.
        self.factor = self.product.element or self.element
        widest = loops.target.vector_bytes // statement.dtype.itemsize
        # The greatest power of two that divides the columns, up to a whole register.
        self.lanes = min(widest, statement.columns & -statement.columns)
        self.vectors = statement.columns // self.lanes

    def write(self) -> None:
        statement, code = self.statement, self.code
        left = self._start(statement.left, statement.left_offset)
        right = self._start(statement.right, statement.right_offset)
        depth = self.index.total(self.index.resolve(statement.depth))
        asked = [self._asked(one) for one in statement.ahead]
        zero = code.constant(0, self.element, self.lanes)
        # If the left factor is offset, one more row sums what the offset adds.
        sums = [zero] * ((statement.rows + self.product.is_flipped) * self.vectors)
        # Pointers are incremented, so that a step computes no addresses.
        carried = [code.value(place, "ptr") for place in (left, right)] + sums
        target = frozenset({statement.target})
        whole = self.index.binary("and", depth, -STEPS)
        count = len(carried)
        carried += [code.value(one.start, "ptr") for one in asked]

        def turn(position: Coefficient, values: list[Value]) -> list[Value]:
            values, places = values[:count], [place.text for place in values[count:]]
            for one, place in zip(asked, places):
                self._ask(one, place, position)
            for _ in range(STEPS):
                values = self._step(values)
            following = (self._moved(place, one.along, "i8") for one, place in zip(asked, places))
            return values + [code.value(place, "ptr") for place in following]

        carried = self.loops.loop(0, whole, STEPS, carried, target, turn)[:count]
        last = self.loops.loop(
            whole, depth, 1, carried, target, lambda _, values: self._step(values)
        )
        sums = last[2:]
        self._write_tile(self._without_flips(sums))
        self.memory.stale(statement.target)

    def _start(self, buffer: int, offset: Sum) -> str:
        return self.memory.address(buffer, self.index.resolve(offset))

    def _asked(self, one: Ahead) -> _Asked:
        """The prefetch of one of `ahead`; it repeats one address if its conditions do not hold."""
        code, index, memory = self.code, self.index, self.memory
        size = memory.buffers[one.buffer][1].itemsize
        along, across = (
            index.binary("mul", index.integer(x), size) for x in (one.along, one.across)
        )
        sideways = index.binary("sub", across, along) if one.lanes > 1 else 0
        asked = _Asked(self._start(one.buffer, one.offset), along, sideways, one.lanes)
        condition, _ = memory.masks(one.conditions, 0)
        if condition is None:
            return asked
        nowhere = (memory.nowhere, 0, 0)
        start, *others = (
            code.pure(f"select i1 {condition}, {kind} {x}, {kind} {y}", condition, str(x))
            for kind, x, y in zip(("ptr", "i64", "i64"), asked, nowhere)
        )
        return _Asked(start, others[0], others[1], one.lanes)

    def _ask(self, asked: _Asked, place: str, position: Coefficient) -> None:
        code, binary = self.code, self.index.binary
        if asked.lanes > 1:
            lane = binary("and", binary("sdiv", position, STEPS), asked.lanes - 1)
            place = self._moved(place, binary("mul", lane, asked.sideways), "i8")
        code.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        code.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")

    def _step(self, values: list[Value]) -> list[Value]:
        """Adds the products of a step; `values` are where its factors begin, then the sums."""
        statement = self.statement
        left, right = (value.text for value in values[:2])
        apart = statement.rows if statement.left_stride is None else 1
        following = (self._moved(left, apart), self._moved(right, statement.columns))
        sums = self._products(left, right, values[2:])
        return [self.code.value(place, "ptr") for place in following] + sums

    def _products(self, left: str, right: str, values: list[Value]) -> list[Value]:
        code, statement, binary = self.code, self.statement, self.index.binary
        stride = statement.left_stride
        row_step = self.index.integer(stride or 1)
        # The stride of unpacked rows counts elements, even if steps take pairs.
        unit = self.factor if stride is None else self.product.number or self.factor
        columns = [self._load(right, k * self.lanes) for k in range(self.vectors)]
        flip = code.constant(FLIP, "i32", self.lanes) if self.product.is_flipped else None
        totals = iter(values)
        result: list[Value] = []

        def add(factor: Value) -> None:
            result.extend(self.product.added(code, factor, one, next(totals)) for one in columns)

        for row in range(statement.rows):
            place = self._moved(left, binary("mul", row_step, row), unit)
            address = code.value(place, "ptr")
            factor = code.load(address, self.factor, align=bits_of(unit) // 8)
            factor = code.splat(factor, self.lanes)
            add(factor if flip is None else factor ^ flip)
        if flip is not None:
            add(flip)
        return result

    def _without_flips(self, sums: list[Value]) -> list[Value]:
        """The sums of the rows, less what flipped bits added to each column."""
        if not self.product.is_flipped:
            return sums
        *rows, extra = (sums[k : k + self.vectors] for k in range(0, len(sums), self.vectors))
        return [self.code.sub(total, more) for row in rows for total, more in zip(row, extra)]

    def _moved(self, start: str, offset: Coefficient, unit: str = "") -> str:
        if offset == 0:
            return start
        text = f"getelementptr {unit or self.factor}, ptr {start}, i64 {offset}"
        return self.code.pure(text, start, str(offset))

    def _load(self, start: str, offset: int) -> Value:
        address = self.code.value(self._moved(start, offset), "ptr")
        return self.code.load(address, self.factor, self.lanes)

    def _write_tile(self, sums: list[Value]) -> None:
        """Stores the sums, added to the tile if `accumulate` is not zero."""
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
