"""Programs on the CPU: compiled kernels, a table of steps and one native call per run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from metaop.codegen.backend import Argument, IndexFault, observers
from metaop.codegen.llvm.kernels import address_of
from metaop.codegen.llvm.layout import Layout, layout_of
from metaop.codegen.llvm.runtime import ERROR_WORDS, STEP_BYTES, Step, StepTable, runtime
from metaop.codegen.memory import Buffer, allocate
from metaop.codegen.schedule import Schedule
from metaop.codegen.slots import pack_scalar
from metaop.unified_graph import dtype as dtypes

# Called between steps with the number of steps done and the results.
Between = Callable[[int, list[Buffer]], None]

# The code of a kernel that could not get its scratch memory.
_OUT_OF_MEMORY = 2


class LLVMProgram:
    """The program of a layout (or schedule) on the host; its addresses are numbered as slots."""

    def __init__(self, plan: Layout | Schedule) -> None:
        layout = self.layout = layout_of(plan) if isinstance(plan, Schedule) else plan
        self._input_types = [dtypes.dtype_named(name) for name in layout.input_types]
        self._made = layout.made
        self._results = layout.results
        self.donors: dict[int, int] = dict(layout.donors)
        self._offsets = np.array(layout.offsets, np.int64)
        start = len(layout.input_types) + len(layout.made)
        self._slot_count = start + len(layout.offsets)
        self._temporaries = slice(start, self._slot_count)
        self._table = StepTable(
            [
                Step(address_of(one.kernel), one.slots, one.arguments, one.tasks, one.grain)
                for one in layout.launches
            ]
        )
        self._count = len(layout.launches)
        self._steps_address = self._table.address
        self._run = runtime().run

    def finished_after(self) -> list[int]:
        """For each result, after how many steps its value is complete."""
        first = len(self.layout.input_types)
        last = [0] * len(self._made)
        for step, launch in enumerate(self.layout.launches):
            for slot in launch.slots:
                if first <= slot < first + len(last):
                    last[slot - first] = step + 1
        return [0 if is_input else last[k] for is_input, k in self._results]

    def run(
        self,
        arguments: Sequence[Argument],
        dying: frozenset[int] = frozenset(),
        between: Between | None = None,
    ) -> list[Buffer]:
        """Runs the steps; raises IndexFault when a kernel met an index out of range.

        `dying` are slots of `donors` whose buffers nobody else holds: results take them over.
        `between` is called before the first step and after each with the number of steps done
        and the results, of which some are not computed yet.
        """
        addresses: list[int] = []
        scalars = bytearray()
        scalar_slots: list[int] = []
        for slot, argument in enumerate(arguments):
            if isinstance(argument, Buffer):
                addresses.append(argument.address)
            else:
                scalar_slots.append(slot)
                addresses.append(len(scalars))
                scalars += pack_scalar(argument, self._input_types[slot])
        made = self._outputs(arguments, dying)
        addresses.extend([buffer.address for buffer in made])
        slots = np.empty(self._slot_count, np.int64)
        slots[: len(addresses)] = addresses
        if scalars:
            block = np.frombuffer(scalars, np.uint8)
            slots[scalar_slots] += block.ctypes.data
        arena = allocate(self.layout.arena_bytes) if self.layout.arena_bytes else None
        if arena is not None:
            np.add(self._offsets, arena.address, out=slots[self._temporaries])
        results = [
            self._passed_through(k, arguments[k]) if is_input else made[k]
            for is_input, k in self._results
        ]
        if between is None:
            self._launch(slots, 0, self._count)
            return results
        between(0, results)
        for step in range(self._count):
            self._launch(slots, step, 1)
            between(step + 1, results)
        return results

    def _outputs(self, arguments: Sequence[Argument], dying: frozenset[int]) -> list[Buffer]:
        """The memory of the results: that of dying donors where there are any, else new."""
        if not dying:
            return [allocate(nbytes) for nbytes in self._made]
        made = []
        for k, nbytes in enumerate(self._made):
            donor = self.donors.get(k)
            given = None if donor is None or donor not in dying else arguments[donor]
            made.append(given if isinstance(given, Buffer) else allocate(nbytes))
        return made

    def _passed_through(self, slot: int, argument: Argument) -> Buffer:
        """An input that is an output as well: values are immutable, so the buffer is shared."""
        if isinstance(argument, Buffer):
            return argument
        return Buffer.from_numpy(np.asarray(argument).astype(self._input_types[slot].numpy))

    def _launch(self, slots: np.ndarray, first: int, count: int) -> None:
        error = np.zeros(ERROR_WORDS, np.int64)
        times = np.zeros(count + 1, np.int64) if observers else None
        failed = self._run(
            self._steps_address + first * STEP_BYTES,
            count,
            slots.ctypes.data,
            error.ctypes.data,
            0 if times is None else times.ctypes.data,
        )
        if error[0] == _OUT_OF_MEMORY:
            raise MemoryError(f"no {int(error[2])} bytes of scratch memory for a kernel")
        if failed:
            raise IndexFault.at(int(error[2]), int(error[3]))
        if times is not None:
            names = [launch.name for launch in self.layout.launches[first : first + count]]
            for observer in tuple(observers):
                observer.ran(self, names, times.tolist())
