"""Runs a kernel as a Python program, one task after another, and checks its accesses.

Every access is checked against the bounds of its memory. Every element records which tasks (and
which iterations of `lanes`) accessed it since the last barrier, so races are found whatever the
order in which the tasks run. Reading uninitialised memory is an error too.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Generator, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from metaop.elementwise.functions import FUNCTIONS
from metaop.errors import KernelError
from metaop.kernels.checked import (
    Accesses,
    CheckedMemory,
    Counter,
    compute,
    here,
    scalar,
    to_type,
)
from metaop.kernels.memory import Buffer
from metaop.kernels.source import Source
from metaop.unified_graph.dtype import DType

# The words of calls, by line and column.
Calls = Mapping[tuple[int, int], str]
_PREFIX = "_kernel_"
Task = Generator[Any, None, None]
_COMBINE = {"atomic_add": "add", "atomic_max": "maximum", "atomic_min": "minimum"}


class Interpreter:
    """One run of a kernel on arrays.

    `task` is the current one; `shapes` are the shapes of memories by identity. With `steps`, the
    tasks also stop before every statement and at their end.
    """

    def __init__(self, source: Source, words: Calls, tasks: int, steps: bool = False) -> None:
        self.source = source
        self.file = source.code.co_filename
        self.task_count = tasks
        self.task = 0
        self.shapes: dict[int, Sequence[int]] = {}
        self._words = words
        self._steps = steps
        self._by_task: dict[tuple[int, int], Accesses] = {}
        # For each task in a loop over lanes: the lane, and the accesses of all lanes.
        self._lane: dict[int, int] = {}
        self._by_lane: dict[int, dict[tuple[int, int], Accesses]] = {}
        self._shared: list[CheckedMemory] = []
        self._taken: dict[int, int] = {}
        # Memories are kept alive during the run, so that no id is reused.
        self._alive: list[np.ndarray] = []

    def run(self, parameters: Mapping[str, Any]) -> None:
        """Runs all tasks; results are written into the arrays of `parameters`."""
        tasks = self.started(parameters)
        waiting = True
        while waiting:
            waiting = False
            for self.task, one in enumerate(tasks):
                waiting |= next(one, self) is not self
            self.pass_barrier()

    def started(self, parameters: Mapping[str, Any]) -> list[Task]:
        """The tasks as generators, none of which has begun.

        The caller sets `task` before it resumes one. A task yields None at a barrier and, with
        `steps`, the line that comes next, or 0 at the end.
        """
        function = self._function()
        return [function(**parameters) for _ in range(self.task_count)]

    def pass_barrier(self) -> None:
        """Forgets all accesses, because all tasks have reached the same barrier."""
        self._by_task.clear()

    def memory(self, buffer: Buffer, values: np.ndarray, is_written: bool) -> CheckedMemory:
        """A parameter of the kernel."""
        return self._memory(
            buffer.name, values, buffer.dtype, is_written, False, buffer.is_read_only
        )

    def _memory(
        self,
        name: str,
        values: np.ndarray,
        dtype: DType,
        is_written: bool,
        is_private: bool,
        is_read_only: bool = False,
    ) -> CheckedMemory:
        flat = values.reshape(-1)
        self.shapes[id(flat)] = values.shape
        self._alive.append(flat)
        places = np.arange(values.size).reshape(values.shape)
        written = None if is_written else np.zeros(values.size, bool)
        return CheckedMemory(self, name, flat, dtype, places, written, is_private, is_read_only)

    # --- watching ---------------------------------------------------------------------------------

    def error(self, message: str, fix: str) -> KernelError:
        """An error at the current line of the kernel."""
        where = f" in task {self.task} at {here(self.file)}"
        return KernelError(f"{self.source.name}: {message}{where}", fix=fix)

    def touch(self, memory: CheckedMemory, place: int, how: str) -> None:
        """Notes an access; raises KernelError if it races with another access."""
        key = id(memory.values), place
        lane = self._lane.get(self.task)
        if lane is not None:
            touched = self._by_lane[self.task]
            self._note(touched, key, lane, how, memory, "iteration", "side by side")
        if not memory.is_private:
            self._note(
                self._by_task, key, self.task, how, memory, "task", "with no barrier between"
            )

    def _note(
        self,
        kept: dict[tuple[int, int], Accesses],
        key: tuple[int, int],
        who: int,
        how: str,
        memory: CheckedMemory,
        what: str,
        where: str,
    ) -> None:
        seen = kept.setdefault(key, Accesses())
        conflict = seen.conflict(who, how)
        if conflict is not None:
            other, verb = conflict
            raise self.error(
                f"a race: {what} {who} {how}s element {memory.at(key[1])} of {memory.name}, which "
                f"{what} {other} {verb} too, {where},",
                "give every one elements of its own, put a barrier() between them, or use "
                "atomic_add()",
            )
        seen.note(who, how)

    # --- the program ------------------------------------------------------------------------------

    def _function(self) -> FunctionType:
        """The kernel as a generator that yields at its barriers."""
        tree = _Rewritten(self._words, self._steps).visit(copy.deepcopy(self.source.tree))
        tree.decorator_list = []
        # The yield makes a kernel without a barrier a generator too.
        never = ast.If(ast.Constant(False), [ast.Expr(ast.Yield(None))], [])
        tree.body.insert(0, never)
        module = ast.fix_missing_locations(ast.Module([tree], []))
        compiled = compile(module, self.file, "exec", dont_inherit=True)
        code = next(one for one in compiled.co_consts if isinstance(one, CodeType))
        return FunctionType(code, _Names(self))  # type: ignore[arg-type]

    def word(self, name: str) -> Any:
        """The interpreter's implementation of a word."""
        own = getattr(self, f"_do_{name}", None)
        if own is not None:
            return own
        if name in ("maximum", "minimum"):
            return lambda *items: self._extreme(name, items)
        if name in _COMBINE:
            return lambda *items: self._update(_COMBINE[name], *items)
        assert name in FUNCTIONS
        return lambda *items: compute(name, *items)

    def _do_task(self) -> Counter:
        return Counter(self.task)

    def _do_tasks(self) -> int:
        return self.task_count

    def _do_range(self, *bounds: Any) -> Iterator[Counter]:
        return map(Counter, range(*map(int, bounds)))

    def _do_lanes(self, extent: Any) -> Generator[Counter, None, None]:
        task = self.task
        self._by_lane[task] = {}
        for lane in range(int(extent)):
            self._lane[task] = lane
            yield Counter(lane)
        self._lane.pop(task, None)

    def _do_cast(self, value: Any, dtype: DType) -> Any:
        return to_type(value, dtype)

    def _do_scratch(self, shape: Any, dtype: DType) -> CheckedMemory:
        values = np.zeros(shape, dtype.numpy)
        return self._memory("scratch memory", values, dtype, False, True)

    def _do_shared(self, shape: Any, dtype: DType) -> CheckedMemory:
        number = self._taken.get(self.task, 0)
        self._taken[self.task] = number + 1
        if number == len(self._shared):
            values = np.zeros(shape, dtype.numpy)
            self._shared.append(self._memory("shared memory", values, dtype, False, False))
        return self._shared[number]

    def _do_copy(self, target: CheckedMemory, source: CheckedMemory) -> None:
        for place, origin in zip(target.places.reshape(-1), source.places.reshape(-1)):
            target.write(int(place), source.read(int(origin)))

    def _do_fill(self, target: CheckedMemory, value: Any) -> None:
        for place in target.places.reshape(-1):
            target.write(int(place), value)

    def _extreme(self, name: str, items: Sequence[Any]) -> Any:
        if all(isinstance(item, (int, float)) for item in items):
            found = max(items) if name == "maximum" else min(items)
            return Counter(found) if isinstance(found, int) else found
        result = scalar(items[0])
        for item in items[1:]:
            result = compute(name, result, item)
        return result

    def _update(self, function: str, target: CheckedMemory, index: Any, value: Any) -> None:
        place = int(target.part(index))
        old = target.values[place]
        if target.written is not None and not target.written[place]:
            raise self.error(
                f"element {target.at(place)} of {target.name} is updated before it is written",
                "give the output an initial value",
            )
        item = to_type(old, target.dtype)
        target.write(place, compute(function, item, to_type(value, target.dtype)), "update")


