"""Translates a kernel for given operand types to loop nests, one launch between two barriers."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from metaop.codegen.machine import OPERATIONS
from metaop.codegen.nest import ir
from metaop.kernels.carried import Cell
from metaop.kernels.memory import Buffer, Memory, whole
from metaop.kernels.source import Source
from metaop.kernels.statements import Statements
from metaop.kernels.values import Index, Value, variable
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.symbolic import SymInt, hint_of

_AXIS = "task"
# The assumed number of iterations of a loop with an unknown extent.
_TYPICAL = 64


class Launch(NamedTuple):
    """A nest and its buffers, numbered through the inputs, the results and shared memories."""

    nest: ir.LoopNest
    buffers: tuple[int, ...]


class Translation(Statements):
    """A kernel for given operands.

    `parameters` are the values of its parameters (buffers, or known numbers), `operands` is the
    number of inputs and results.
    """

    def __init__(
        self, source: Source, parameters: Mapping[str, Any], operands: int, tasks: int
    ) -> None:
        super().__init__(source)
        self.calls = {}
        self.task_count = tasks
        self.task = variable(ir.LoopIndex(_AXIS), 0, max(tasks - 1, 0))
        self.shared_memories: list[Buffer] = []
        self.launches: list[Launch] = []
        self._operands = operands
        for name, item in parameters.items():
            self.names[name] = self._parameter(item)

    def _parameter(self, item: Any) -> Any:
        if not isinstance(item, Buffer):
            return self.known(item)
        return whole(item)

    def translate(self) -> list[Launch]:
        """The launches, in order."""
        if self.task_count:
            self.run(self.source.tree.body)
            self._close()
        return self.launches

    def shared_buffer(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        position = self._operands + len(self.shared_memories)
        buffer = Buffer("shared memory", dtype, shape, "shared", position)
        self.shared_memories.append(buffer)
        return buffer

    # --- launches ---------------------------------------------------------------------------------

    def wait(self, node: ast.AST) -> None:
        if len(self.frames) > 1 or self.active:
            raise self.error(
                "a barrier is inside a condition or an inner loop",
                node,
                "let all tasks come to it together: only loops over range() may be around it",
            )
        self._close()
        for name, item in list(self.names.items()):
            if _ends_with_launch(item):
                del self.names[name]
                self.lost[name] = "values and scratch memory of a task end at a barrier"

    def _close(self) -> None:
        """Makes a launch of the statements since the last barrier."""
        body = (*self.allocated, *self.frames[0])
        if self.frames[0]:
            is_vector = not (self.allocated or self.has_open_loops or _has_vectors(body))
            loop = ir.For(_AXIS, self.task_count, "parallel", body, (), is_vector)
            parameters = tuple(
                ir.Parameter(buffer.dtype, _role(access)) for buffer, access in self.used.items()
            )
            work = max(_work(body), 1) * OPERATIONS
            nest = ir.LoopNest(self.source.name, parameters, (), (loop,), work=work)
            positions = tuple(buffer.position for buffer in self.used)
            self.launches.append(Launch(nest, positions))
        self.frames, self.checks = [[]], [{}]
        self.allocated, self.used, self.has_open_loops = [], {}, False


def _role(access: set[str]) -> str:
    return "update" if len(access) > 1 else next(iter(access))


def _ends_with_launch(item: Any) -> bool:
    """Whether an item exists only within a launch: a bound value, or a task's private memory."""
    if isinstance(item, Memory):
        return item.buffer.space == "scratch" or _ends_with_launch(item.offset)
    if isinstance(item, tuple) and not isinstance(item, (Index, Value)):
        return any(map(_ends_with_launch, item))
    if isinstance(item, Index):
        return _mentions(item.sum, ir.ValueIndex)
    return isinstance(item, Cell) or (isinstance(item, Value) and _mentions(item.expr, ir.Name))


def _mentions(item: object, kind: type) -> bool:
    if isinstance(item, kind):
        return True
    return isinstance(item, tuple) and any(_mentions(part, kind) for part in item)


def _has_vectors(body: Sequence[ir.Statement]) -> bool:
    return any(
        statement.vector or _has_vectors(statement.body)
        for statement in body
        if isinstance(statement, ir.For)
    )


def _work(body: Sequence[ir.Statement]) -> int:
    """The number of statements that a body executes."""
    total = 0
    for statement in body:
        if isinstance(statement, ir.For):
            extent = statement.extent
            extent = hint_of(extent) if isinstance(extent, (int, SymInt)) else _TYPICAL
            total += extent * _work(statement.body)
        else:
            total += 1
    return min(total, math.isqrt(1 << 62))
