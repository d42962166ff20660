"""The operating system on which machine code runs: how to wait, what to call."""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from typing import NamedTuple

from metaop import settings
from metaop.errors import DeviceError

# As Python calls them, and as this package does.
_SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
_PROCESSORS = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
# What LLVM calls them. Its linker reads only ELF objects on Windows.
_TRIPLES = {
    ("linux", "x86_64"): "x86_64-unknown-linux-gnu",
    ("linux", "aarch64"): "aarch64-unknown-linux-gnu",
    ("macos", "x86_64"): "x86_64-apple-darwin",
    ("macos", "aarch64"): "arm64-apple-darwin",
    ("windows", "x86_64"): "x86_64-pc-windows-msvc-elf",
}
# What LLVM itself puts into code: it copies and fills memory by functions of the C library.
_MEMORY = ("memcpy", "memmove", "memset")
_HEAP = ("malloc", "free")
_THREADS = (
    *("pthread_create", "pthread_detach", "pthread_sigmask"),
    *("pthread_attr_init", "pthread_attr_setstacksize", "pthread_attr_destroy"),
)
_CONDITIONS = (
    *("pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock"),
    *("pthread_cond_init", "pthread_cond_wait", "pthread_cond_signal"),
)
_POSIX = (*_MEMORY, *_HEAP, *_THREADS, *_CONDITIONS, "clock_gettime")
# Libraries, and what machine code may call there; an empty name stands for the process itself.
_CALLS: dict[str, dict[str, tuple[str, ...]]] = {
    "linux": {"": (*_POSIX, "syscall")},
    "macos": {"": (*_POSIX, "bzero")},
    "windows": {
        "vcruntime140": _MEMORY,
        "ucrtbase": _HEAP,
        "kernel32": (
            *("CreateThread", "CloseHandle"),
            *("QueryPerformanceCounter", "QueryPerformanceFrequency"),
        ),
        "kernelbase": ("WaitOnAddress", "WakeByAddressSingle"),
        # Functions with large frames call it, so that the stack grows page by page.
        "ntdll": ("__chkstk",),
    },
}


class System(NamedTuple):
    """A system ("linux", "macos", "windows") and the family of its processor ("x86_64", "aarch64").

    With `is_portable`, features that only Linux has are not used.
    """

    name: str
    processor: str
    is_portable: bool = False

    @property
    def has_futex(self) -> bool:
        """Whether threads wait by the futex of Linux."""
        return self.name == "linux" and not self.is_portable

    @property
    def has_own_loader(self) -> bool:
        """Whether `elf_loader` supports it; on other systems LLVM loads objects."""
        return self.has_futex and self.processor == "x86_64"

    @property
    def triple(self) -> str:
        """LLVM's name of the system, for objects that can be loaded there."""
        return _TRIPLES[self.name, self.processor]

    @property
    def calls(self) -> dict[str, tuple[str, ...]]:
        """What machine code may call, by system library."""
        return _CALLS[self.name]


def host_system() -> System:
    """This system, portable if METAOP_PORTABLE is set.

    Raises `DeviceError` on a system or a processor for which no code is made.
    """
    return System(*_host(), is_portable=settings.get("METAOP_PORTABLE"))


@functools.cache
def _host() -> tuple[str, str]:
    system = _SYSTEMS.get(sys.platform, sys.platform)
    processor = _PROCESSORS.get(platform.machine(), platform.machine())
    if (system, processor) not in _TRIPLES:
        known = ", ".join(f"{one} on {name}" for name, one in _TRIPLES)
        raise DeviceError(
            f"no machine code is made for {processor} on {system}, only for {known}",
            fix="use METAOP_BACKEND=reference",
        )
    return system, processor


@functools.cache
def address_in_libraries(name: str) -> int:
    """The address of a function that machine code may call on this system; 0 for any other."""
    for library, names in host_system().calls.items():
        if name in names:
            function = getattr(ctypes.CDLL(library or None), name)
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


def code_is_forbidden(reason: str) -> DeviceError:
    """The error if the system allocates memory, but none for new machine code."""
    return DeviceError(
        f"this system permits no new machine code in memory ({reason})",
        fix="permit it for this process, as by MemoryDenyWriteExecute=no for a service of systemd, "
        "or use METAOP_BACKEND=reference",
    )
