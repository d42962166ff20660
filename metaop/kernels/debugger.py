"""Stepping through a kernel: its tasks stop before each statement and show their memory."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.errors import ArgumentError, KernelError
from metaop.kernels.checked import CheckedMemory, Scalar
from metaop.kernels.definition import KernelDefinition
from metaop.kernels.interpreter import Task

_END = 0


class Debugger:
    """A kernel that is being stepped through, made by `kernel.debug(inputs)`.

    Each task is stopped before a statement, waits at a barrier, or has ended. What `step`,
    `to_line` and `to_barrier` run is checked as by `kernel.check`: they raise IndexError for an
    access out of bounds, and KernelError for a race or a read of uninitialised memory. If all tasks
    wait at a barrier, the next call passes it. Printing shows the text of the kernel, with the
    tasks beside the lines where they are.

    Example:
        >>> run = row_softmax.debug(metaop.randn(4, 3))
        >>> run.to_line(12)          # the line of the file
        >>> run.values(task=2)       # names, numbers and memories of a task
        >>> run.step(task=2)
        >>> run.to_barrier()         # all tasks
        >>> print(run)
    """

    def __init__(self, definition: KernelDefinition, inputs: Sequence[np.ndarray]) -> None:
        self._source = definition.source
        self._interpreter, arguments, results = definition.interpreted(inputs, steps=True)
        self._outputs = results[: definition.visible]
        self._fault: Exception | None = None
        self._tasks: list[Task] = self._interpreter.started(arguments)
        self._lines = [_END] * len(self._tasks)
        self._waiting: set[int] = set()
        self._ended: set[int] = set()
        for task in range(len(self._tasks)):
            self._go_on(task)

    @property
    def is_done(self) -> bool:
        """Whether all tasks have ended."""
        return len(self._ended) == len(self._tasks)

    def line(self, task: int) -> int | None:
        """The line of the file that a task runs next, or waits at; None if it has ended."""
        return None if self._checked(task) in self._ended else self._lines[task]

    def values(self, task: int) -> dict[str, Any]:
        """The values of a task's names: numbers, and memories as NumPy arrays.

        Uninitialised elements are masked.
        """
        found = inspect.getgeneratorlocals(self._tasks[self._checked(task)])
        return {name: _shown(value) for name, value in found.items()}

    def step(self, task: int | None = None) -> None:
        """Runs one statement of `task`, or of all tasks that do not wait for others.

        Raises KernelError if the task waits at a barrier for others.
        """
        chosen = self._able() if task is None else [self._checked(task)]
        if self._passed_barrier():
            return
        for one in chosen:
            if one in self._waiting:
                raise KernelError(
                    f"{self._source.name}: task {one} waits at a barrier for "
                    f"{_named(self._able())}",
                    fix="step these, or call to_barrier()",
                )
            if one not in self._ended:
                self._go_on(one)

    def to_line(self, line: int) -> None:
        """Runs all tasks until they reach a line of the file, wait at a barrier, or end."""
        passed = self._passed_barrier()
        for task in self._able():
            if not passed:
                self._go_on(task)
            while task in self._able() and self._lines[task] != line:
                self._go_on(task)

    def to_barrier(self) -> None:
        """Runs all tasks to their next barrier, or to the end."""
        self._passed_barrier()
        for task in self._able():
            while task in self._able():
                self._go_on(task)

    def result(self) -> Any:
        """Runs all tasks to the end; returns the output as an array, or a tuple of several.

        An error that a task raised before is raised again.
        """
        while not self.is_done:
            self.to_barrier()
        if self._fault is not None:
            raise self._fault
        return self._outputs[0] if len(self._outputs) == 1 else tuple(self._outputs)

    def __repr__(self) -> str:
        first = self._source.tree.lineno
        last = self._source.tree.end_lineno or first
        lines = [f"{self._source.name}: {len(self._tasks)} tasks, {len(self._ended)} ended"]
        for number in range(first, last + 1):
            there = [k for k in range(len(self._tasks)) if self.line(k) == number]
            mark = f"{_named(there)} >" if there else ""
            text = linecache.getline(self._interpreter.file, number).rstrip()
            lines.append(f"{mark:>12} {number:4}  {text}")
        return "\n".join(lines)

    # --- running ----------------------------------------------------------------------------------

    def _able(self) -> list[int]:
        """The tasks that can continue."""
        stopped = self._waiting | self._ended
        return [task for task in range(len(self._tasks)) if task not in stopped]

    def _go_on(self, task: int) -> None:
        """Runs a task to its next stop."""
        self._interpreter.task = task
        try:
            line = next(self._tasks[task])
        except Exception as fault:
            self._ended.add(task)
            self._fault = fault
            raise
        if line is None:
            self._waiting.add(task)
        elif line == _END:
            self._ended.add(task)
        else:
            self._lines[task] = line

    def _passed_barrier(self) -> bool:
        """Lets the tasks pass a barrier if all that have not ended wait at one."""
        if not self._waiting or self._able():
            return False
        self._interpreter.pass_barrier()
        waiting, self._waiting = sorted(self._waiting), set()
        for task in waiting:
            self._go_on(task)
        return True

    def _checked(self, task: int) -> int:
        if not 0 <= task < len(self._tasks):
            raise ArgumentError(
                f"{self._source.name} has no task {task}",
                fix=f"its {len(self._tasks)} tasks are counted from 0",
            )
        return task


def _shown(value: Any) -> Any:
    if isinstance(value, Scalar):
        return value.number.item()
    if not isinstance(value, CheckedMemory):
        return value
    values = value.values[value.places]
    if value.written is None or value.written[value.places].all():
        return values
    return np.ma.masked_array(values, ~value.written[value.places])


def _named(tasks: Sequence[int]) -> str:
    """Formats numbers as ranges: 0-3,7."""
    ranges: list[list[int]] = []
    for task in tasks:
        if ranges and ranges[-1][1] == task - 1:
            ranges[-1][1] = task
        else:
            ranges.append([task, task])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in ranges)
