"""Memory that processes share: what one of them writes, the others see.

It lies in an anonymous file, whose descriptor is passed to other processes. Nothing has a name, so
nothing is left behind when a process is killed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from multiprocessing import reduction
from typing import Any

import numpy as np

from metaop.codegen.memory import Buffer


class SharedMemory:
    """`nbytes` of shared memory as a `buffer`; of the file `descriptor`, or of a new one."""

    def __init__(self, nbytes: int, descriptor: int | None = None) -> None:
        self.descriptor = _new_file() if descriptor is None else descriptor
        # A mapping has at least one byte.
        extent = max(nbytes, 1)
        if descriptor is None:
            os.ftruncate(self.descriptor, extent)
        mapping = mmap.mmap(self.descriptor, extent)
        self.nbytes = nbytes
        self.buffer = Buffer.from_numpy(np.frombuffer(mapping, np.uint8))

    def write(self, value: np.ndarray) -> None:
        """Puts an array of this size into the memory."""
        self.buffer.view(value.shape, value.dtype)[...] = value

    def __reduce__(self) -> tuple[Any, ...]:
        """For a process that is being started or connected, as multiprocessing pickles."""
        return _attached, (self.nbytes, reduction.DupFd(self.descriptor))

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("metaop-shared")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _attached(nbytes: int, descriptor: Any) -> SharedMemory:
    return SharedMemory(nbytes, descriptor.detach())
