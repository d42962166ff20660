"""The Python interface of the compiled runtime: runs a table of steps on a thread pool."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from metaop import settings
from metaop.codegen.llvm.objects import engine
from metaop.codegen.llvm.runtime_text import STEP_FIELDS, SYMBOLS, runtime_text
from metaop.codegen.llvm.system import System, host_system
from metaop.errors import ArgumentError
from metaop.forking import core_count, register_at_fork

_RUN_TYPE = "int64_t(*)(uintptr_t, int64_t, uintptr_t, uintptr_t, uintptr_t)"
ERROR_WORDS = 4
STEP_BYTES = 8 * STEP_FIELDS


class Step(NamedTuple):
    """One launch of a kernel.

    `kernel` is an address; `slots` are the places of the kernel's buffers in the table of
    addresses, in the order of its parameters; `tasks` is the extent of its parallel range and
    `grain` the number of tasks that one thread takes at a time.
    """

    kernel: int
    slots: Sequence[int]
    scalars: Sequence[int]
    tasks: int
    grain: int


class StepTable:
    """The steps of a program in the format of `Runtime.run`, built once and run many times.

    It holds the addresses of its kernels, so that these stay in memory.
    `address` and `len(table)` are what `Runtime.run` takes. `scalars(step)`, `tasks` and
    `grain` are live arrays: sizes that change between runs are written there.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._kernels = [step.kernel for step in steps]
        self._slots = _flat((step.slots for step in steps), np.int32)
        self._scalars = _flat((step.scalars for step in steps), np.int64)
        slot_starts = _starts(len(step.slots) for step in steps)
        self._scalar_starts = _starts(len(step.scalars) for step in steps)
        self._table = np.zeros((len(steps), STEP_FIELDS), np.int64)
        slots_address, scalars_address = self._slots.ctypes.data, self._scalars.ctypes.data
        for row, step, slot, scalar in zip(
            self._table, steps, slot_starts, self._scalar_starts, strict=False
        ):
            if step.grain < 1:
                raise ArgumentError(f"a step of {step.tasks} tasks has the grain {step.grain}")
            row[:] = (
                step.kernel,
                slots_address + slot * self._slots.itemsize,
                len(step.slots),
                scalars_address + scalar * self._scalars.itemsize,
                step.tasks,
                step.grain,
            )
        self.address: int = self._table.ctypes.data

    def __len__(self) -> int:
        return len(self._table)

    def replace_kernel(self, step: int, kernel: int) -> None:
        """Makes later runs of a step call another address. One that is in progress may call either.

        The step's kernel stays in memory.
        """
        self._kernels.append(kernel)
        self._table[step, 0] = kernel

    def resized(self, tasks: np.ndarray, scalars: np.ndarray) -> StepTable:
        """The same steps with other tasks and other integer arguments, all in one row."""
        found = copy(self)
        found._scalars, found._table = scalars.copy(), self._table.copy()
        found._table[:, 3] += _address_of(found._scalars) - _address_of(self._scalars)
        found._table[:, 4] = tasks
        found.address = _address_of(found._table)
        return found

    @property
    def tasks(self) -> np.ndarray:
        """Number of tasks of each step, int64, writable."""
        return self._table[:, 4]

    @property
    def grain(self) -> np.ndarray:
        """Tasks that one thread takes at a time, for each step, int64, writable, at least 1."""
        return self._table[:, 5]

    def scalars(self, step: int) -> np.ndarray:
        """The integer arguments of one step, int64, writable."""
        return self._scalars[self._scalar_starts[step] : self._scalar_starts[step + 1]]


class Runtime:
    """The thread pool and the step loop of a system; use `runtime()`, there is one in a process.

    `run(steps_address, count, slots_address, error_address, times_address) -> int` runs steps
    in order and lets other Python threads run meanwhile. `slots` is an array of buffer
    addresses, `error` four int64 (code, operator, bad value, limit) that must be zero before,
    `times` null (0) or `count + 1` int64 that receive the time in nanoseconds before each step
    and after the last. It returns 0, or 1 + the number of the step that reported an error.
    Threads that call it at the same time are safe: one uses the pool, the others run alone.
    """

    def __init__(self, system: System) -> None:
        # The part of cffi in C reads types too; the parser in Python takes 40 ms to import.
        import _cffi_backend

        interface = _cffi_backend.FFI()
        self._addresses = engine.compile_symbols(runtime_text(system), SYMBOLS)
        run, set_threads, start = (self._addresses[symbol] for symbol in SYMBOLS)
        self.run: Callable[[int, int, int, int, int], int] = interface.cast(_RUN_TYPE, run)
        self._set_threads: Any = interface.cast("void(*)(int64_t)", set_threads)
        self._start: Any = interface.cast("void(*)(void)", start)
        self._start_pool()
        self._threads = 0
        self.set_num_threads(settings.get("METAOP_NUM_THREADS") or core_count())
        # It also holds the code, which the workers run until the process ends.
        register_at_fork(after_in_child=self._start_pool)

    def _start_pool(self) -> None:
        self._start()

    def set_num_threads(self, count: int) -> None:
        """Sets how many threads may work on one kernel, the caller included."""
        if count < 1:
            raise ArgumentError(f"{count} threads cannot run a kernel", fix="use 1 or more")
        self._threads = count
        self._set_threads(count)

    def get_num_threads(self) -> int:
        """How many threads may work on one kernel."""
        return self._threads


@functools.cache
def runtime() -> Runtime:
    """The runtime of this process, compiled or loaded at the first call."""
    return Runtime(host_system())


def _address_of(array: np.ndarray) -> int:
    """Where an array lies, without the ctypes object that `array.ctypes` makes."""
    address: int = array.__array_interface__["data"][0]
    return address


def _flat(rows: Any, dtype: type) -> np.ndarray:
    return np.array([value for row in rows for value in row], dtype)


def _starts(lengths: Any) -> list[int]:
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    return starts
