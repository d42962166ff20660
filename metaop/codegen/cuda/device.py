"""GPUs: memory, copies and launches, through cupy if it is installed and finds a device."""

from __future__ import annotations

import functools
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.codegen.checks import Check, unchecked
from metaop.codegen.cuda import driver
from metaop.codegen.cuda.dependencies import predecessors
from metaop.codegen.cuda.runtime import (
    DeviceBuffer,
    DeviceProperties,
    Launcher,
    Runtime,
    Step,
    fault_in,
)
from metaop.codegen.memory.buffers import Buffer
from metaop.errors import DeviceError, OutOfMemoryError
from metaop.unified_graph.faults import Fault

# The most bytes that a kernel reads at once.
_ALIGNMENT = 16
# The driver's number for host memory that devices read by themselves.
_PAGE_LOCKED = 1


class CupyRuntime:
    """A GPU through cupy: its memory pool, its current stream, modules of machine code."""

    def __init__(self, index: int) -> None:
        self._cupy = _cupy()
        self.index = index
        self._most = (0, 0)
        # Pinned memory that the device reads, with the end of the copy.
        self._reads: deque[tuple[Any, Buffer]] = deque()
        self.device = self._cupy.cuda.Device(index)
        self.architecture = f"sm_{self.device.compute_capability}"
        self.multiprocessors = int(self.device.attributes["MultiProcessorCount"])

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Memory from cupy's pool; raises `MemoryError` when the device has no more."""
        with self.device:
            try:
                memory = self._cupy.cuda.alloc(nbytes)
            except self._cupy.cuda.memory.OutOfMemoryError as error:
                message = f"cannot allocate {nbytes} bytes on cuda:{self.index}: {error}"
                raise OutOfMemoryError(
                    message, fix="use smaller batches, or free tensors that are not needed"
                ) from None
        return DeviceBuffer(memory.ptr, nbytes, self, memory, is_pooled=True)

    def copy_from_host(
        self, target: DeviceBuffer, source: Buffer, non_blocking: bool = False
    ) -> None:
        self._copy(target.address, source.address, source.nbytes, "memcpyHostToDevice")
        # The driver has copied pageable memory when the call returns.
        if self.is_pinned(source):
            self._reads.append((self.marker(), source))
            if not non_blocking:
                self._reads[-1][0].synchronize()
        while self._reads and self._reads[0][0].done:
            self._reads.popleft()

    def pinned(self, nbytes: int) -> Buffer:
        memory = self._cupy.cuda.alloc_pinned_memory(max(nbytes, 1))
        return Buffer.from_numpy(np.frombuffer(memory, np.uint8, nbytes))

    def is_pinned(self, buffer: Buffer) -> bool:
        driver = self._cupy.cuda.runtime
        return bool(driver.pointerGetAttributes(buffer.address).type == _PAGE_LOCKED)

    def copy_to_host(self, target: Buffer, source: DeviceBuffer) -> None:
        self._copy(target.address, source.address, target.nbytes, "memcpyDeviceToHost")
        with self.device:
            self._stream().synchronize()
        unchecked.raise_first()

    def _copy(self, target: int, source: int, nbytes: int, kind: str) -> None:
        driver = self._cupy.cuda.runtime
        with self.device:
            driver.memcpyAsync(target, source, nbytes, getattr(driver, kind), self._stream().ptr)

    def buffer_of(self, array: Any) -> DeviceBuffer:
        with self.device:
            held = self._cupy.ascontiguousarray(array)
            if held.data.ptr % _ALIGNMENT:
                # A part of another array: kernels read several elements at once.
                held = held.copy()
        return DeviceBuffer(held.data.ptr, held.nbytes, self, held)

    def array_of(self, buffer: DeviceBuffer, shape: Sequence[int], dtype: Any) -> Any:
        cuda = self._cupy.cuda
        memory = cuda.UnownedMemory(buffer.address, buffer.nbytes, buffer, self.index)
        pointer = cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray(tuple(shape), dtype, pointer)

    def clear(self, target: DeviceBuffer) -> None:
        with self.device:
            stream = self._stream().ptr
            self._cupy.cuda.runtime.memsetAsync(target.address, 0, target.nbytes, stream)

    def load(self, text: str, symbol: str) -> Any:
        from metaop.codegen.cuda.kernels import machine_code

        with self.device:
            module = self._cupy.cuda.function.Module()
            module.load(machine_code(text, self.architecture))
            return module.get_function(symbol)

    def launcher(self, steps: Sequence[Step], addresses: np.ndarray) -> Launcher:
        return _Launcher(self, steps, addresses)

    def check_of(self, words: DeviceBuffer) -> Check:
        return _Check(self, self._cupy.cuda.alloc_pinned_memory(words.nbytes), words)

    def synchronize(self) -> None:
        self.device.synchronize()
        unchecked.raise_first()

    def marker(self) -> Any:
        with self.device:
            event = self._cupy.cuda.Event()
            event.record(self._stream())
        return event

    def is_reached(self, marker: Any) -> bool:
        return bool(marker.done)

    def reached(self, markers: Sequence[Any]) -> list[int]:
        first, last = markers[0], markers[-1]
        last.synchronize()
        unchecked.raise_first()
        between = self._cupy.cuda.get_elapsed_time
        return [int(1e6 * between(first, one)) for one in markers]

    def memory_allocated(self) -> int:
        return self._pool().used_bytes()

    def memory_reserved(self) -> int:
        return self._pool().total_bytes()

    def note_memory(self) -> None:
        # The pool adds up its blocks: too much for every allocation.
        self._most = self.most_memory()

    def most_memory(self) -> tuple[int, int]:
        allocated, reserved = self._most
        pool = self._pool()
        return max(allocated, pool.used_bytes()), max(reserved, pool.total_bytes())

    def forget_most_memory(self) -> None:
        self._most = (0, 0)

    def empty_cache(self) -> None:
        with self.device:
            self._pool().free_all_blocks()

    def properties(self) -> DeviceProperties:
        facts = self._cupy.cuda.runtime.getDeviceProperties(self.index)
        return DeviceProperties(
            facts["name"].decode(),
            facts["major"],
            facts["minor"],
            facts["totalGlobalMem"],
            self.multiprocessors,
        )

    def _pool(self) -> Any:
        with self.device:
            return self._cupy.get_default_memory_pool()

    def _stream(self) -> Any:
        return self._cupy.cuda.get_current_stream()


