"""Programs on the CPU: compiled kernels, a table of steps and one native call per run."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from operator import attrgetter
from time import perf_counter
from typing import Any

import numpy as np

from metaop.codegen.backend import Argument, Between, observers
from metaop.codegen.budget import current_folder
from metaop.codegen.llvm.interruption import run_interruptibly
from metaop.codegen.llvm.kernels import address_of, improved_address_of
from metaop.codegen.llvm.layout import Layout, layout_of
from metaop.codegen.llvm.prepared_run import PreparedRun
from metaop.codegen.llvm.rows import Launch
from metaop.codegen.llvm.run_ahead import note
from metaop.codegen.llvm.runtime import ERROR_WORDS, STEP_BYTES, Step, StepTable, runtime
from metaop.codegen.memory.buffers import Buffer, allocate, settled
from metaop.codegen.memory.slots import SCALAR_BYTES, ScalarPacker, packer_of
from metaop.codegen.memory.spilled import SpillFile
from metaop.codegen.schedule import Schedule, first_of_file
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.faults import reported_fault
from metaop.unified_graph.loop import ENDLESS

# The code of a kernel that could not get its scratch memory.
_OUT_OF_MEMORY = 2
_NO_ERROR = bytes(8 * ERROR_WORDS)
# About as long takes better code of a kernel. A program that has run for the sum is worth it; while
# it waits, it asks again whenever it has run longer by a share of that time.
_SECONDS_OF_A_KERNEL, _LONGER = 0.03, 1.25
_address = attrgetter("address")


class LLVMProgram:
    """The program of a layout (or schedule) on the host; slots are the numbers of its addresses."""

    def __init__(self, plan: Layout | Schedule) -> None:
        layout = layout_of(plan) if isinstance(plan, Schedule) else plan
        # Names, kernels and slots are valid for any size; the integers here are those of the first.
        self.launches = layout.launches
        self.input_types = [dtypes.dtype_named(name) for name in layout.input_types]
        self.made = layout.made
        self._results = layout.results
        # A loop that its values end may run forever. An interrupt must not lose values, so results
        # do not overwrite inputs.
        self._is_endless = any(map(_is_endless, layout.launches))
        donors = {} if self._is_endless else dict(layout.donors)
        self.donors: dict[int, int] = {
            number: donors[made]
            for number, (is_input, made) in enumerate(layout.results)
            if not is_input and made in donors
        }
        # Whether the results are exactly the allocated outputs, each once.
        self._plain = list(layout.results) == [(False, k) for k in range(len(layout.made))]
        self.offsets = layout.offsets
        self.arena_bytes = layout.arena_bytes
        self._spills = (
            SpillFile(current_folder(), layout.spilled_bytes) if layout.spilled_bytes else None
        )
        self._table = StepTable(
            [
                Step(_entry(one), one.slots, one.arguments, one.tasks, one.grain)
                for one in layout.launches
            ]
        )
        self._packer: tuple[list[int], ScalarPacker] | None = None
        self._count = layout.own
        # Addresses that loops set while they run.
        self.spare = [0] * layout.spare
        self._steps_address = self._table.address
        self._run = runtime().run
        quick = sum(one.kernel is not None and one.kernel.is_quick for one in layout.launches)
        # The seconds of its runs, and after how many it asks for better code.
        self._seconds, self._patience = 0.0, _SECONDS_OF_A_KERNEL * quick or math.inf

    @cached_property
    def finished_after(self) -> list[int]:
        """For each result, after how many steps its value is complete."""
        first = len(self.input_types)
        last = [0] * len(self.made)
        for step, launch in enumerate(self.launches[: self._count]):
            for slot in launch.slots:
                if first <= slot < first + len(last):
                    last[slot - first] = step + 1
        return [0 if is_input else last[k] for is_input, k in self._results]

    def resized(self, integers: np.ndarray) -> LLVMProgram:
        """The same launches with other integers, in the order of `integers_of`."""
        found = copy(self)
        first, second = len(self.made), len(self.made) + len(self.offsets)
        found.made = tuple(integers[:first].tolist())
        found.offsets = tuple(integers[first:second].tolist())
        found.arena_bytes = int(integers[second])
        third = second + 1 + len(self.launches)
        found._table = self._table.resized(integers[second + 1 : third], integers[third:])
        found._steps_address = found._table.address
        return found

    def run(
        self,
        arguments: Sequence[Argument],
        memory: Mapping[int, Any] | None = None,
        between: Between | None = None,
    ) -> list[Buffer]:
        """Runs the steps; raises Fault if a kernel met a value that it refuses.

        Results in `memory` are written there. `between` is called before the first step and after
        each with the number of steps done and the results, of which some are not computed yet.
        """
        made = self._outputs(memory)
        addresses = [one.address if isinstance(one, Buffer) else 0 for one in arguments]
        if 0 in addresses:
            # Which arguments are numbers is the same in every run.
            numbers, packer = self._packer or self._packer_of(addresses)
            packed = array("q", packer.pack([arguments[slot] for slot in numbers]))  # type: ignore
            start, _ = packed.buffer_info()
            for slot in numbers:
                addresses[slot] = start
                start += SCALAR_BYTES
        addresses += map(_address, made)
        results = made if self._plain else self._results_of(made, arguments)
        spilled = self._spills and self._spills.taken()
        try:
            if self.offsets:
                arena = allocate(self.arena_bytes)
                start = arena.address
                if spilled:
                    addresses += self._places(start, spilled.address)
                else:
                    addresses += [start + offset for offset in self.offsets]
                addresses += self.spare
            slots = array("q", addresses)
            if between is None:
                self.launch(slots)
                return results
            settled()
            between(0, results)
            for step in range(self._count):
                self._run_steps(slots, step, 1)
                between(step + 1, results)
            return results
        finally:
            if self._spills and spilled:
                self._spills.given_back(spilled)

    def _places(self, arena: int, file: int) -> list[int]:
        """The addresses of the temporaries, in an arena or in the file of those that spill."""
        first = first_of_file(self.arena_bytes)
        return [file + x - first if x >= first else arena + x for x in self.offsets]

    def prepared(
        self,
        arguments: Sequence[Argument],
        memory: Mapping[int, Buffer],
        varying: Sequence[int],
    ) -> PreparedRun | None:
        """A run as `run(arguments, memory)` that can be repeated with other `varying` arguments."""
        if self._spills or not self._plain:
            return None
        return PreparedRun(self, arguments, memory, varying)

    def launch(self, slots: array[int]) -> None:
        """Runs all steps on a table of addresses; raises Fault or MemoryError."""
        settled()
        self._run_steps(slots, 0, self._count)

    def _results_of(self, made: Sequence[Buffer], arguments: Sequence[Argument]) -> list[Buffer]:
        """The results: allocated outputs, and inputs that are passed through."""
        return [
            self._passed_through(k, arguments[k]) if is_input else made[k]
            for is_input, k in self._results
        ]

    def _packer_of(self, addresses: Sequence[int]) -> tuple[list[int], ScalarPacker]:
        """The positions of the arguments that are numbers, and their packer."""
        slots = [k for k, address in enumerate(addresses) if not address]
        self._packer = slots, packer_of(tuple([self.input_types[slot] for slot in slots]))
        return self._packer

    def _outputs(self, memory: Mapping[int, Buffer] | None) -> list[Buffer]:
        """The memory of the outputs: the given buffers, else new ones."""
        if not memory:
            return [allocate(nbytes) for nbytes in self.made]
        if not self._plain:
            memory = {self._results[number][1]: buffer for number, buffer in memory.items()}
        given = memory.get
        return [given(made) or allocate(nbytes) for made, nbytes in enumerate(self.made)]

    def _passed_through(self, slot: int, argument: Argument) -> Buffer:
        """An input that is an output as well: values are immutable, so the buffer is shared."""
        if isinstance(argument, Buffer):
            return argument
        return Buffer.from_numpy(np.asarray(argument).astype(self.input_types[slot].numpy))

    def launch_ahead(
        self,
        slots: array[int],
        used: Sequence[Any],
        results: Sequence[Buffer],
        undo: Callable[[], None],
    ) -> None:
        """Makes another thread run all steps; see `run_ahead.note`."""
        note(lambda: self._run_steps(slots, 0, self._count), used, results, undo)

    @property
    def may_run_ahead(self) -> bool:
        """Whether another thread may run the program, because no observer watches it."""
        return not (self._is_endless or observers)

    def _run_steps(self, slots: array[int], first: int, count: int) -> None:
        error = array("q", _NO_ERROR)
        times = np.zeros(count + 1, np.int64) if observers else None
        arguments = (
            self._steps_address + first * STEP_BYTES,
            count,
            slots.buffer_info()[0],
            error.buffer_info()[0],
            0 if times is None else times.ctypes.data,
        )
        start = perf_counter()
        if self._is_endless:
            failed = run_interruptibly(lambda: self._run(*arguments), error)
        else:
            failed = self._run(*arguments)
        self._seconds += perf_counter() - start
        if self._seconds > self._patience:
            self._improve()
        if failed:
            if error[0] == _OUT_OF_MEMORY:
                raise MemoryError(f"no {error[2]} bytes of scratch memory for a kernel")
            raise reported_fault(error[1], error[2], error[3])
        if times is not None:
            names = [launch.name for launch in self.launches[first : first + count]]
            for observer in tuple(observers):
                observer.ran(self, names, times.tolist())

    def _improve(self) -> None:
        """Takes the better code of kernels, and asks for what is not there yet."""
        found = {
            step: improved_address_of(one.kernel)
            for step, one in enumerate(self.launches)
            if one.kernel is not None
        }
        for step, address in found.items():
            if address is not None:
                self._table.replace_kernel(step, address)
        self._patience = self._seconds * _LONGER if None in found.values() else math.inf


def _is_endless(launch: Launch) -> bool:
    """Whether a launch repeats others until a value ends it; its second number is the length."""
    return launch.kernel is None and launch.arguments[1] == ENDLESS


def _entry(launch: Launch) -> int:
    """The address of a kernel; a row that repeats others has none."""
    return 0 if launch.kernel is None else address_of(launch.kernel)
