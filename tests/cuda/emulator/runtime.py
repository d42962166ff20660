"""A GPU that is none: the runtime's interface over host memory and emulated kernels."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from metaop.codegen.cuda.device import DeviceBuffer, DeviceProperties
from metaop.codegen.memory.buffers import Buffer
from tests.cuda.emulator import COMMAND, HEADER, ORDERS, KernelFault

_KERNEL = re.compile(r"__global__ void __launch_bounds__\(\d+\) (\w+)\((.*?)\)\n\{", re.S)


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
        return DeviceBuffer(memory.ctypes.data, nbytes, self, memory)

    def copy_from_host(self, target: DeviceBuffer, source: Buffer) -> None:
        ctypes.memmove(target.address, source.address, source.nbytes)

    def copy_to_host(self, target: Buffer, source: DeviceBuffer) -> None:
        ctypes.memmove(target.address, source.address, target.nbytes)

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

    def launch(self, kernel: Any, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        launch(kernel, blocks, threads, arguments)
        self.launches.append(threads)

    def synchronize(self) -> None:
        return

    def memory_allocated(self) -> int:
        return 0

    def memory_reserved(self) -> int:
        return 0

    def empty_cache(self) -> None:
        return

    def properties(self) -> DeviceProperties:
        return DeviceProperties("emulated", 9, 0, 1 << 30, self.multiprocessors)


def load(text: str, symbol: str, folder: Path) -> Any:
    """A kernel, compiled into a folder, where several processes may look for it."""
    waits = int("_sync" in text)
    code = f'#include "{HEADER.name}"\n{text}\n{_launcher(text, symbol, waits)}'
    name = hashlib.sha256((HEADER.read_text() + code).encode()).hexdigest()[:16]
    library, source = folder / f"{name}.so", folder / f"{name}.cpp"
    with _locked(folder / HEADER.name) as header:
        if not header.exists():
            compiled = str(header.with_suffix(".h.gch"))
            _compile(str(HEADER), "-x", "c++-header", "-o", compiled)
            header.write_text(HEADER.read_text())
    with _locked(library):
        if not library.exists():
            source.write_text(code)
            made = library.with_suffix(".new")
            _compile("-I", str(folder), str(source), "-o", str(made))
            made.replace(library)
    launch = ctypes.CDLL(str(library)).launch
    launch.restype = ctypes.c_char_p
    return launch


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """The path of a file that one process makes, while others wait."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path


def _compile(*arguments: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise KernelFault(done.stderr[:4000])


def launch(kernel: Any, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
    """Runs a kernel to its end, its threads in the order that EMULATED_ORDER names."""
    words = (ctypes.c_longlong * len(arguments))(*(int(one) for one in arguments))
    order = ORDERS.index(os.environ.get("EMULATED_ORDER", "forward"))
    message = kernel(blocks, threads, words, order)
    if message:
        raise KernelFault(message.decode())


def _launcher(text: str, symbol: str, waits: int) -> str:
    found = _KERNEL.search(text)
    assert found is not None and found[1] == symbol
    types = [parameter.strip().rpartition(" ")[0] for parameter in found[2].split(",")]
    types = [kind.replace("__restrict__", "") for kind in types]
    arguments = ", ".join(f"({kind})words[{k}]" for k, kind in enumerate(types))
    return f"""\
static void call(void* data)
{{
    const long long* words = (const long long*)data;
    {symbol}({arguments});
}}
extern "C" const char* launch(int blocks, int threads, long long* words, int order)
{{
    return emulate(call, words, blocks, threads, {waits}, (Order)order);
}}
"""