class _Names(dict):
    """The globals of an interpreted kernel: its words, then the names of its module."""

    def __init__(self, interpreter: Interpreter) -> None:
        super().__init__(__builtins__={})
        self._interpreter = interpreter
        source = interpreter.source
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Name):
                try:
                    self[node.id] = source.lookup(node.id)
                except KeyError:
                    continue
        for name in set(interpreter._words.values()):
            if name != "barrier":
                self[_PREFIX + name] = interpreter.word(name)


class _Rewritten(ast.NodeTransformer):
    """Replaces calls of words by calls of the interpreter, and barriers by yields.

    With `steps`, a yield of its line precedes each statement, and a yield of 0 ends the kernel.
    """

    def __init__(self, words: Calls, steps: bool) -> None:
        self.words = words
        self.steps = steps

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if self.steps:
            node.body.append(ast.Expr(ast.Yield(ast.Constant(0))))
        return node

    def visit(self, node: ast.AST) -> Any:
        found = super().visit(node)
        if not self.steps or not isinstance(node, ast.stmt) or isinstance(node, ast.FunctionDef):
            return found
        stop = ast.Expr(ast.Yield(ast.Constant(node.lineno)))
        return [ast.copy_location(stop, node), found]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        word = self.words.get((node.lineno, node.col_offset))
        self.generic_visit(node)
        if word == "barrier":
            return ast.copy_location(ast.Yield(None), node)
        if word is not None:
            node.func = ast.copy_location(ast.Name(_PREFIX + word, ast.Load()), node.func)
        return node