# The fewest kernels that are worth a graph, the graphs that a program keeps, and how often the same
# addresses must come before there is a graph for them: making one takes as long as many launches.
_LEAST_KERNELS, _KEPT_GRAPHS, _SEEN = 4, 8, 3


class _Launcher:
    """Starts the kernels of a program: as one graph, when all get addresses that have come before.

    A training step gets the same memory again and again, since memory is reused.
    """

    def __init__(self, runtime: CupyRuntime, steps: Sequence[Step], addresses: np.ndarray) -> None:
        self._runtime = runtime
        self._addresses = addresses
        self._steps = steps
        self._prepared = [driver.Launch(step, addresses) for step in steps]
        # By addresses a graph, or how often they came.
        self._graphs: OrderedDict[bytes, driver.Graph | int] = OrderedDict()

    def __call__(self, numbers: range) -> None:
        with self._runtime.device:
            stream = driver.stream_of(self._runtime._stream().ptr)
            is_whole = len(numbers) == len(self._prepared) >= _LEAST_KERNELS
            graph = self._graph() if is_whole else None
            if graph is not None:
                graph.start(stream)
                return
            for number in numbers:
                self._prepared[number].start(stream)

    def _graph(self) -> driver.Graph | None:
        key = self._addresses.tobytes()
        found = self._graphs.get(key, 0)
        if isinstance(found, int):
            found = self._made() if found + 1 == _SEEN else found + 1
            self._graphs[key] = found
        self._graphs.move_to_end(key)
        if len(self._graphs) > _KEPT_GRAPHS:
            self._graphs.popitem(last=False)
        return None if isinstance(found, int) else found

    def _made(self) -> driver.Graph:
        """A graph for the current addresses."""
        accesses = [step.accesses(self._addresses) for step in self._steps]
        return driver.Graph(self._prepared, predecessors(accesses))


class _Check:
    """The end of a run: its fault is copied to memory that the device writes by itself."""

    def __init__(self, runtime: CupyRuntime, here: Any, there: DeviceBuffer) -> None:
        self._runtime = runtime
        self._words = here
        self._count = there.nbytes // 8
        runtime._copy(here.ptr, there.address, there.nbytes, "memcpyDeviceToHost")
        self._end = runtime.marker()

    def is_done(self) -> bool:
        return self._runtime.is_reached(self._end)

    def fault(self) -> Fault | None:
        return fault_in(np.frombuffer(self._words, np.int64, self._count))


_NO_CUPY = "pip install 'metaop[cuda13]' on a machine with an NVIDIA GPU, or stay on the CPU"


def _cupy() -> Any:
    try:
        import cupy
    except ImportError:
        raise DeviceError("CUDA devices need cupy, which is not installed", fix=_NO_CUPY) from None
    return cupy


@functools.cache
def device_count() -> int:
    """The number of usable GPUs; 0 if cupy or the driver is missing."""
    try:
        cupy = _cupy()
    except DeviceError:
        return 0
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


@functools.cache
def runtime(index: int) -> Runtime:
    """The GPU number `index`; raises `DeviceError`, with what to do, when there is none."""
    _cupy()
    count = device_count()
    if index >= count:
        found = f"{count} CUDA devices were found"
        raise DeviceError(
            f"cuda:{index} is not available: {found}",
            fix="check nvidia-smi and CUDA_VISIBLE_DEVICES, or stay on the CPU",
        )
    return CupyRuntime(index)
