"""Launches through the CUDA driver, whose library comes with the driver of a GPU.

What a launch needs is prepared once: starting a kernel again is one call, and so is starting many
kernels whose parameters stay.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metaop.errors import DeviceError

if TYPE_CHECKING:
    from metaop.codegen.cuda.runtime import Step

_DECLARED = """
int cuLaunchKernel(
    void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
    unsigned shared, void* stream, void** parameters, void** extra);
typedef struct {
    void* function;
    unsigned blocks[3], threads[3], shared;
    void **parameters, **extra;
    void *kernel, *context;
} Parameters;
int cuGraphCreate(void** graph, unsigned flags);
int cuGraphAddKernelNode_v2(
    void** node, void* graph, void** before, size_t count, const Parameters* parameters);
int cuGraphInstantiateWithFlags(void** made, void* graph, unsigned long long flags);
int cuGraphLaunch(void* made, void* stream);
int cuGraphDestroy(void* graph);
int cuGraphExecDestroy(void* made);
int cuGetErrorString(int status, const char** text);
"""
_SONAMES = ("libcuda.so.1", "nvcuda.dll")


@functools.cache
def interface() -> Any:
    """What `_DECLARED` says, for cffi, whose parser takes 40 ms to import."""
    from cffi import FFI

    made = FFI()
    made.cdef(_DECLARED)
    return made


@functools.cache
def library() -> Any:
    """The driver; raises DeviceError where it is not installed."""
    for name in _SONAMES:
        try:
            return interface().dlopen(name)
        except OSError:
            continue
    raise DeviceError(
        f"none of {' and '.join(_SONAMES)} was found",
        fix="install the driver of the GPU, or stay on the CPU",
    )


def check(status: int, what: str) -> None:
    """Raises DeviceError, with the driver's words, unless a call has succeeded."""
    if status:
        ffi = interface()
        text = ffi.new("const char**")
        library().cuGetErrorString(status, text)
        raise DeviceError(f"{what}: {ffi.string(text[0]).decode()}")


def stream_of(address: int) -> Any:
    """A stream by its address, as the driver takes it."""
    return interface().cast("void*", address)


class Launch:
    """A kernel with the places of its parameters; the integers stay, the addresses may change."""

    def __init__(self, step: Step, addresses: np.ndarray) -> None:
        ffi = interface()
        # Eight bytes for each: a kernel reads as many as its parameter has.
        self._integers = np.array(step.integers, np.int64)
        self._addresses = addresses
        table, own = addresses.ctypes.data, self._integers.ctypes.data
        places = [table + 8 * slot for slot in step.slots]
        error = table + 8 * (len(addresses) - 1)
        places += [*(own + 8 * k for k in range(len(self._integers))), error]
        self.places = ffi.new("void*[]", [ffi.cast("void*", place) for place in places])
        self._kernel = step.kernel
        # Function, blocks, threads and dynamic shared memory.
        self.shape = (ffi.cast("void*", step.kernel.ptr), step.blocks, 1, 1, step.threads, 1, 1, 0)
        self._start, self._none = library().cuLaunchKernel, ffi.NULL

    def start(self, stream: Any) -> None:
        """Queues the kernel on a stream of the current GPU."""
        status = self._start(*self.shape, stream, self.places, self._none)
        if status:
            check(status, "a kernel was not launched")


class Graph:
    """Launches with the parameters that they have now, which one call starts again.

    Each waits for its `predecessors` only, so small kernels may run side by side.
    """

    def __init__(self, launches: Sequence[Launch], predecessors: Iterable[Sequence[int]]) -> None:
        ffi, driver = interface(), library()
        graph, made = ffi.new("void**"), ffi.new("void**")
        check(driver.cuGraphCreate(graph, 0), "a graph was not made")
        nodes = ffi.new("void*[]", len(launches))
        try:
            for number, (launch, earlier) in enumerate(zip(launches, predecessors)):
                function, *numbers, shared = launch.shape
                grid = (numbers[:3], numbers[3:], shared)
                parameters = ffi.new("Parameters*", (function, *grid, launch.places))
                before = ffi.new("void*[]", [nodes[one] for one in earlier])
                status = driver.cuGraphAddKernelNode_v2(
                    nodes + number, graph[0], before, len(earlier), parameters
                )
                check(status, "a kernel was not added to a graph")
            status = driver.cuGraphInstantiateWithFlags(made, graph[0], 0)
            check(status, "a graph was not compiled")
        finally:
            driver.cuGraphDestroy(graph[0])
        self._graph = made[0]
        self._kept = launches
        # At the end of the process the driver frees everything itself.
        weakref.finalize(self, driver.cuGraphExecDestroy, made[0]).atexit = False

    def start(self, stream: Any) -> None:
        """Queues all launches on a stream of the current GPU."""
        check(library().cuGraphLaunch(self._graph, stream), "a graph was not launched")
