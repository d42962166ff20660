"""Statements with effects beyond plain stores: checked indices and updates of elements."""

from __future__ import annotations

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.expression import ExpressionWriter
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.lanes import Resolved
from metaop.codegen.llvm.emission.loops import LoopWriter
from metaop.codegen.llvm.emission.memory import MemoryWriter, storage_type
from metaop.codegen.llvm.emission.scratch import report
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.nest.ir import CheckedIndex, ForeignCall, Load, Update
from metaop.reduce.reducers import REDUCERS

REFUSED_VALUE = 1


class EffectWriter:
    """Writes CheckedIndex and Update."""

    def __init__(
        self,
        code: Code,
        index: IndexWriter,
        memory: MemoryWriter,
        expressions: ExpressionWriter,
        loops: LoopWriter,
    ) -> None:
        self.code = code
        self.index = index
        self.memory = memory
        self.expressions = expressions
        self.accumulators = loops.accumulators

    # --- checked indices --------------------------------------------------------------------

    def check(self, statement: CheckedIndex, copy: int) -> None:
        """Binds a name to an index that is guaranteed to be in range."""
        code = self.code
        value = self.expressions.value(statement.value, copy)
        is_index = value.type != "i1"
        if is_index:
            with code.placed(code.level_among(value.text)):
                value = code.to_type(value, "i64")
        mask = self._needed(statement, copy)
        if mask is not None and mask.lanes > 1 and value.lanes == 1:
            value = self.expressions.splat(value, self.index.lanes.count)
        with code.placed(code.level_among(value.text, mask.text if mask else "")):
            if mask is not None:
                mask = code.splat(mask, value.lanes)
            bad = value
            if is_index:
                bad, result = self._bounded(value, mask, statement)
                self.index.bindings[statement.name, copy] = result
            if mask is not None:
                bad = code.bit_and(bad, mask)
            some = code.any(bad)
        self._report_if(some, bad, value, statement)

    def _bounded(
        self, value: Value, mask: Value | None, statement: CheckedIndex
    ) -> tuple[Value, Value]:
        """Whether an index is out of range, and the index, or 0 if it is out of range or unused."""
        code = self.code
        limit = code.splat(code.value(str(self.index.integer(statement.bound)), "i64"), value.lanes)
        inside = code.emit(f"icmp ult {value.typed}, {limit.text}")
        good = code.value(inside, "i1", value.lanes)
        bad = code.bit_not(good)
        if mask is not None:
            good = code.bit_and(good, mask)
        return bad, code.select(good, value, code.constant_like(value, 0))

    def _needed(self, statement: CheckedIndex, copy: int) -> Value | None:
        """The mask of lanes that use the index."""
        scalar, lanes = self.index.conditions(statement.conditions, copy)
        if lanes is not None or self.index.lanes.mask is not None:
            return self.memory.lane_mask(*self.memory.masks(statement.conditions, copy))
        if scalar in (None, "true"):
            return None
        return self.code.value(scalar, "i1")

    def _report_if(self, some: Value, bad: Value, value: Value, statement: CheckedIndex) -> None:
        code = self.code
        inside, after = code.new_label("outside"), code.new_label("checked")
        code.line(f"br {some.typed}, label %{inside}, label %{after}")
        code.line_label(inside)
        wrong = value.text
        if value.type == "i1":
            wrong = "1"
        elif value.lanes > 1:
            bits = code.here(f"bitcast {bad.typed} to i{bad.lanes}")
            code.declare(f"declare i{bad.lanes} @llvm.cttz.i{bad.lanes}(i{bad.lanes}, i1)")
            count = f"call i{bad.lanes} @llvm.cttz.i{bad.lanes}(i{bad.lanes} {bits}, i1 true)"
            lane = code.here(count)
            wrong = code.here(f"extractelement {value.typed}, i{bad.lanes} {lane}")
        bound = self.index.integer(statement.bound)
        report(code, REFUSED_VALUE, statement.operator, wrong, bound)
        code.line(f"br label %{after}")
        code.line_label(after)

    # --- foreign code ------------------------------------------------------------------------

    def foreign_call(self, statement: ForeignCall) -> None:
        """Calls a user's function, whose text joins the module or whose code is in memory."""
        code = self.code
        if statement.address is None:
            function = f"@{statement.symbol}"
            code.include(dict(statement.texts)["llvm"])
        else:
            address = self.index.integer(statement.address)
            function = code.here(f"inttoptr i64 {address} to ptr")
        task = self.index.total(self.index.resolve(statement.task))
        pointers = "".join(f"ptr {self.memory.buffers[k][0]}, " for k in statement.buffers)
        code.line(f"call void {function}({pointers}i64 {task})")
        for buffer in statement.buffers:
            self.memory.stale(buffer)

    # --- updates ----------------------------------------------------------------------------

    def update(self, statement: Update, copy: int) -> None:
        """Combines a value into an element of a buffer."""
        value = self.expressions.value(statement.value, copy)
        index = self.index.resolve(statement.offset, copy)
        if isinstance(index.lane, int) and index.lane and not (index.vectors or statement.atomic):
            self._update_apart(statement, value, copy)
            return
        scalar, mask = self.memory.masks(statement.conditions, copy)
        if scalar == "false":
            return
        if self.index.lanes.count == 1:
            address = self.memory.address(statement.buffer, index)
            self._combine_at(statement, address, value, scalar)
        elif not index.varies:
            self._update_shared(statement, index, value, scalar, mask)
        else:
            self._update_lanes(statement, index, value, scalar, mask)
        self.memory.stale(statement.buffer)

    def _update_apart(self, statement: Update, value: Value, copy: int) -> None:
        """Updates elements that differ between lanes."""
        buffer, offset, conditions = statement.buffer, statement.offset, statement.conditions
        dtype = self.memory.buffers[buffer][1]
        old = self.memory.load(Load(buffer, offset, dtype, conditions), copy)
        new = self.accumulators.combined(statement.reducer, value, old)
        self.memory.store(buffer, offset, new, conditions, copy)

    def _update_shared(
        self,
        statement: Update,
        index: Resolved,
        value: Value,
        scalar: str | None,
        mask: str | None,
    ) -> None:
        """Combines all lanes, then updates their common element once."""
        dtype = self.memory.buffers[statement.buffer][1]
        value = self.expressions.splat(value, self.index.lanes.count)
        if mask is not None:
            identity = REDUCERS[statement.reducer].identity(dtype)
            condition = self.code.value(mask, "i1", value.lanes)
            with self.code.placed(self.code.level_among(mask, value.text)):
                value = self.code.select(condition, value, self.memory.constant(identity, dtype))
        value = self.accumulators.across_lanes(statement.reducer, value)
        address = self.memory.address(statement.buffer, index)
        self._combine_at(statement, address, value, scalar)

    def _update_lanes(
        self,
        statement: Update,
        index: Resolved,
        value: Value,
        scalar: str | None,
        mask: str | None,
    ) -> None:
        """Updates one lane after another, because two lanes may have the same element."""
        code, count = self.code, self.index.lanes.count
        addresses = code.value(self.memory.addresses(statement.buffer, index), "ptr", count)
        every = self.memory.lane_mask(scalar, mask)
        for lane in range(count):
            condition = None if every is None else self._lane(every, lane).text
            address = self._lane(addresses, lane).text
            self._combine_at(statement, address, self._lane(value, lane), condition)

    def _lane(self, x: Value, lane: int) -> Value:
        with self.code.placed(self.code.level_among(x.text)):
            return self.code.extract(x, lane)

    def _combine_at(
        self, statement: Update, address: str, value: Value, condition: str | None
    ) -> None:
        code = self.code
        if condition is not None:
            text = f"select i1 {condition}, ptr {address}, ptr {self.memory.sink}"
            address = code.pure(text, condition, address)
        if statement.atomic:
            self._combine_atomically(statement, address, value)
            return
        dtype = self.memory.buffers[statement.buffer][1]
        element = storage_type(dtype)
        stored = code.here(f"load {element}, ptr {address}, align {dtype.itemsize}")
        old = self.memory.widened(code.value(stored, element, 1, dtype.is_signed), dtype)
        new = self.memory.narrowed(self.accumulators.combined(statement.reducer, old, value), dtype)
        code.store(new, code.value(address, "ptr"))

    def _combine_atomically(self, statement: Update, address: str, value: Value) -> None:
        code = self.code
        dtype = self.memory.buffers[statement.buffer][1]
        element, bits = storage_type(dtype), f"i{8 * dtype.itemsize}"
        if statement.reducer == "add" and dtype.kind == "int":
            code.line(f"atomicrmw add ptr {address}, {value.typed} monotonic")
            return
        first = code.here(f"load atomic {bits}, ptr {address} monotonic, align {dtype.itemsize}")
        before, again, done = code.block, code.new_label("again"), code.new_label("done")
        code.line(f"br label %{again}")
        code.line_label(again)
        expected = code.fresh("expected")
        position = len(code.lines)
        code.lines.append("")
        stored = code.bitcast(code.value(expected, bits), element)
        stored = code.value(stored.text, element, 1, dtype.is_signed)
        old = self.memory.widened(stored, dtype)
        new = self.memory.narrowed(self.accumulators.combined(statement.reducer, old, value), dtype)
        wanted = code.bitcast(new, bits)
        pair = code.here(
            f"cmpxchg ptr {address}, {bits} {expected}, {wanted.typed} monotonic monotonic"
        )
        kind = f"{{ {bits}, i1 }}"
        seen = code.here(f"extractvalue {kind} {pair}, 0")
        success = code.here(f"extractvalue {kind} {pair}, 1")
        sources = f"[ {first}, %{before} ], [ {seen}, %{code.block} ]"
        code.lines[position] = f"  {expected} = phi {bits} {sources}"
        code.line(f"br i1 {success}, label %{done}, label %{again}")
        code.line_label(done)
