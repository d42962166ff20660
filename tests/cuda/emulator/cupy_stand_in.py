"""A stand-in for cupy on GPUs that are none: `install` puts it in cupy's place.

What metaop says to cupy stays as it is; kernels are compiled by g++ and run when their stream
comes to them. Use it in a process of its own: kernels and devices are remembered by metaop.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from metaop.codegen.cuda import device, driver, kernels
from metaop.dist.memory import _gpu_memory
from metaop.executor import clear_programs
from tests.cuda.emulator import arrays, nccl_stand_in, runtime, streams
from tests.cuda.emulator.compiling import Kernel, parameter_types

# The kernels that were launched, by their numbers.
launched: list[int] = []
# Kernels keep the place of a thread in variables, so one runs at a time.
_one_kernel = threading.Lock()
_H2D, _D2H, _D2D = 1, 2, 3


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
        return cls._all[int(driver.ffi.cast("intptr_t", handle)) - 1]

    def put(self, blocks: int, threads: int, stream: int, parameters: Any) -> None:
        """Queues the kernel; its parameters are read now, as the driver does."""
        here = streams.current_device()
        words = []
        for number, is_buffer in enumerate(self._is_buffer):
            words.append(driver.ffi.cast("long long*", parameters[number])[0])
            if is_buffer:
                arrays.check_range(words[-1], 1, here)
        launched.append(len(launched))

        def run() -> None:
            with _one_kernel:
                runtime.launch(self._launch, blocks, threads, words)

        streams.Stream.at(here, stream).put(run)


class _Driver:
    """The functions of the CUDA driver that metaop calls."""

    @staticmethod
    def cuLaunchKernel(function: Any, *rest: Any) -> int:
        """Queues a kernel."""
        (blocks, *_), (threads, *_) = rest[:3], rest[3:6]
        stream, parameters = rest[7:9]
        address = int(driver.ffi.cast("intptr_t", stream))
        _Kernel.at(function).put(blocks, threads, address, parameters)
        return 0


class _PinnedMemory(bytearray):
    """Host memory that a GPU writes by itself."""

    @property
    def ptr(self) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self))


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
    if kind == _H2D:
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
