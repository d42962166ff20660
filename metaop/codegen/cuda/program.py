"""Programs on a GPU: compiled kernels queued in order on one stream."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from metaop.codegen.backend import Between, observers
from metaop.codegen.checks import Check, unchecked
from metaop.codegen.cuda.kernels import DeviceKernels
from metaop.codegen.cuda.runtime import DeviceBuffer, Runtime, Step
from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.memory.slots import SCALAR_BYTES, Slots, pack_scalar
from metaop.codegen.nest.ir import CheckedIndex
from metaop.codegen.schedule import Schedule, donations

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

    A run queues the kernels and returns. Values that they refuse are reported later, unless the
    program `waits` for its kernels.
    """

    def __init__(self, schedule: Schedule, device: Runtime, waits: bool = False) -> None:
        self.arena_bytes = schedule.arena_bytes
        self.device = device
        self._slots = slots = Slots(schedule)
        self.donors = _donors(schedule, slots)
        most = most_blocks(device.multiprocessors)
        found = kernels_of(device).launches_for([launch.nest for launch in schedule.launches])
        self._names = [launch.nest.name for launch in schedule.launches]
        self._steps = [
            Step(
                made.kernel,
                made.layout.blocks(launch.nest, most),
                made.layout.threads,
                [slots.of[node] for node in launch.buffers],
                [node.nbytes for node in launch.buffers],
                [parameter.role != "read" for parameter in launch.nest.parameters],
                made.arguments,
            )
            for launch, made in zip(schedule.launches, found)
        ]
        self._checks = any(_has_checks(launch.nest.body) for launch in schedule.launches)
        self._waits = waits
        self._error = device.allocate(_ERROR_WORDS * 8)
        # The addresses of a run, behind them that of the error slot; runs take turns.
        self._addresses = np.zeros(slots.count + 1, np.int64)
        self._addresses[-1] = self._error.address
        self._launch = device.launcher(self._steps, self._addresses)
        self._lock = threading.Lock()

    @functools.cached_property
    def finished_after(self) -> list[int]:
        """For each result, after how many kernels its value is complete."""
        slots = self._slots
        first = len(slots.input_types)
        last = [0] * len(slots.made)
        for number, step in enumerate(self._steps):
            for slot in step.slots:
                if first <= slot < first + len(last):
                    last[slot - first] = number + 1
        return [0 if is_input else last[k] for is_input, k in slots.results]

    def run(
        self,
        arguments: Sequence[Argument],
        memory: Mapping[int, Any] | None = None,
        between: Between | None = None,
    ) -> list[DeviceBuffer]:
        """Queues the kernels; raises Fault if it waits for them and one refused a value.

        Arguments in host memory are copied to the device. What `between` puts on another stream
        after an event runs after the kernels launched so far, concurrently with later ones.
        """
        slots, device = self._slots, self.device
        held = self._on_device(arguments)
        given = {} if memory is None else {slots.results[k][1]: memory[k] for k in memory}
        made = [given.get(k) or device.allocate(nbytes) for k, nbytes in enumerate(slots.made)]
        results = [held[k] if is_input else made[k] for is_input, k in slots.results]
        with self._lock:
            table = self._addresses
            first = len(held) + len(made)
            table[:first] = [buffer.address for buffer in (*held, *made)]
            if self.arena_bytes:
                arena = device.allocate(self.arena_bytes)
                table[slots.temporaries] = slots.offsets + arena.address
            device.note_memory()
            if self._checks:
                device.clear(self._error)
            if between is None and not observers:
                self._launch(range(len(self._steps)))
            else:
                self._launch_watched(results, between)
            check = device.check_of(self._error) if self._checks else None
        if check is not None:
            self._note(check)
        return results

    def _launch_watched(self, results: list[DeviceBuffer], between: Between | None) -> None:
        """Launches kernel by kernel, for those who want to do something after each."""
        begin = time.monotonic_ns()
        markers = [self.device.marker()] if observers else None
        if between is not None:
            between(0, results)
        for number in range(len(self._steps)):
            self._launch(range(number, number + 1))
            if markers is not None:
                markers.append(self.device.marker())
            if between is not None:
                between(number + 1, results)
        if markers is not None:
            times = [begin + passed for passed in self.device.reached(markers)]
            for observer in tuple(observers):
                observer.ran(self, self._names, times)

    def _note(self, check: Check) -> None:
        if not self._waits:
            unchecked.add(check)
            return
        self.device.synchronize()
        fault = check.fault()
        if fault is not None:
            raise fault

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


def _donors(schedule: Schedule, slots: Slots) -> dict[int, int]:
    """The number of a result -> the number of the input whose memory it may take."""
    first = len(schedule.inputs)
    found = {slots.of[result] - first: slots.of[x] for result, x in donations(schedule).items()}
    return {
        number: found[made]
        for number, (is_input, made) in enumerate(slots.results)
        if not is_input and made in found
    }


def _part(block: DeviceBuffer, position: int) -> DeviceBuffer:
    """A number within a block, which it keeps alive."""
    return DeviceBuffer(block.address + position, SCALAR_BYTES, block.runtime, block)


def _has_checks(item: Any) -> bool:
    if isinstance(item, CheckedIndex):
        return True
    return isinstance(item, tuple) and any(map(_has_checks, item))
