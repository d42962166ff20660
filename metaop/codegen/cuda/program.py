"""Programs on a GPU: compiled kernels launched in order on one stream."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from metaop.codegen.backend import observers
from metaop.codegen.cuda.device import DeviceBuffer, Runtime
from metaop.codegen.cuda.kernels import DeviceKernels
from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.memory.slots import SCALAR_BYTES, Slots, pack_scalar
from metaop.codegen.nest.ir import CheckedIndex
from metaop.codegen.schedule import Schedule
from metaop.unified_graph.faults import reported_fault

Argument: TypeAlias = "DeviceBuffer | Buffer | int | float | bool"
_ERROR_WORDS = 4
# More blocks than this for each multiprocessor would only queue up.
_BLOCKS_PER_MULTIPROCESSOR = 32


@functools.cache
def kernels_of(device: Any) -> DeviceKernels:
    """The kernels of a device: one cache that all programs share."""
    return DeviceKernels(device)


def most_blocks(multiprocessors: int) -> int:
    """The most blocks of a launch on a device; each block then does several tasks."""
    return _BLOCKS_PER_MULTIPROCESSOR * multiprocessors


class CudaProgram:
    """A schedule compiled for a GPU.

    A run only launches the kernels, unless one of them checks indices: then it waits.
    """

    def __init__(self, schedule: Schedule, device: Runtime) -> None:
        self.arena_bytes = schedule.arena_bytes
        self.device = device
        self._slots = Slots(schedule)
        # Results do not reuse memory, because kernels of one program may overlap on the device.
        self.donors: dict[int, int] = {}
        most = most_blocks(device.multiprocessors)
        kernels = kernels_of(device)
        self._names = [launch.nest.name for launch in schedule.launches]
        self._steps = []
        found = kernels.launches_for([launch.nest for launch in schedule.launches])
        for launch, step in zip(schedule.launches, found):
            integer = np.int32 if step.layout.index_type == "int" else np.int64
            arguments = [integer(value) for value in step.arguments]
            slots = [self._slots.of[node] for node in launch.buffers]
            blocks = step.layout.blocks(launch.nest, most)
            self._steps.append((step.kernel, blocks, step.layout.threads, slots, arguments))
        self._checks = any(_has_checks(launch.nest.body) for launch in schedule.launches)
        self._error = device.allocate(_ERROR_WORDS * 8)

    @functools.cached_property
    def finished_after(self) -> list[int]:
        """For each result, after how many kernels its value is complete."""
        slots = self._slots
        first = len(slots.input_types)
        last = [0] * len(slots.made)
        for number, (_, _, _, used, _) in enumerate(self._steps):
            for slot in used:
                if first <= slot < first + len(last):
                    last[slot - first] = number + 1
        return [0 if is_input else last[k] for is_input, k in slots.results]

    def run(
        self,
        arguments: Sequence[Argument],
        memory: Mapping[int, Any] | None = None,
        between: Callable[[int, list[Any]], None] | None = None,
    ) -> list[DeviceBuffer]:
        """Launches the kernels; raises Fault if one met a value that it refuses.

        Arguments in host memory are copied to the device. What `between` puts on another stream
        after an event runs after the kernels launched so far, concurrently with later ones.
        """
        slots = self._slots
        held = self._on_device(arguments)
        addresses = [buffer.address for buffer in held]
        made = [self.device.allocate(nbytes) for nbytes in slots.made]
        addresses.extend(buffer.address for buffer in made)
        if self.arena_bytes:
            arena = self.device.allocate(self.arena_bytes)
            addresses.extend((slots.offsets + arena.address).tolist())
        if self._checks:
            self.device.clear(self._error)
        results = [held[k] if is_input else made[k] for is_input, k in slots.results]
        if between is not None:
            between(0, results)
        begin = time.monotonic_ns()
        markers = [self.device.marker()] if observers else None
        for number, (kernel, blocks, threads, used, integers) in enumerate(self._steps):
            parameters = [addresses[slot] for slot in used]
            parameters += [*integers, self._error.address]
            self.device.launch(kernel, blocks, threads, parameters)
            if markers is not None:
                markers.append(self.device.marker())
            if between is not None:
                between(number + 1, results)
        if self._checks:
            self._raise_fault()
        if markers is not None:
            times = [begin + passed for passed in self.device.reached(markers)]
            for observer in tuple(observers):
                observer.ran(self, self._names, times)
        return results

    def _on_device(self, arguments: Sequence[Argument]) -> list[DeviceBuffer]:
        """The arguments in device memory; one copy transfers all Python numbers."""
        numbers = bytearray()
        for argument, dtype in zip(arguments, self._slots.input_types):
            if not isinstance(argument, (DeviceBuffer, Buffer)):
                numbers += pack_scalar(argument, dtype)
        packed = np.frombuffer(numbers, np.uint8)
        block = self._uploaded(Buffer.from_numpy(packed)) if numbers else None
        held: list[DeviceBuffer] = []
        position = 0
        for argument in arguments:
            if isinstance(argument, DeviceBuffer):
                held.append(argument)
            elif isinstance(argument, Buffer):
                held.append(self._uploaded(argument))
            else:
                assert block is not None
                held.append(_part(block, position))
                position += SCALAR_BYTES
        return held

    def _uploaded(self, source: Buffer) -> DeviceBuffer:
        target = self.device.allocate(source.nbytes)
        self.device.copy_from_host(target, source)
        return target

    def _raise_fault(self) -> None:
        words = self._error.view((_ERROR_WORDS,), np.int64)
        if words[0]:
            raise reported_fault(*map(int, words[1:4]))


def _part(block: DeviceBuffer, position: int) -> DeviceBuffer:
    """A number within a block, which it keeps alive."""
    return DeviceBuffer(block.address + position, SCALAR_BYTES, block.runtime, block)


def _has_checks(item: Any) -> bool:
    if isinstance(item, CheckedIndex):
        return True
    return isinstance(item, tuple) and any(map(_has_checks, item))
