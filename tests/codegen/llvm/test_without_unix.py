"""What metaop does where the calls of Unix are missing, as on Windows."""

from __future__ import annotations

import mmap
import multiprocessing.reduction
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from metaop.codegen.llvm import system
from metaop.codegen.llvm.system import host_system
from metaop.codegen.memory import shared as shared_memory
from metaop.codegen.memory.shared import SharedMemory
from metaop.errors import DeviceError
from tests.codegen.llvm import without_unix


def losses(*arguments: str, portable: bool) -> list[float]:
    """What a program prints that trains a network for two steps."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "METAOP_PORTABLE": str(portable),
    }
    printed = subprocess.check_output(
        [sys.executable, *arguments], env=environment, text=True, timeout=300
    )
    return [float(line) for line in printed.split()]


def test_a_network_trains_without_unix() -> None:
    """Names and modules are hidden before the import; the losses are those of this system."""
    file = Path(without_unix.__file__)
    found = losses(str(file), portable=True)
    program = file.read_text().replace("    hide()\n", "")
    wanted = losses("-c", program, portable=False)
    assert len(found) == 2
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("nbytes", [0, 4000])
def test_memory_without_memory_files(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS passes the descriptors of files that have no name."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    shared = SharedMemory(nbytes)
    other = SharedMemory(nbytes, os.dup(shared.place))
    value = np.arange(nbytes, dtype=np.uint8)
    shared.write(value)
    np.testing.assert_array_equal(other.buffer.view((nbytes,), np.uint8), value)


def test_memory_with_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has maps that processes find by a name; here a table of files stands for them."""
    files: dict[str, int] = {}

    def named(descriptor: int, nbytes: int, name: str) -> mmap.mmap:
        assert descriptor == -1
        if name not in files:
            files[name] = shared_memory._new_file(nbytes)
        return real(files[name], nbytes)

    real = mmap.mmap
    monkeypatch.delattr(multiprocessing.reduction, "DupFd")
    monkeypatch.setattr(shared_memory.mmap, "mmap", named)
    shared, unlike = SharedMemory(4000), SharedMemory(4000)
    other = pickle.loads(pickle.dumps(shared))
    value = np.arange(1000, dtype=np.int32)
    shared.write(value)
    np.testing.assert_array_equal(other.buffer.view((1000,), np.int32), value)
    assert not unlike.buffer.view((1000,), np.int32).any() and len(files) == 2
    for descriptor in files.values():
        os.close(descriptor)


@pytest.mark.parametrize(
    ("platform", "machine", "known"),
    [
        ("linux", "x86_64", ("linux", "x86_64")),
        ("linux", "aarch64", ("linux", "aarch64")),
        ("darwin", "arm64", ("macos", "aarch64")),
        ("darwin", "x86_64", ("macos", "x86_64")),
        ("win32", "AMD64", ("windows", "x86_64")),
        ("win32", "ARM64", None),
        ("linux", "riscv64", None),
        ("freebsd14", "amd64", None),
    ],
)
def test_systems_are_known_or_refused(
    platform: str, machine: str, known: tuple[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system.sys, "platform", platform)
    monkeypatch.setattr(system.platform, "machine", lambda: machine)
    monkeypatch.setattr(system, "_host", system._host.__wrapped__)
    if known is None:
        with pytest.raises(DeviceError, match=r"no machine code is made for[\s\S]*reference"):
            host_system()
    else:
        assert host_system()[:2] == known
