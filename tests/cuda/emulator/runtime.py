"""A GPU that is none: the runtime's interface over host memory and emulated kernels."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metaop.codegen.checks import unchecked
from metaop.codegen.cuda.runtime import (
    DeviceBuffer,
    DeviceProperties,
    Launcher,
    Step,
    fault_in,
)
from metaop.codegen.memory.buffers import Buffer, allocate
from metaop.unified_graph.faults import Fault
from tests.cuda.emulator.compiling import Kernel, compiled, launcher


class _Done(NamedTuple):
    """The end of a run: the GPU is done with it at once."""

    words: np.ndarray

    def is_done(self) -> bool:
        return True

    def fault(self) -> Fault | None:
        return fault_in(self.words)


class EmulatedRuntime:
    """One device whose kernels g++ compiles, one file a kernel, into `folder`."""

    architecture = "emulated"
    multiprocessors = 2

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launches: list[int] = []
        self._live: dict[int, int] = {}

    def allocate(self, nbytes: int) -> DeviceBuffer:
        memory = np.full(max(nbytes, 1), 0xFF, np.uint8)
        return DeviceBuffer(memory.ctypes.data, nbytes, self, memory, is_pooled=True)

    def copy_from_host(
        self, target: DeviceBuffer, source: Buffer, non_blocking: bool = False
    ) -> None:
        ctypes.memmove(target.address, source.address, source.nbytes)

    def pinned(self, nbytes: int) -> Buffer:
        return allocate(nbytes)

    def is_pinned(self, buffer: Buffer) -> bool:
        return False

    def copy_to_host(self, target: Buffer, source: DeviceBuffer) -> None:
        ctypes.memmove(target.address, source.address, target.nbytes)
        unchecked.raise_first()

    def buffer_of(self, array: np.ndarray) -> DeviceBuffer:
        held = np.ascontiguousarray(array)
        return DeviceBuffer(held.ctypes.data, held.nbytes, self, held)

    def array_of(self, buffer: DeviceBuffer, shape: Sequence[int], dtype: Any) -> np.ndarray:
        memory: np.ndarray = buffer._owner
        offset = buffer.address - memory.ctypes.data
        raw = memory.reshape(-1).view(np.uint8)[offset : offset + buffer.nbytes]
        return raw.view(dtype).reshape(tuple(shape))

    def clear(self, target: DeviceBuffer) -> None:
        ctypes.memset(target.address, 0, target.nbytes)

    def load(self, text: str, symbol: str) -> Any:
        return load(text, symbol, self.folder)

    def launcher(self, steps: Sequence[Step], addresses: np.ndarray) -> Launcher:
        def start(numbers: range) -> None:
            for number in numbers:
                step = steps[number]
                given = [int(addresses[slot]) for slot in step.slots]
                launch(step.kernel, step.blocks, step.threads, [*given, *step.integers, error()])
                self.launches.append(step.threads)

        def error() -> int:
            return int(addresses[-1])

        return start

    def check_of(self, words: DeviceBuffer) -> _Done:
        return _Done(np.array((ctypes.c_int64 * (words.nbytes // 8)).from_address(words.address)))

    def synchronize(self) -> None:
        unchecked.raise_first()

    def marker(self) -> int:
        return time.monotonic_ns()

    def is_reached(self, marker: int) -> bool:
        return True

    def reached(self, markers: Sequence[int]) -> list[int]:
        return [one - markers[0] for one in markers]

    def memory_allocated(self) -> int:
        return 0

    def memory_reserved(self) -> int:
        return 0

    def note_memory(self) -> None:
        return

    def most_memory(self) -> tuple[int, int]:
        return 0, 0

    def forget_most_memory(self) -> None:
        return

    def empty_cache(self) -> None:
        return

    def properties(self) -> DeviceProperties:
        return DeviceProperties("emulated", 9, 0, 1 << 30, self.multiprocessors)


def load(text: str, symbol: str, folder: Path) -> Kernel:
    """A kernel, compiled into a folder, where several processes may look for it."""
    return Kernel(compiled(launcher(text, symbol, "launch"), folder), "launch")


def launch(kernel: Kernel, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
    """Runs a kernel to its end, its threads in the order that EMULATED_ORDER names."""
    kernel(blocks, threads, arguments, os.environ.get("EMULATED_ORDER", "forward"))
