"""A loop-nest interpreter in plain Python: the meaning of the IR, for tests of what makes nests.

Every loop runs serially and every value is a NumPy scalar, so it is slow and hard to get wrong.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metaop.codegen.nest import ir
from metaop.codegen.schedule import Schedule
from metaop.elementwise.functions import FUNCTIONS
from metaop.elementwise.meta_op import cast_reference
from metaop.reduce.reducers import REDUCERS
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node


class Interpreter:
    """Runs one nest on flat arrays, one per buffer parameter."""

    def __init__(self, nest: ir.LoopNest, buffers: list[np.ndarray]) -> None:
        self.nest = nest
        self.buffers: dict[int, np.ndarray] = dict(enumerate(buffers))
        self.loops: dict[str, int] = {}
        self.values: dict[str, Any] = {}
        # The elements that micro-kernels asked for, each with its buffer.
        self.asked: set[tuple[int, int]] = set()

    def run(self) -> None:
        self.body(self.nest.body)

    def integer(self, value: ir.Integer) -> int:
        return self.nest.arguments[value.position] if isinstance(value, ir.Argument) else value

    def index(self, total: ir.Sum) -> int:
        result = self.integer(total.constant)
        for factor, coefficient in total.terms:
            result += self.factor(factor) * self.integer(coefficient)
        return result

    def factor(self, factor: ir.Factor) -> int:
        if isinstance(factor, ir.LoopIndex):
            return self.loops[factor.axis]
        if isinstance(factor, ir.ValueIndex):
            return int(self.values[factor.name])
        dividend = self.index(factor.dividend)
        assert dividend >= 0, "quotients and remainders are of non-negative numbers"
        divisor = self.integer(factor.divisor)
        quotient, remainder = divmod(dividend, divisor)
        return quotient if isinstance(factor, ir.QuotientIndex) else remainder

    def holds(self, conditions: tuple[ir.Condition, ...]) -> bool:
        return all(
            0 <= self.index(c.index) < self.integer(c.extent)
            if isinstance(c, ir.InBounds)
            else self.index(c.index) % self.integer(c.divisor) == 0
            for c in conditions
        )

    def value(self, expr: ir.Expr) -> Any:
        if isinstance(expr, ir.Number):
            return np.asarray(expr.value).astype(expr.dtype.numpy)
        if isinstance(expr, ir.RealArgument):
            bits = np.int64(self.integer(expr.argument))
            return bits.view(np.float64).astype(expr.dtype.numpy)
        if isinstance(expr, ir.Load):
            if not self.holds(expr.conditions):
                return np.asarray(expr.fill).astype(expr.dtype.numpy)
            offset = self.index(expr.offset)
            assert 0 <= offset < self.buffers[expr.buffer].size, f"{expr} reads element {offset}"
            return self.buffers[expr.buffer][offset]
        if isinstance(expr, ir.IndexValue):
            return np.int64(self.index(expr.index))
        if isinstance(expr, ir.Name):
            return self.values[expr.name]
        if isinstance(expr, ir.Choose):
            value, otherwise = self.value(expr.value), self.value(expr.otherwise)
            return value if self.holds(expr.conditions) else otherwise
        operands = [np.asarray(self.value(operand)) for operand in expr.operands]
        with np.errstate(all="ignore"):
            if expr.function == "cast":
                return cast_reference(operands[0], expr.dtype)
            result = FUNCTIONS[expr.function].numpy(*operands)
        return np.asarray(result).astype(expr.dtype.numpy)

    def combine(self, reducer: str, left: Any, right: Any) -> Any:
        row = REDUCERS[reducer]
        array = np.array([left])
        with np.errstate(all="ignore"):
            row.scatter(array, np.array([0]), np.asarray(right))
        return array[0]

    def body(self, statements: tuple[ir.Statement, ...]) -> None:
        for statement in statements:
            getattr(self, type(statement).__name__)(statement)

    def For(self, loop: ir.For) -> None:
        for carried in loop.accumulators:
            identity = REDUCERS[carried.reducer].identity(carried.dtype)
            self.values[carried.name] = np.asarray(identity).astype(carried.dtype.numpy)
        extent = loop.extent
        if isinstance(extent, ir.ValueIndex):
            extent = int(self.values[extent.name])
        for step in range(self.integer(extent)):
            self.loops[loop.axis] = step
            self.body(loop.body)

    def Let(self, let: ir.Let) -> None:
        self.values[let.name] = self.value(let.value)

    def CheckedIndex(self, check: ir.CheckedIndex) -> None:
        value = int(self.value(check.value)) if self.holds(check.conditions) else 0
        if not 0 <= value < self.integer(check.bound):
            raise IndexError(value)
        self.values[check.name] = value

    def Store(self, store: ir.Store) -> None:
        if self.holds(store.conditions):
            offset = self.index(store.offset)
            assert 0 <= offset < self.buffers[store.buffer].size, f"{store} writes {offset}"
            self.buffers[store.buffer][offset] = self.value(store.value)

    def Prefetch(self, prefetch: ir.Prefetch) -> None:
        """Nothing happens."""

    def Update(self, update: ir.Update) -> None:
        if self.holds(update.conditions):
            buffer, offset = self.buffers[update.buffer], self.index(update.offset)
            value = self.value(update.value)
            buffer[offset] = self.combine(update.reducer, buffer[offset], value)

    def Accumulate(self, accumulate: ir.Accumulate) -> None:
        name = accumulate.name
        for carried in _accumulators(self.nest.body):
            if carried.name == name:
                value = self.value(accumulate.value)
                self.values[name] = self.combine(carried.reducer, self.values[name], value)

    def Alloc(self, alloc: ir.Alloc) -> None:
        size = self.integer(alloc.elements)
        garbage = math.nan if alloc.dtype.kind == "float" else 77
        self.buffers[alloc.buffer] = np.full(size, garbage, alloc.dtype.numpy)

    def MicroKernel(self, kernel: ir.MicroKernel) -> None:
        depth = self.index(kernel.depth)
        left_start, right_start = self.index(kernel.left_offset), self.index(kernel.right_offset)
        left = self.left_panel(kernel, left_start, depth)
        steps = depth * kernel.packed_steps
        right = self.buffers[kernel.right][right_start : right_start + steps * kernel.columns]
        right = right.reshape(steps, kernel.columns)
        if kernel.dtype == dtypes.int32:
            signs = kernel.signs or "ss"
            left = _whole(left, kernel.step, signs[0])
            right = _whole(right.T, kernel.step, signs[1]).T
        elif kernel.step > 1:
            left, right = _numbers(left), _numbers(right.T).T
        product = left @ right
        target, start = self.buffers[kernel.target], self.index(kernel.target_offset)
        for row in range(kernel.rows):
            offset = start + row * self.integer(kernel.target_stride)
            tile = target[offset : offset + kernel.columns]
            tile[...] = tile + product[row] if self.index(kernel.accumulate) else product[row]

        for one in kernel.ahead:
            if self.holds(one.conditions):
                start, along, across = (
                    self.index(one.offset), self.integer(one.along), self.integer(one.across)
                )  # fmt: skip
                for turn in range(depth // ir.STEPS):
                    lane = turn % one.lanes
                    place = start + (turn - lane) * along + lane * across
                    self.asked.add((one.buffer, place))

    def left_panel(self, kernel: ir.MicroKernel, start: int, depth: int) -> np.ndarray:
        """The left factor as [rows][depth]."""
        buffer = self.buffers[kernel.left]
        if kernel.left_stride is None:
            pitch = kernel.left_pitch
            return buffer[start : start + depth * pitch].reshape(depth, pitch)[:, : kernel.rows].T
        stride = self.integer(kernel.left_stride)
        starts = [start + row * stride for row in range(kernel.rows)]
        depth *= kernel.step
        assert starts[-1] + depth <= buffer.size
        return np.stack([buffer[first : first + depth] for first in starts])


def _numbers(rows: np.ndarray) -> np.ndarray:
    """Rows of bfloat16, or of pairs of them in 32 bits, as float32."""
    if rows.dtype != np.int32:
        return rows.astype(np.float32)
    halves = np.ascontiguousarray(rows).view(np.uint16).astype(np.uint32)
    return (halves << np.uint32(16)).view(np.float32)


def _whole(rows: np.ndarray, step: int, sign: str) -> np.ndarray:
    """Rows of whole numbers, or of as many as a step takes in 32 bits, as int32."""
    parts = np.dtype(f"{'i' if sign == 's' else 'u'}{4 // step}")
    return (
        np.ascontiguousarray(rows)
        .view(parts if rows.dtype == np.int32 else rows.dtype)
        .astype(np.int32)
    )


def _accumulators(body: tuple[ir.Statement, ...]) -> list[ir.Accumulator]:
    found = []
    for statement in body:
        if isinstance(statement, ir.For):
            found += [*statement.accumulators, *_accumulators(statement.body)]
    return found


def run_schedule(schedule: Schedule, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a schedule, computed by interpreting its nests in order."""
    memory: dict[Node, np.ndarray] = {
        node: np.ascontiguousarray(array).reshape(-1)
        for node, array in zip(schedule.inputs, inputs, strict=True)
    }
    for launch in schedule.launches:
        for node in launch.buffers:
            if node not in memory:
                memory[node] = np.zeros(node.size, node.dtype.numpy)
        Interpreter(launch.nest, [memory[node] for node in launch.buffers]).run()
    return [
        memory.get(node, np.zeros(0, node.dtype.numpy)).reshape(node.shape)
        for node in schedule.outputs
    ]
