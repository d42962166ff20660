"""A stand-in for cupy on GPUs that are none: `install` puts it in cupy's place.

What metaop says to cupy stays as it is; kernels are compiled by g++ and run when their stream
comes to them. Use it in a process of its own: kernels and devices are remembered by metaop.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import random
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from metaop.codegen.cuda import device, driver, kernels
from metaop.dist.memory import _gpu_memory
from metaop.execution.executor import clear_programs
from tests.cuda.emulator import arrays, nccl_stand_in, runtime, streams
from tests.cuda.emulator.compiling import Kernel, parameter_types
from tests.cuda.emulator.streams import StandInError

# The kernels that were launched, by their numbers.
launched: list[int] = []
# Kernels keep the place of a thread in variables, so one runs at a time.
_one_kernel = threading.Lock()
_H2D, _D2H, _D2D = 1, 2, 3
_handles = itertools.count(1)


class CUDARuntimeError(RuntimeError):
    """What cupy raises for errors of the CUDA runtime."""


class OutOfMemoryError(MemoryError):
    """What cupy raises when a GPU has no more memory."""


class _Module:
    """Machine code of a kernel: here its text."""

    folder: Path

    def load(self, code: bytes) -> None:
        self._text = code.decode()

    def get_function(self, symbol: str) -> _Kernel:
        types = parameter_types(self._text, symbol)
        is_buffer = [kind.endswith("*") for kind in types]
        return _Kernel(runtime.load(self._text, symbol, self.folder), is_buffer)


class _Kernel:
    """A kernel on a GPU; `ptr` is its handle for the driver."""

    _all: list[_Kernel] = []

    def __init__(self, launch: Kernel, is_buffer: Sequence[bool]) -> None:
        self._launch = launch
        self._is_buffer = is_buffer
        self._all.append(self)
        self.ptr = len(self._all)

    @classmethod
    def at(cls, handle: Any) -> _Kernel:
        """The kernel of a handle."""
        return cls._all[int(driver.interface().cast("intptr_t", handle)) - 1]

    def put(self, blocks: int, threads: int, stream: int, words: Sequence[int]) -> None:
        """Queues the kernel."""
        here = streams.current_device()
        for word, is_buffer in zip(words, self._is_buffer, strict=True):
            if is_buffer:
                arrays.check_range(word, 1, here)
        launched.append(len(launched))

        def run() -> None:
            with _one_kernel:
                runtime.launch(self._launch, blocks, threads, words)

        streams.Stream.at(here, stream).put(run)

    def words(self, parameters: Any) -> list[int]:
        """The parameters, as they are now."""
        ffi = driver.interface()
        return [ffi.cast("long long*", parameters[k])[0] for k in range(len(self._is_buffer))]


def _address(pointer: Any) -> int:
    return int(driver.interface().cast("intptr_t", pointer))


class _Node(NamedTuple):
    """A kernel of a graph, and the numbers of those that it waits for."""

    kernel: _Kernel
    blocks: int
    threads: int
    words: list[int]
    earlier: set[int]


class _Driver:
    """The functions of the CUDA driver that metaop calls, under their names."""

    # The kernels of graphs, by handle.
    graphs: dict[int, list[_Node]] = {}

    @staticmethod
    def cuLaunchKernel(function: Any, *rest: Any) -> int:
        """Queues a kernel; its parameters are read now."""
        kernel, (stream, parameters, _) = _Kernel.at(function), rest[7:]
        kernel.put(rest[0], rest[3], _address(stream), kernel.words(parameters))
        return 0

    @classmethod
    def cuGraphCreate(cls, graph: Any, flags: int) -> int:
        """Makes an empty graph."""
        return cls._new(graph, [])

    @classmethod
    def cuGraphAddKernelNode_v2(
        cls, node: Any, graph: Any, before: Any, count: int, parameters: Any
    ) -> int:
        """Adds a kernel behind others; its parameters are read now."""
        launches = cls.graphs[_address(graph)]
        earlier = {_address(before[k]) - 1 for k in range(count)}
        if not earlier <= set(range(len(launches))):
            raise StandInError("a kernel is added behind one that is not in the graph")
        kernel = _Kernel.at(parameters.function)
        words = kernel.words(parameters.parameters)
        shape = parameters.blocks[0], parameters.threads[0]
        launches.append(_Node(kernel, *shape, words, earlier))
        node[0] = driver.interface().cast("void*", len(launches))
        return 0

    @classmethod
    def cuGraphInstantiateWithFlags(cls, made: Any, graph: Any, flags: int) -> int:
        """A copy of the graph, ready to be launched."""
        return cls._new(made, list(cls.graphs[_address(graph)]))

    @classmethod
    def cuGraphLaunch(cls, made: Any, stream: Any) -> int:
        """Queues all kernels of a graph, in any order in which none comes before its own."""
        nodes = cls.graphs[_address(made)]
        waiting, done = set(range(len(nodes))), set()
        while waiting:
            number = random.choice([k for k in waiting if nodes[k].earlier <= done])
            node = nodes[number]
            node.kernel.put(node.blocks, node.threads, _address(stream), node.words)
            waiting.remove(number)
            done.add(number)
        return 0

    @classmethod
    def cuGraphDestroy(cls, graph: Any) -> int:
        """Forgets a graph."""
        del cls.graphs[_address(graph)]
        return 0

    cuGraphExecDestroy = cuGraphDestroy

    @classmethod
    def _new(cls, place: Any, launches: list[_Node]) -> int:
        handle = next(_handles)
        cls.graphs[handle] = launches
        place[0] = driver.interface().cast("void*", handle)
        return 0


class _PinnedMemory:
    """Host memory that a GPU reads and writes by itself, when its stream comes to it."""

    # Addresses and sizes of all that there is; aligned as the driver's.
    live: dict[int, int] = {}

    def __new__(cls, size: int) -> Any:
        raw = np.full(size + 512, 0xFF, np.uint8)
        # No array of NumPy: views keep it alive, and not what lies behind it.
        memory = (ctypes.c_char * size).from_buffer(raw, -raw.ctypes.data % 512)
        memory.ptr = ctypes.addressof(memory)
        cls.live[memory.ptr] = size
        weakref.finalize(memory, cls.live.pop, memory.ptr)
        return memory

    @classmethod
    def holds(cls, address: int) -> bool:
        """Whether an address lies in pinned memory."""
        return any(one <= address < one + size for one, size in list(cls.live.items()))


class _Attributes(NamedTuple):
    type: int


class _Pool:
    def used_bytes(self) -> int:
        return arrays.used_bytes(streams.current_device())

    total_bytes = used_bytes

    def free_all_blocks(self) -> None:
        return


def _memcpy(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    here = streams.current_device()
    for address, is_there in ((dst, kind != _D2H), (src, kind != _H2D)):
        if is_there:
            arrays.check_range(address, size, here)
    if kind == _H2D and not _PinnedMemory.holds(src):
        # The driver has taken the values over when the call returns.
        values = ctypes.string_at(src, size)
        streams.Stream.at(here, stream).put(lambda: ctypes.memmove(dst, values, size))
    else:
        streams.Stream.at(here, stream).put(lambda: ctypes.memmove(dst, src, size))


def _memset(ptr: int, value: int, size: int, stream: int) -> None:
    here = streams.current_device()
    arrays.check_range(ptr, size, here)
    streams.Stream.at(here, stream).put(lambda: ctypes.memset(ptr, value, size))


def _properties(index: int) -> dict[str, Any]:
    name = f"emulated {index}".encode()
    return {"name": name, "major": 9, "minor": 0, "totalGlobalMem": 1 << 30}


def install(devices: int | None = None, nccl: bool = True) -> ModuleType:
    """Puts the stand-in where `import cupy` finds it.

    Without `devices` a host has as many GPUs as the launcher has started ranks there. Compiled
    kernels are kept where EMULATED_KERNELS says.
    """
    named = os.environ.get("EMULATED_KERNELS")
    folder = Path(named or tempfile.mkdtemp(prefix="kernels-"))
    folder.mkdir(parents=True, exist_ok=True)
    if not named:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    count = devices or int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1"))
    driver_api = _module(
        "cupy.cuda.runtime",
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: 13000,
        getDevice=streams.current_device,
        getDeviceCount=lambda: count,
        getDeviceProperties=_properties,
        memcpyAsync=_memcpy,
        memcpyDeviceToDevice=_D2D,
        memcpyDeviceToHost=_D2H,
        memcpyHostToDevice=_H2D,
        memsetAsync=_memset,
        pointerGetAttributes=lambda ptr: _Attributes(int(_PinnedMemory.holds(ptr))),
        setDevice=lambda index: streams.Device(index).use(),
    )
    memory = _module("cupy.cuda.memory", OutOfMemoryError=OutOfMemoryError)
    function = _module("cupy.cuda.function", Module=type("Module", (_Module,), {"folder": folder}))
    cuda = _module(
        "cupy.cuda",
        Device=streams.Device,
        Event=streams.Event,
        MemoryPointer=arrays.MemoryPointer,
        Stream=streams.Stream,
        UnownedMemory=arrays.UnownedMemory,
        alloc=arrays.alloc,
        alloc_pinned_memory=_PinnedMemory,
        function=function,
        get_current_stream=streams.get_current_stream,
        get_elapsed_time=streams.get_elapsed_time,
        memory=memory,
        nccl=nccl_stand_in.module() if nccl else _module("cupy.cuda.nccl", available=False),
        runtime=driver_api,
    )
    names = ("asarray", "ascontiguousarray", "asnumpy", "concatenate", "empty_like", "full_like")
    functions = {name: getattr(arrays, name) for name in (*names, "moveaxis", "zeros_like")}
    sys.modules["cupy.cuda.nccl"] = cuda.nccl
    made = _module(
        "cupy", cuda=cuda, ndarray=arrays.ndarray, get_default_memory_pool=_Pool, **functions
    )
    made.__path__ = []

    kernels.machine_code = lambda text, architecture: text.encode()
    driver.library = _Driver
    return made


@contextmanager
def installed(devices: int) -> Iterator[ModuleType]:
    """The stand-in for as long as a test takes."""
    before = {name: sys.modules.get(name) for name in _NAMES}
    compiles, opens, caches = (
        kernels.machine_code,
        driver.library,
        (device.device_count, device.runtime, _gpu_memory),
    )
    for cache in caches:
        cache.cache_clear()
    clear_programs()
    try:
        yield install(devices)
    finally:
        kernels.machine_code, driver.library = compiles, opens
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
        for cache in caches:
            cache.cache_clear()
        clear_programs()


_NAMES = ["cupy", *(f"cupy.{one}" for one in ("cuda", "cuda.nccl", "cuda.runtime"))]
_NAMES += [f"cupy.cuda.{one}" for one in ("memory", "function")]


def _module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made
