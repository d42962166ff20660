"""Programs on the CPU: compiled kernels, a table of steps and one native call per run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaop.codegen.backend import Argument, IndexFault, observers
from metaop.codegen.llvm.kernels import kernel_cache
from metaop.codegen.llvm.runtime import ERROR_WORDS, Step, StepTable, runtime
from metaop.codegen.memory import Buffer, allocate
from metaop.codegen.schedule import Schedule
from metaop.codegen.slots import Slots, pack_scalar


class LLVMProgram:
    """A schedule compiled for the host.

    The table of addresses (`slots`) holds the inputs, then the distinct outputs, then the
    temporaries.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        numbering = Slots(schedule)
        self._input_types = numbering.input_types
        self._made = numbering.made
        self._results = numbering.results
        self._temporaries = numbering.temporaries
        self._offsets = numbering.offsets
        self._slot_count = numbering.count
        cache = kernel_cache()
        steps = []
        for launch in schedule.launches:
            address, arguments = cache.kernel_for(launch.nest)
            slots = [numbering.of[node] for node in launch.buffers]
            steps.append(Step(address, slots, arguments, launch.nest.tasks, launch.nest.grain))
        self._table = StepTable(steps)
        self._count = len(steps)
        self._steps_address = self._table.address
        self._run = runtime().run

    def run(self, arguments: Sequence[Argument]) -> list[Buffer]:
        """Runs the steps; raises IndexFault when a kernel met an index out of range."""
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
        made = [allocate(nbytes) for nbytes in self._made]
        addresses.extend([buffer.address for buffer in made])
        slots = np.empty(self._slot_count, np.int64)
        slots[: len(addresses)] = addresses
        if scalars:
            block = np.frombuffer(scalars, np.uint8)
            slots[scalar_slots] += block.ctypes.data
        arena = allocate(self.schedule.arena_bytes) if self.schedule.arena_bytes else None
        if arena is not None:
            np.add(self._offsets, arena.address, out=slots[self._temporaries])
        self._launch(slots)
        return [
            self._passed_through(k, arguments[k]) if is_input else made[k]
            for is_input, k in self._results
        ]

    def _passed_through(self, slot: int, argument: Argument) -> Buffer:
        """An input that is an output as well: values are immutable, so the buffer is shared."""
        if isinstance(argument, Buffer):
            return argument
        return Buffer.from_numpy(np.asarray(argument).astype(self._input_types[slot].numpy))

    def _launch(self, slots: np.ndarray) -> None:
        error = np.zeros(ERROR_WORDS, np.int64)
        times = np.zeros(self._count + 1, np.int64) if observers else None
        failed = self._run(
            self._steps_address,
            self._count,
            slots.ctypes.data,
            error.ctypes.data,
            0 if times is None else times.ctypes.data,
        )
        if failed:
            raise IndexFault.at(int(error[2]), int(error[3]))
        if times is not None:
            names = [launch.nest.name for launch in self.schedule.launches]
            for observer in tuple(observers):
                observer.ran(self, names, times.tolist())
