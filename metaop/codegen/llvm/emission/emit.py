"""LLVM IR of loop nests.

A kernel is `void kernel(ptr buffers, ptr scalars, i64 begin, i64 end, ptr error)`: the addresses
of its buffers, the values of its integer arguments, the part of the parallel loop to run, and
four int64 that receive the first error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.effects import EffectWriter
from metaop.codegen.llvm.emission.expression import ExpressionWriter
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.interleaved import store_interleaved
from metaop.codegen.llvm.emission.loops import LoopWriter
from metaop.codegen.llvm.emission.matrix_kernel import (
    configure_matrices,
    matrix_kernels,
    release_matrices,
    write_matrix_kernel,
)
from metaop.codegen.llvm.emission.memory import MemoryWriter
from metaop.codegen.llvm.emission.micro_kernel import write_micro_kernel
from metaop.codegen.llvm.emission.scratch import Scratch
from metaop.codegen.llvm.emission.streams import StreamWriter
from metaop.codegen.llvm.emission.survey import loaded_buffers
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.llvm.target import Target
from metaop.codegen.nest.ir import (
    MATRIX,
    Accumulate,
    Alloc,
    CheckedIndex,
    For,
    ForeignCall,
    Let,
    Load,
    LoopNest,
    MicroKernel,
    Prefetch,
    Statement,
    Store,
    Sum,
    Update,
)
from metaop.codegen.nest.rounding import rounded_values

# Where a kernel fetches an argument.
_FETCHED = re.compile(r"(%a(\d+)) = load i64, ptr %\w+")


def emit(nest: LoopNest, target: Target, symbol: str, given_scratch: bool = False) -> str:
    """The text of a module that defines the kernel of `nest` as the function `symbol`.

    Large scratch buffers come from the heap, or with `given_scratch` from the caller.
    """
    return _Kernel(nest, target, given_scratch).text(symbol)


def with_literals(text: str, literals: Mapping[int, int]) -> str:
    """The text of a module with some arguments of its kernel, by position, as literals."""

    def literal(found: re.Match[str]) -> str:
        position = int(found[2])
        return f"{found[1]} = add i64 0, {literals[position]}" if position in literals else found[0]

    return _FETCHED.sub(literal, text)


class _Kernel:
    """Writes one kernel."""

    def __init__(self, nest: LoopNest, target: Target, given_scratch: bool) -> None:
        self.nest = nest
        # A copy whose source is its target returns at once.
        self.copy = _copy(nest.body)
        self.last = "end" if self.copy is None else "last"
        self.code = code = Code(target)
        self.index = IndexWriter(code)
        self.memory = MemoryWriter(code, self.index, target)
        rounded = rounded_values(nest.body)
        self.expressions = ExpressionWriter(code, self.index, self.memory, rounded)
        streamed = frozenset(k for k, one in enumerate(nest.parameters) if one.streamed)
        self.streams = StreamWriter(code, self.index, self.memory, target, streamed)
        self.loops = LoopWriter(
            code, self.index, self.memory, self.expressions, self.streams, target, self._body
        )
        self.effects = EffectWriter(code, self.index, self.memory, self.expressions, self.loops)
        self.scratch = Scratch(code, self.index, self.memory, given_scratch)

    def text(self, symbol: str) -> str:
        """The module."""
        code = self.code
        self._enter()
        matrices = list(matrix_kernels(self.nest.body))
        if matrices:
            configure_matrices(matrices[0], code)
        self._body(self.nest.body)
        self.streams.finish()
        if matrices:
            release_matrices(code)
        self.scratch.release()
        code.flatten()
        parameters = [code.argument("ptr", "buffers"), code.argument("ptr", "scalars")]
        parameters += [code.argument("i64", "begin"), code.argument("i64", self.last)]
        code.finish_function(symbol, [*parameters, code.argument("ptr", "error")])
        return code.module_text()

    def _enter(self) -> None:
        """Fetches the addresses of the buffers and the arguments."""
        code = self.code
        code.line("%nowhere = alloca i64, align 8")
        code.line("%sink = alloca i64, align 8")
        code.line("store i64 0, ptr %nowhere")
        for number, parameter in enumerate(self.nest.parameters):
            place = code.emit(f"getelementptr ptr, ptr %buffers, i64 {number}")
            code.line(f"%b{number} = load ptr, ptr {place}")
            self.memory.buffers[number] = (f"%b{number}", parameter.dtype)
        for number in range(len(self.nest.arguments)):
            place = code.emit(f"getelementptr i64, ptr %scalars, i64 {number}")
            code.line(f"%a{number} = load i64, ptr {place}")
        roles = [parameter.role for parameter in self.nest.parameters]
        self.memory.read_only = frozenset(k for k, role in enumerate(roles) if role == "read")
        if self.copy is not None:
            written, read = (self.memory.address(b, self.index.resolve(x)) for b, x in self.copy)
            is_there = code.emit(f"icmp eq ptr {written}, {read}")
            code.line(f"%end = select i1 {is_there}, i64 %begin, i64 %{self.last}")
        self.scratch.acquire(self.nest.body)

    def _body(self, body: Sequence[Statement]) -> None:
        group: list[Store] = []
        for statement in body:
            if isinstance(statement, Store):
                written = {store.buffer for store in group}
                if written and written & loaded_buffers(statement.value):
                    self._stores(group)
                    group = []
                group.append(statement)
                continue
            self._stores(group)
            group = []
            self._statement(statement)
        self._stores(group)

    def _stores(self, group: Sequence[Store]) -> None:
        """Writes neighbouring stores, all of whose values are computed first.

        A buffer that aliases an input may be written only after the input was read.
        """
        if not group:
            return
        self.expressions.start_statement()
        places = [(store, copy) for store in group for copy in self._copies()]
        types = self.memory.buffers
        values = [
            self.expressions.value_to_store(store.value, types[store.buffer][1], copy)
            for store, copy in places
        ]
        done = 0
        while done < len(group):
            done += self._store_first(group[done:], values[done * len(self._copies()) :])

    def _store_first(self, group: Sequence[Store], values: list[Value]) -> int:
        """Writes the first of some stores, or several interleaved ones; returns how many."""
        copies = self._copies()
        for width in (4, 2):
            together = values[: width * len(copies)]
            if store_interleaved(self.memory, group[:width], together, copies):
                return width
        for copy, value in zip(copies, values):
            store = group[0]
            self.memory.store(store.buffer, store.offset, value, store.conditions, copy)
        return 1

    def _copies(self) -> range:
        return range(self.index.lanes.copies)

    def _statement(self, statement: Statement) -> None:
        if isinstance(statement, For):
            self.loops.write(statement)
            return
        if isinstance(statement, MicroKernel):
            self.code.is_as_written = not _has_sums(self.nest.body)
            if statement.step == MATRIX:
                write_matrix_kernel(statement, self.code, self.index, self.memory, self.loops)
            else:
                write_micro_kernel(statement, self.code, self.index, self.memory)
            return
        if isinstance(statement, ForeignCall):
            self.effects.foreign_call(statement)
            return
        if isinstance(statement, Alloc):
            return  # acquired at the start of the kernel
        self.expressions.start_statement()
        for copy in self._copies():
            if isinstance(statement, Let):
                value = self.expressions.value(statement.value, copy)
                self.index.bindings[statement.name, copy] = value
            elif isinstance(statement, Accumulate):
                self.loops.accumulators.accumulate(statement, copy)
            elif isinstance(statement, CheckedIndex):
                self.effects.check(statement, copy)
            elif isinstance(statement, Update):
                self.effects.update(statement, copy)
            elif isinstance(statement, Prefetch):
                self.memory.prefetch(*statement, copy)


def _copy(body: Sequence[Statement]) -> list[tuple[int, Sum]] | None:
    """The written and the read buffer of a nest that only copies, and where it starts."""
    loop = body[0]
    if len(body) > 1 or not isinstance(loop, For) or loop.kind != "parallel" or len(loop.body) > 1:
        return None
    store = loop.body[0]
    if not isinstance(store, Store) or not isinstance(store.value, Load):
        return None
    load = store.value
    if store.conditions or load.conditions or store.offset.terms != load.offset.terms:
        return None
    places = (store.buffer, store.offset), (load.buffer, load.offset)
    return [(buffer, Sum((), offset.constant)) for buffer, offset in places]


def _has_sums(body: Sequence[Statement]) -> bool:
    """Whether loops have accumulators."""
    loops = [statement for statement in body if isinstance(statement, For)]
    return any(loop.accumulators or _has_sums(loop.body) for loop in loops)
