"""Statements of a loop nest as C++, for one thread of a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from metaop.codegen.cuda import warp_product
from metaop.codegen.cuda.expressions import (
    Expressions,
    conditions_text,
    index_text,
    stored,
    stripped,
)
from metaop.codegen.cuda.groups import is_shared_by_groups
from metaop.codegen.cuda.hazards import Hazards
from metaop.codegen.cuda.layout import Layout
from metaop.codegen.cuda.parts import Parts, is_copy, numbered
from metaop.codegen.cuda.prelude import identity, row_function, update_function
from metaop.codegen.cuda.scans import print_scan
from metaop.codegen.cuda.types import compute_type, is_narrow_float, storage_type
from metaop.codegen.cuda.warp_product import max_sums
from metaop.codegen.nest import ir
from metaop.codegen.nest.in_place import possible_pairs
from metaop.codegen.nest.neighbours import Access, loads
from metaop.codegen.nest.rounding import rounded_values
from metaop.errors import InternalError
from metaop.reduce.reducers import REDUCERS
from metaop.unified_graph.dtype import DType

_INDENT = "    "
_WORD = 4


class Statements:
    """Prints the body of a kernel; `functions` are those that it needs besides the prelude.

    Outside vector loops all lanes of a row run the same statements, and the first one stores. Lanes
    synchronise where they exchange values through memory.
    """

    def __init__(self, nest: ir.LoopNest, layout: Layout) -> None:
        self.nest = nest
        self.layout = layout
        self.lines: list[str] = []
        self.functions: dict[str, str] = {}
        self.names = {number: f"b{number}" for number in range(len(nest.parameters))}
        self.dtypes = {number: p.dtype for number, p in enumerate(nest.parameters)}
        self.values = Expressions(self.line, self.names, rounded_values(nest.body))
        # Pairs of a result and an operand that may have the same memory; elements read ahead.
        self._sharing = possible_pairs(nest)
        self.hazards = Hazards(self._sharing)
        self._parted = _by_loop(nest, layout.parts)
        self._ahead: list[tuple[int, ir.Sum]] = []
        self._count = 0
        self._depth = 1
        # Whether the statements being printed are those of one lane alone.
        self._alone = layout.lanes == 1
        self._accumulators: dict[str, ir.Accumulator] = {}
        # Whether groups take the iterations of the next loop from its end.
        self._from_end = False

    def line(self, text: str) -> None:
        """Adds a line at the current depth."""
        self.lines.append(_INDENT * self._depth + text)

    def kernel(self) -> None:
        """Prints the whole body."""
        *before, last = self.nest.body
        tasks = last if isinstance(last, ir.For) and last.kind == "parallel" else None
        if tasks is None:
            before.append(last)
        if self.layout.lanes > 1:
            lane = "threadIdx.x" if self.layout.rows == 1 else f"threadIdx.x % {self.layout.lanes}"
            self.line(f"const int lane = {lane};")
        for statement in (*before, *(tasks.body if tasks else ())):
            if isinstance(statement, ir.Alloc):
                self._allocate(statement)
        self.body(before)
        if tasks is not None:
            self._tasks(tasks)

    def _allocate(self, alloc: ir.Alloc) -> None:
        ctype = storage_type(alloc.dtype)
        if alloc.space == "shared":
            self.names[alloc.buffer] = f"shared{-alloc.buffer}"
            self.hazards.sizes[alloc.buffer] = alloc.elements
            head = "__shared__ __align__(16) "
        elif alloc.space == "register":
            self.names[alloc.buffer] = f"tile{-alloc.buffer}"
            self.hazards.private.add(alloc.buffer)
            # Parts of 16-bit floats are copied as a whole.
            head = "__align__(16) " if is_narrow_float(alloc.dtype) else ""
        else:
            raise InternalError(f"kernel {self.nest.name} allocates {alloc.space} memory on a GPU")
        self.dtypes[alloc.buffer] = alloc.dtype
        self.line(f"{head}{ctype} {self.names[alloc.buffer]}[{alloc.elements}];")

    # --- loops ------------------------------------------------------------------------------------

    def _tasks(self, loop: ir.For) -> None:
        """The parallel loop: rows go to blocks in turn."""
        layout = self.layout
        first, step = "blockIdx.x", "gridDim.x"
        if layout.index_type != "int":
            first, step = f"(index_t){first}", f"(index_t){step}"
        if layout.rows > 1:
            row = "threadIdx.x" if layout.lanes == 1 else f"threadIdx.x / {layout.lanes}"
            first, step = f"{first} * {layout.rows} + {row}", f"{step} * {layout.rows}"
        if any(number < 0 for number in self.names):
            # Tasks of one block use the same shared memory one after another.
            self.hazards.add(loop.body)
        if loop.vector and self._in_parts(loop, first, step):
            return
        with self.looping(loop, first, step):
            if max_sums(loop.body):
                self.functions[warp_product.LANE] = warp_product.LANE_TEXT
                self.line(f"const int lane = {warp_product.LANE}();")
            self.body(loop.body)

    @contextmanager
    def looping(self, loop: ir.For, first: str = "0", step: str = "1") -> Iterator[None]:
        """The head of a loop; what is printed inside is its body."""
        axis = loop.axis
        advance = f"++{axis}" if step == "1" else f"{axis} += {step}"
        if loop.kind == "unroll":
            self.line("#pragma unroll")
        elif max_sums(loop.body):
            # Written out, a few steps of the depth would need more registers than there are.
            self.line("#pragma unroll 1")
        with self.block(
            f"for (index_t {axis} = {first}; {axis} < {self.extent(loop)}; {advance}) "
        ):
            yield

    def _serial(self, loop: ir.For) -> None:
        """A loop that every lane runs, over the whole extent."""
        self._declare(loop.accumulators)
        if self._in_parts(loop, "0", "1"):
            return
        if not self._alone:
            if is_shared_by_groups(loop):
                self._by_groups(loop)
                return
            if self.hazards.enter(loop):
                self._wait()
        with self.looping(loop):
            self.body(loop.body)

    def _by_groups(self, loop: ir.For) -> None:
        """Groups of lanes take the iterations in turn.

        Lanes keep their shares of accumulators over all iterations, and combine them once. Every
        other such loop runs from the end: what the loop before it read last is still in the cache.
        """
        if self.hazards.must_wait(loop):
            self._wait()
        groups, lanes = self.layout.groups, self.layout.lanes // self.layout.groups
        first, lane = (f"lane / {lanes}", f"lane % {lanes}") if groups > 1 else ("0", "lane")
        counter = loop._replace(axis=f"{loop.axis}_left") if self._from_end else loop
        with self.looping(counter, first, str(groups)):
            if self._from_end:
                self.line(f"const index_t {loop.axis} = {self.extent(loop)} - 1 - {counter.axis};")
            for statement in loop.body:
                if isinstance(statement, ir.For):
                    self._declare(statement.accumulators)
                    self._lanes(statement, lane, lanes)
                else:
                    self.body([statement])
        self._from_end = not self._from_end
        self._combine_lanes(loop.accumulators)

    def _vector(self, loop: ir.For) -> None:
        """A loop whose iterations the lanes of a row share."""
        self._declare(loop.accumulators)
        if any(one.running for one in loop.accumulators):
            print_scan(self, loop, *self._parted.get(id(loop), (1, [])))
            return
        self._lanes(loop, "lane", self.layout.lanes)
        self._combine_lanes(loop.accumulators)

    def _lanes(self, loop: ir.For, lane: str, lanes: int) -> None:
        """The iterations of some lanes, of which this one is `lane`."""
        with self.alone():
            if loop.extent == lanes:
                with self.block():
                    self.line(f"const index_t {loop.axis} = {lane};")
                    self.body(loop.body)
            elif not self._in_parts(loop, lane, str(lanes)):
                with self.looping(loop, lane, str(lanes)):
                    self.body(loop.body)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """What is printed inside are the statements of one lane alone."""
        self._alone = True
        yield
        self._alone = False

    @staticmethod
    def extent(loop: ir.For) -> object:
        """The text of the extent of a loop."""
        return loop.extent.name if isinstance(loop.extent, ir.ValueIndex) else loop.extent

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """A block behind a head."""
        self.line(f"{head}{{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextmanager
    def each(self, width: int, index: str) -> Iterator[None]:
        """The elements of a part in turn."""
        self.line("#pragma unroll")
        with self.block(f"for (int e = 0; e < {width}; ++e) "):
            self.line(f"const index_t {index};")
            yield

    def _in_parts(self, loop: ir.For, first: str, step: str) -> bool:
        """Prints a loop that takes several iterations at once; False when it has no parts."""
        parted = self._parted.get(id(loop))
        if parted is None:
            return False
        (width, accesses_in_parts), start = parted, f"{loop.axis}_first"
        first, step = _times(first, width), _times(step, width)
        with self.looping(loop._replace(axis=start), first, step):
            if len(accesses_in_parts) > 1 and is_copy(loop, self.dtypes):
                store, load = (_renamed(one, loop.axis, start) for one in accesses_in_parts)
                self._copy_part(store, load, width)
                return True
            behind = [self.part(access, loop.axis, start, width) for access in accesses_in_parts]
            with self.each(width, f"{loop.axis} = {start} + e"):
                self.body(loop.body)
            for text in filter(None, behind):
                self.line(text)
        self.forget_parts()
        return True

    def forget_parts(self) -> None:
        """Drops the elements of parts behind their loop."""
        self.values.held.clear()
        self.values.tested.clear()

    def _copy_part(self, store: ir.Store, load: ir.Load, width: int) -> None:
        """Copies a part as a whole, in words: compilers take apart what has smaller elements."""
        ctype = f"Part<unsigned, {width * self.dtypes[store.buffer].itemsize // _WORD}>"
        value = f"*(const {ctype}*)&{self.values.element(load.buffer, load.offset)}"
        if load.conditions:
            value = f"{conditions_text(load.conditions)} ? {value} : {ctype}()"
        target = self.values.element(store.buffer, store.offset)
        self._when(store.conditions, f"*({ctype}*)&{target} = {value};")

    def part(self, access: Access, axis: str, start: str, width: int) -> str:
        """Declares a part; the statement that stores it, for a store."""
        name = f"part{len(self.values.held) + 1}"
        ctype = f"Part<{storage_type(self.dtypes[access.buffer])}, {width}>"
        first = _renamed(access, axis, start)
        place = f"&{self.values.element(access.buffer, first.offset)}"
        self.values.held[access.buffer, access.offset] = f"{name}.at[e]"
        # They hold for all elements or for none.
        self.values.tested.add((access.buffer, access.offset))
        holds = conditions_text(first.conditions)
        if isinstance(access, ir.Load):
            value = f"*(const {ctype}*){place}"
            value = f"{holds} ? {value} : {ctype}()" if access.conditions else value
            self.line(f"const {ctype} {name} = {value};")
            return ""
        self.line(f"{ctype} {name};")
        when = f"if ({holds}) " if access.conditions else ""
        return f"{when}*({ctype}*){place} = {name};"

    # --- accumulators -----------------------------------------------------------------------------

    def _declare(self, accumulators: Sequence[ir.Accumulator]) -> None:
        for one in accumulators:
            self._accumulators[one.name] = one
            start = identity(one.reducer, one.dtype)
            self.line(f"{compute_type(one.dtype)} {one.name} = {start};")

    def _combine_lanes(self, accumulators: Sequence[ir.Accumulator]) -> None:
        for one in accumulators:
            name, text = row_function(one.reducer, one.dtype, self.layout.lanes)
            self.functions[name] = text
            self.line(f"{one.name} = {name}({one.name});")
        if accumulators and self.layout.lanes > 32:
            self.hazards.clear()

    # --- statements -------------------------------------------------------------------------------

    def body(self, body: Sequence[ir.Statement]) -> None:
        """Statements one after another."""
        for position, statement in enumerate(body):
            if isinstance(statement, ir.Store):
                behind = takewhile(lambda one: isinstance(one, ir.Store), body[position + 1 :])
                self._read_ahead(statement.buffer, tuple(behind))
            else:
                self._forget()
            self._statement(statement)
        self._forget()

    def _read_ahead(self, written: int, behind: tuple[ir.Statement, ...]) -> None:
        """Reads what the stores behind one need of memory that this one may take over."""
        taken = {operand for result, operand in self._sharing if result == written}
        for load in loads(behind) if taken else ():
            place = load.buffer, load.offset
            if load.buffer not in taken or place in self.values.held:
                continue
            text, ctype = self.values.element(*place), storage_type(load.dtype)
            if load.conditions:
                zero = f"{ctype}()" if is_narrow_float(load.dtype) else f"({ctype})0"
                text = f"{conditions_text(load.conditions)} ? {text} : {zero}"
            self._count += 1
            self.line(f"const {ctype} kept{self._count} = {text};")
            self.values.held[place] = f"kept{self._count}"
            self._ahead.append(place)

    def _forget(self) -> None:
        """Drops the elements that were read ahead."""
        for place in self._ahead:
            del self.values.held[place]
        self._ahead.clear()

    def _statement(self, statement: ir.Statement) -> None:
        if isinstance(statement, ir.For):
            self._for(statement)
            return
        if not self._alone and self.hazards.must_wait(statement):
            self._wait()
        if isinstance(statement, ir.Let):
            self._let(statement)
        elif isinstance(statement, ir.CheckedIndex):
            self._checked_index(statement)
        elif isinstance(statement, ir.Store):
            self._store(statement)
        elif isinstance(statement, ir.Update):
            self._update(statement)
        elif isinstance(statement, ir.Accumulate):
            self._accumulate(statement)
        elif isinstance(statement, ir.WarpProduct):
            self._warp_product(statement)
        elif isinstance(statement, ir.ForeignCall):
            self._foreign_call(statement)
        elif not isinstance(statement, ir.Alloc):
            raise InternalError(f"{type(statement).__name__} has no form in CUDA")

    def _for(self, loop: ir.For) -> None:
        if not (loop.vector and not self._alone):
            self._serial(loop)
            return
        if self.hazards.must_wait(loop):
            self._wait()
        self._vector(loop)

    def _wait(self) -> None:
        self.line("__syncwarp();" if self.layout.lanes == 32 else "__syncthreads();")

    def _let(self, let: ir.Let) -> None:
        value = let.value
        ctype = "long long" if isinstance(value, ir.IndexValue) else compute_type(value.dtype)
        self.line(f"const {ctype} {let.name} = {self.values.assigned(value)};")

    def _checked_index(self, check: ir.CheckedIndex) -> None:
        value = self.values.value(check.value)
        bound = repr(check.bound)
        call = f"check_index({stripped(value)}, {bound}, {check.operator}, error)"
        if check.conditions:
            call = f"{conditions_text(check.conditions)} ? {call} : 0"
        self.line(f"const index_t {check.name} = {call};")

    def _accumulate(self, accumulate: ir.Accumulate) -> None:
        one = self._accumulators[accumulate.name]
        before = ir.Name(one.name, one.dtype)
        value = self.combined_with(one.reducer, before, accumulate.value, one.dtype)
        self.line(f"{one.name} = {value};")

    def _warp_product(self, product: ir.WarpProduct) -> None:
        """Every lane makes the call: a warp loads and multiplies together."""
        self.functions[warp_product.NAME] = warp_product.warp_product_function(product.dtype)
        left, right = (
            (self.values.element(panel.buffer, panel.offset), index_text(panel.chunk))
            for panel in (product.left, product.right)
        )
        sums = self.names[product.target]
        self.line(warp_product.warp_product_call(product, (left, right), sums))

    def _foreign_call(self, statement: ir.ForeignCall) -> None:
        """Every lane makes the call, then all synchronise: the next task uses the same memory."""
        self.functions[statement.symbol] = dict(statement.texts)["cuda"]
        buffers = "".join(f"{self.names[k]}, " for k in statement.buffers)
        task = index_text(statement.task)
        self.line(f"{statement.symbol}({buffers}(long long)({task}));")
        if statement.threads > 1:
            self.line("__syncthreads();")

    def combined_with(self, reducer: str, left: ir.Expr, right: ir.Expr, dtype: DType) -> str:
        """Two values combined by a reducer, as the right side of an assignment."""
        function = REDUCERS[reducer].combine
        return self.values.assigned(ir.Apply(function, (left, right), dtype, dtype))

    def _store(self, store: ir.Store) -> None:
        dtype = self.dtypes[store.buffer]
        if is_narrow_float(dtype):
            copied = self.values.copied(store.value, dtype)
            value = copied or stored(self.values.value(store.value), dtype)
        else:
            value = stripped(self.values.assigned(store.value))
        target = self.values.element(store.buffer, store.offset)
        is_tested = (store.buffer, store.offset) in self.values.tested
        self._when(() if is_tested else store.conditions, f"{target} = {value};")

    def _update(self, update: ir.Update) -> None:
        dtype = self.dtypes[update.buffer]
        target = self.values.element(update.buffer, update.offset)
        if update.buffer < 0:
            before = ir.Load(update.buffer, update.offset, dtype)
            text = f"{target} = {self.combined_with(update.reducer, before, update.value, dtype)};"
        else:
            name = self._update_function(update.reducer, dtype)
            text = f"{name}(&{target}, {stripped(self.values.value(update.value))});"
        self._when(update.conditions, text)

    def _update_function(self, reducer: str, dtype: DType) -> str:
        name, text = update_function(reducer, dtype)
        self.functions[name] = text
        return name

    def _when(self, conditions: Sequence[ir.Condition], text: str) -> None:
        """A write: by the first lane alone unless each lane has its own."""
        tests = [] if self._alone else ["lane == 0"]
        if conditions:
            tests.append(conditions_text(conditions))
        self.line(f"if ({' && '.join(tests)}) {text}" if tests else text)


def _times(text: str, width: int) -> str:
    if width == 1:
        return text
    if text.isdecimal():
        return str(int(text) * width)
    return f"({text}) * {width}" if " " in text else f"{text} * {width}"


def _renamed(item: Any, axis: str, name: str) -> Any:
    """An access with another loop variable."""
    if item == ir.LoopIndex(axis):
        return ir.LoopIndex(name)
    if not isinstance(item, tuple):
        return item
    parts = [_renamed(part, axis, name) for part in item]
    return type(item)(*parts) if hasattr(item, "_fields") else tuple(parts)


def _by_loop(nest: ir.LoopNest, parts: Parts) -> dict[int, tuple[int, list[Access]]]:
    """The accesses that come in parts and their width, by the identity of their loop."""
    widths = dict(parts.widths)
    found: dict[int, tuple[int, dict[tuple[int, ir.Sum], Access]]] = {}
    for number, (access, loop) in enumerate(numbered(nest.body)):
        if number in widths:
            _, places = found.setdefault(id(loop), (widths[number], {}))
            places[access.buffer, access.offset] = access
    return {loop: (width, list(places.values())) for loop, (width, places) in found.items()}
