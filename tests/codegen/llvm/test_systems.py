"""Machine code for systems and processors that this machine need not have.

What can be run here is: conditions instead of the futex (test_runtime.py), LLVM's loader, AArch64
in an emulator, Windows in Wine. Of macOS the objects are looked at.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

import metaop
from metaop import nn
from metaop.codegen.llvm.objects.object_code import compile_object
from metaop.codegen.llvm.objects.object_file import ObjectFile, object_file
from metaop.codegen.llvm.runtime_text import SYMBOLS, runtime_text
from metaop.codegen.llvm.system import System, address_in_libraries
from metaop.codegen.llvm.target import Target, targets_of
from metaop.export.library import made_library
from tests.export.vector_functions import functions

SYSTEMS = (
    System("linux", "x86_64"),
    System("linux", "x86_64", is_portable=True),
    System("linux", "aarch64"),
    System("linux", "aarch64", is_portable=True),
    System("macos", "x86_64"),
    System("macos", "aarch64"),
    System("windows", "x86_64"),
)

# What the C libraries of the systems export and code may need, by the documents of each: POSIX
# threads and the C standard on Linux (glibc 2.17) and macOS (10.12), with what LLVM calls there to
# fill memory with zeros; on Windows the universal C runtime, its compiler support and the kernel.
_C = {"malloc", "free", "memcpy", "memmove", "memset"}
_POSIX = _C | {
    *("pthread_create", "pthread_detach", "pthread_sigmask", "clock_gettime"),
    *("pthread_attr_init", "pthread_attr_setstacksize", "pthread_attr_destroy"),
    *("pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock"),
    *("pthread_cond_init", "pthread_cond_wait", "pthread_cond_signal"),
}
EXPORTED = {
    "linux": _POSIX | {"syscall"},
    "macos": _POSIX | {"bzero"},
    "windows": _C
    | {"CreateThread", "CloseHandle", "QueryPerformanceCounter", "QueryPerformanceFrequency"}
    | {"WaitOnAddress", "WakeByAddressSingle", "__chkstk"},
}
# On Windows they are in kernelbase.dll, which is part of it since 8, and in no other.
_WINDOWS_LIBRARIES = {"vcruntime140", "ucrtbase", "kernel32", "kernelbase", "ntdll"}


def test_all_that_is_called_is_known() -> None:
    """The table of the loader is the one above."""
    for system in SYSTEMS:
        listed = list(itertools.chain.from_iterable(system.calls.values()))
        assert len(listed) == len(set(listed)) and set(listed) == EXPORTED[system.name]
        assert set(system.calls) == (_WINDOWS_LIBRARIES if system.name == "windows" else {""})
    assert all(map(address_in_libraries, EXPORTED["linux"]))
    assert address_in_libraries("cbrt") == 0


def as_loaded_there(system: System) -> list[Target]:
    """The processors of a system, for code of the model that its loader takes."""
    model = "small" if system.has_own_loader else "large"
    return [replace(target, code_model=model) for target in targets_of(system)]


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_the_runtime_calls_what_its_system_has(system: System) -> None:
    for target in as_loaded_there(system):
        found = object_file(compile_object(runtime_text(system), target))
        assert isinstance(found, ObjectFile) == (system.name != "macos")
        assert set(SYMBOLS) <= found.defined
        assert found.imported <= EXPORTED[system.name]
        assert ("syscall" in found.imported) == system.has_futex
        assert ("pthread_cond_wait" in found.imported) == (
            system.name != "windows" and not system.has_futex
        )
        assert ("WaitOnAddress" in found.imported) == (system.name == "windows")


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_kernels_call_what_their_system_has(system: System, tmp_path: Path) -> None:
    """All vector functions, and a network with packed panels, for each width of vectors."""
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Softmax(1))
    cases = ((functions, metaop.rand(40)), (network, metaop.rand(2, 3, 8, 8)))
    programs = [metaop.export(call, x, tmp_path / "program.mo") for call, x in cases]
    for target in as_loaded_there(system):
        for program in programs:
            found = object_file(made_library(program, "p", target, {}, embed=False).content)
            assert "p_run" in found.defined
            assert found.imported <= EXPORTED[system.name]
