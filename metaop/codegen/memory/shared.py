"""Memory that processes share.

It is in an anonymous file, whose descriptor is passed to other processes. Nothing has a name, so
nothing is left behind when a process is killed. On Windows it is a named mapping, which ends with
the last process that has it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from multiprocessing import reduction
from typing import Any
from uuid import uuid4

import numpy as np

from metaop import settings
from metaop.codegen.memory.buffers import Buffer


class SharedMemory:
    """`nbytes` of shared memory as a `buffer`, in the file or mapping `place` or in a new one."""

    def __init__(self, nbytes: int, place: int | str | None = None) -> None:
        # A mapping has at least one byte.
        extent = max(nbytes, 1)
        if place is None:
            place = _new_file(extent) if _passes_descriptors() else f"metaop-{uuid4()}"
        self.place = place
        mapping = _mapping(place, extent)
        self.nbytes = nbytes
        self.buffer = Buffer.from_numpy(np.frombuffer(mapping, np.uint8))

    def write(self, value: np.ndarray) -> None:
        """Copies an array of this size into the memory."""
        self.buffer.view(value.shape, value.dtype)[...] = value

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the memory for a process that is being started or connected."""
        if isinstance(self.place, str):
            return SharedMemory, (self.nbytes, self.place)
        return _attached, (self.nbytes, reduction.DupFd(self.place))

    def __del__(self) -> None:
        place = getattr(self, "place", None)
        if isinstance(place, int):
            os.close(place)


def _mapping(place: int | str, nbytes: int) -> mmap.mmap:
    if isinstance(place, int):
        return mmap.mmap(place, nbytes)
    named: Any = mmap.mmap  # only on Windows the third argument is a name
    mapping: mmap.mmap = named(-1, nbytes, place)
    return mapping


def _passes_descriptors() -> bool:
    """Whether processes can pass each other open files, which Windows cannot."""
    return hasattr(reduction, "DupFd")


def has_memory_files() -> bool:
    """Whether the system has anonymous files in memory, as Linux does; see METAOP_PORTABLE."""
    return hasattr(os, "memfd_create") and not settings.get("METAOP_PORTABLE")


def _new_file(nbytes: int) -> int:
    if has_memory_files():
        descriptor = os.memfd_create("metaop-shared")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor


def _attached(nbytes: int, descriptor: Any) -> SharedMemory:
    return SharedMemory(nbytes, descriptor.detach())
