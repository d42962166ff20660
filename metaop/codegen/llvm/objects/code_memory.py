"""Executable memory: pages of a few large mappings, which machine code allocates and frees.

Linux limits the mappings of a process, and counts neighbouring pages with equal permissions as one
mapping, so free pages stay executable. Pages are writable only while new code is written to them,
and are not executable then, as hardened systems require. They are private to the process: what a
fork writes or frees is its own.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import threading
from collections import deque
from typing import Any

from metaop.codegen.llvm.system import code_is_forbidden
from metaop.forking import register_at_fork

PAGE = mmap.PAGESIZE
# A mapping of free pages costs no memory until code is written there.
_CHUNK_PAGES = 1024
_WRITABLE = mmap.PROT_READ | mmap.PROT_WRITE
_EXECUTABLE = mmap.PROT_READ | mmap.PROT_EXEC


class _Chunk:
    """One mapping; `taken` has a byte for each page, 1 if it is in use."""

    def __init__(self, pages: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.address = _system().mmap(None, pages * PAGE, _WRITABLE, flags, -1, 0)
        if self.address == ctypes.c_void_p(-1).value:
            raise _refusal(pages * PAGE)
        # Linux merges mappings again only if their first page was written by the same mapping.
        ctypes.memset(self.address, 0, 1)
        _protect(self.address, pages * PAGE, _EXECUTABLE)
        self.taken = bytearray(pages)
        self.returned: deque[tuple[int, int]] = deque()

    def take(self, count: int) -> Pages | None:
        """A number of consecutive free pages, if there are any."""
        while self.returned:
            first, freed = self.returned.popleft()
            self.taken[first : first + freed] = bytes(freed)
        first = self.taken.find(bytes(count))
        if first < 0:
            return None
        self.taken[first : first + count] = b"\1" * count
        return Pages(self, first, count)


class Pages:
    """Consecutive pages, which are freed with the last reference to this object."""

    __slots__ = ("address", "_chunk", "_first", "_count")

    def __init__(self, chunk: _Chunk, first: int, count: int) -> None:
        self.address: int = chunk.address + first * PAGE
        self._chunk, self._first, self._count = chunk, first, count

    def fill(self, image: bytearray, writable_from: int) -> None:
        """Writes code and data; pages from an offset on, a multiple of PAGE, stay writable."""
        _protect(self.address, self._count * PAGE, _WRITABLE)
        content = (ctypes.c_char * len(image)).from_buffer(image)
        ctypes.memmove(self.address, content, len(image))
        _protect(self.address, writable_from, _EXECUTABLE)

    def __del__(self) -> None:
        # The garbage collector may run at any time, so this takes no lock.
        self._chunk.returned.append((self._first, self._count))


_chunks: list[_Chunk] = []
_lock = threading.Lock()


def take_pages(nbytes: int) -> Pages:
    """Memory for a number of bytes of code and data.

    Raises `MemoryError` if there is none, `DeviceError` if the system permits no code.
    """
    count = max(1, -(-nbytes // PAGE))
    with _lock:
        for chunk in _chunks:
            if pages := chunk.take(count):
                return pages
        _chunks.append(_Chunk(max(count, _CHUNK_PAGES)))
        pages = _chunks[-1].take(count)
        assert pages is not None
        return pages


def _unlock() -> None:
    global _lock
    _lock = threading.Lock()


# A thread of the parent, which may have held the lock, does not exist in the child.
register_at_fork(after_in_child=_unlock)


def _protect(address: int, nbytes: int, rights: int) -> None:
    if _system().mprotect(address, nbytes, rights):
        raise _refusal(nbytes)


def _refusal(nbytes: int) -> Exception:
    """The error for an allocation that Linux has just refused."""
    reason = ctypes.get_errno()
    if reason == errno.ENOMEM:
        return MemoryError(
            f"no {nbytes} bytes of memory for machine code. Fix: raise the limits, as in "
            "ulimit -v unlimited or sysctl -w vm.max_map_count=262144"
        )
    return code_is_forbidden(os.strerror(reason))


@functools.cache
def _system() -> Any:
    """The C library, with the types of the functions that are called here."""
    library = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.restype = address
    library.mmap.argtypes = (address, size, number, number, number, ctypes.c_int64)
    library.mprotect.argtypes = (address, size, number)
    return library
