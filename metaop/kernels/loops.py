"""The loops of a kernel, serial and parallel."""

from __future__ import annotations

import ast
from typing import Any

from metaop.codegen.nest import ir
from metaop.kernels.assignments import NUMBERS, Assignments
from metaop.kernels.carried import Accumulating, Cell, RetypeError, assigned_in, carried
from metaop.kernels.expressions import phrase
from metaop.kernels.memory import Place
from metaop.kernels.values import (
    UNBOUNDED,
    Index,
    Value,
    applied,
    as_value,
    constant,
    converted,
    plus,
    times,
    variable,
)
from metaop.reduce.reducers import REDUCERS


class Loops(Assignments):
    """Translates loops; `has_open_loops` if some extents are known only when the kernel runs."""

    has_open_loops = False

    def _do_for(self, node: ast.For) -> None:
        if node.orelse or not isinstance(node.target, ast.Name):
            raise self.error(
                "a loop has one variable and no else", node, "write for i in range(n):"
            )
        word = self.word(node.iter) if isinstance(node.iter, ast.Call) else None
        if word not in ("range", "lanes"):
            raise self.error(
                f"loops run over range() or lanes(), not {phrase(node.iter)}",
                node,
                "write for i in range(x.shape[0]):",
            )
        assert isinstance(node.iter, ast.Call)
        if self.holds_barrier(node):
            self._unrolled(node)
            return
        axis = self.fresh("i")
        is_vector = word == "lanes"
        if is_vector and self.in_lanes:
            raise self.error("lanes() is inside lanes()", node, "use range() for one of them")
        extent, index = self._iterations(axis, node.iter, is_vector)
        if extent != 0:
            self._loop(node, axis, extent, index, is_vector)

    def holds_barrier(self, node: ast.AST) -> bool:
        """Whether a statement contains a barrier."""
        calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
        return any(self.word_or_none(call) == "barrier" for call in calls)

    def _unrolled(self, node: ast.For) -> None:
        """Unrolls a loop with a barrier: every iteration is a launch of its own."""
        assert isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Call)
        if self.word(node.iter) == "lanes" or len(self.frames) > 1 or self.active:
            raise self.error(
                "a barrier stands inside lanes(), a condition or an inner loop",
                node,
                "let all tasks come to it together: only loops over range() may be around it",
            )
        for number in range(*[self.known_integer(argument) for argument in node.iter.args]):
            self.names[node.target.id] = constant(number)
            self.run(node.body)

    def _iterations(
        self, axis: str, call: ast.Call, is_vector: bool
    ) -> tuple[int | ir.ValueIndex, Index]:
        """The number of iterations of a loop, and its variable."""
        if not 1 <= len(call.args) <= (1 if is_vector else 3):
            raise self.error(f"{phrase(call)} has too many bounds", call, "see Python's range()")
        bounds = [self.index(self.number_of(argument), argument) for argument in call.args[:2]]
        start, stop = bounds if len(bounds) == 2 else (constant(0), bounds[0])
        step = self.known_integer(call.args[2]) if len(call.args) == 3 else 1
        if step == 0:
            raise self.error("the step of range() is 0", call, "use another")
        known = plus(stop, start, -1).constant
        if known is not None:
            extent = max(-(-known // step), 0)
            counter = variable(ir.LoopIndex(axis), 0, max(extent - 1, 0))
            return extent, plus(start, times(counter, step))
        if is_vector or self.in_lanes:
            raise self.error(
                f"the bounds of {phrase(call)} are known only when the kernel runs",
                call,
                "use range(), outside of lanes(), or a constant bound and a condition",
            )
        return self._open(axis, start, stop, step, call)

    def _open(
        self, axis: str, start: Index, stop: Index, step: int, call: ast.Call
    ) -> tuple[ir.ValueIndex, Index]:
        """A loop whose bounds are known only when the kernel runs."""
        self.has_open_loops = True
        span = plus(stop, start, -1) if step > 0 else plus(start, stop, -1)
        length: Any = span
        if abs(step) > 1:
            rounded = plus(span, constant(abs(step) - 1))
            length = self.apply(call, "floor_divide", rounded, constant(abs(step)))
        name = self.fresh("n")
        self.emit(ir.Let(name, converted(as_value(length), as_value(constant(0)).dtype)))
        counter = variable(ir.LoopIndex(axis), 0, UNBOUNDED)
        ends = (start.low, stop.high - 1) if step > 0 else (stop.low + 1, start.high)
        index = plus(start, times(counter, step))
        return ir.ValueIndex(name), index._replace(low=ends[0], high=ends[1])

    def _loop(
        self,
        node: ast.For,
        axis: str,
        extent: int | ir.ValueIndex,
        index: Index,
        is_vector: bool,
    ) -> None:
        before, active = dict(self.names), self.active
        depth, taken, in_lanes = len(self.frames), len(self.allocated), self.in_lanes
        types: dict[str, Any] = {}
        while True:
            self.in_lanes = in_lanes or is_vector
            changed = self._carry(node, types)
            try:
                assert isinstance(node.target, ast.Name)
                self.names[node.target.id] = index
                with self.body() as statements:
                    self.run(node.body)
                break
            except RetypeError as found:
                if found.name not in changed:
                    raise  # it is carried by a loop around this one
                types[found.name] = found.dtype
                del self.frames[depth:], self.checks[depth:], self.allocated[taken:]
                self.names, self.active = dict(before), active
            finally:
                self.in_lanes = in_lanes
        gathered = [one for one in changed.values() if isinstance(one, Accumulating) and one.dtype]
        sums = tuple(
            ir.Accumulator(one.name, one.reducer, one.dtype)  # type: ignore[arg-type]
            for one in gathered
        )
        self._start_cells(changed, before)
        self.emit(ir.For(axis, extent, "serial", tuple(statements), sums, is_vector))
        self._after(node, before, changed)

    def _carry(self, node: ast.For, types: dict[str, Any]) -> dict[str, Any]:
        """Allocates cells and accumulators for the names that the iterations change."""
        changed: dict[str, Any] = {}
        for name, how in carried(node.body, list(self.names), self.word_or_none).items():
            initial = self.names[name]
            if isinstance(initial, Cell) and self.in_lanes:
                initial = self.bound(self.load(initial.place)._replace(weak=initial.weak))
            if how == "own" or isinstance(initial, Cell):
                continue
            if how == "carried":
                changed[name] = self._cell(name, initial, types, node)
            else:
                changed[name] = Accumulating(self.fresh("a"), how, initial)
        self.names.update(changed)
        return changed

    def _cell(self, name: str, initial: Any, types: dict[str, Any], node: ast.AST) -> Cell:
        if self.in_lanes:
            raise self.error(
                f"iterations of lanes() hand {name} on from one to the next",
                node,
                "use range(), or change it by one of +=, *=, max() and min() alone",
            )
        if not isinstance(initial, NUMBERS):
            raise self.error(f"{name} is assigned again in a loop", node, "use another name")
        value = as_value(initial)
        dtype = types.get(name, value.dtype)
        memory = self.allocate(name, dtype, ())
        place = Place(memory.buffer, ir.Sum((), 0), ())
        return Cell(name, place, dtype, value.weak and name not in types)

    def _start_cells(self, changed: dict[str, Any], before: dict[str, Any]) -> None:
        for name, cell in changed.items():
            if isinstance(cell, Cell):
                value = converted(as_value(before[name]), cell.dtype)
                self.emit(ir.Store(cell.place.buffer.position, cell.place.offset, value))

    def _after(self, node: ast.For, before: dict[str, Any], changed: dict[str, Any]) -> None:
        """Sets the names after a loop: accumulated and carried ones stay, its own are lost."""
        assert isinstance(node.target, ast.Name)
        for name in (*assigned_in(node.body), node.target.id):
            kept = before.get(name)
            if name not in changed and not isinstance(kept, (Cell, Accumulating)):
                before.pop(name, None)
                self.lost[name] = (
                    "it was assigned in a loop, and only names from before a loop stay after it"
                )
        self.names = before
        for name, item in changed.items():
            if isinstance(item, Cell):
                self.names[name] = self.bound(self.load(item.place)._replace(weak=item.weak))
            elif item.dtype is not None:
                total = Value(ir.Name(item.name, item.dtype), item.dtype)
                if isinstance(item.initial, Accumulating):
                    self.accumulate(item.initial, total, node)
                else:
                    combine = REDUCERS[item.reducer].combine
                    self.give(name, applied(combine, item.initial, total), node)
