"""NVRTC: CUDA C++ text to machine code, without a GPU, a driver or a toolkit.

The library comes from the `nvidia-cuda-nvrtc` wheel, from a CUDA toolkit, or with cupy.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from metaop.errors import DeviceError, InternalError

_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
_OPTIONS = ("--std=c++17", "--ptxas-options=-v")


@dataclass(frozen=True)
class Usage:
    """The resources of a compiled kernel; spills and shared memory in bytes."""

    registers: int
    spill_stores: int
    spill_loads: int
    shared: int


@dataclass(frozen=True)
class Compiled:
    """Machine code for one architecture, and the resources of each kernel."""

    cubin: bytes
    usage: dict[str, Usage]
    log: str


def is_available() -> bool:
    """Whether a library was found."""
    return _library() is not None


def version() -> tuple[int, int]:
    """The version of the compiler: (13, 0) is that of CUDA 13.0."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def compile_text(text: str, architecture: str) -> Compiled:
    """The machine code of CUDA C++ for an architecture such as `sm_90`.

    Raises `InternalError` with the compiler's messages and the text if that is invalid.
    """
    program = ctypes.c_void_p()
    name = b"kernel.cu"
    _call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), name, 0, None, None)
    try:
        options = [f"--gpu-architecture={architecture}", *_OPTIONS]
        encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = _required().nvrtcCompileProgram(program, len(options), encoded)
        log = _read(program, "ProgramLog").decode(errors="replace").rstrip("\0")
        if status:
            raise InternalError(f"NVRTC refuses a kernel:\n{log}\n{_numbered(text)}")
        return Compiled(_read(program, "CUBIN"), parse_usage(log), log)
    finally:
        _call("nvrtcDestroyProgram", ctypes.byref(program))


def _read(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
    content = ctypes.create_string_buffer(size.value)
    _call(f"nvrtcGet{what}", program, content)
    return content.raw


def _numbered(text: str) -> str:
    lines = enumerate(text.splitlines(), start=1)
    return "\n".join(f"{number:4} {line}" for number, line in lines)


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_usage(log: str) -> dict[str, Usage]:
    """The resources of each kernel from the assembler's part of a compiler log."""
    usage: dict[str, Usage] = {}
    name, spills = "", (0, 0)
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name, spills = entry[1], (0, 0)
        elif found := _SPILLS.search(line):
            spills = (int(found[1]), int(found[2]))
        if (registers := _REGISTERS.search(line)) and name:
            shared = _SHARED.search(line)
            usage[name] = Usage(int(registers[1]), *spills, int(shared[1]) if shared else 0)
    return usage


# --- the library ----------------------------------------------------------------------------------


def _candidates() -> Iterator[str]:
    """Where the library may be: the wheels, in their versions, then the system's paths."""
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels.submodule_search_locations or ()) if wheels else ():
        for soname in _SONAMES:
            yield from sorted(map(str, Path(folder).glob(f"*/lib/{soname}")))
    yield from _SONAMES


@functools.cache
def _library() -> ctypes.CDLL | None:
    for path in _candidates():
        try:
            # The library opens its second half by name, so that one must already be loaded.
            for second in Path(path).parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(second))
            library = ctypes.CDLL(path)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    return None


def _required() -> ctypes.CDLL:
    library = _library()
    if library is None:
        raise DeviceError(
            "NVRTC, the CUDA compiler, was not found",
            fix="pip install 'nvidia-cuda-nvrtc==13.0.*', or metaop[cuda13] for all of CUDA",
        )
    return library


def _call(function: str, *arguments: object) -> None:
    library = _required()
    status = getattr(library, function)(*arguments)
    if status:
        message = library.nvrtcGetErrorString(status).decode()
        raise InternalError(f"{function} failed: {message}")
