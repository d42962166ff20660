"""Memory in a file: where values lie that a program under a budget spills to disk.

The file has no name, so the system frees it with the process at the latest. What is written there
is in the system's page cache at first, which it writes to disk when memory is short.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from typing import IO, NamedTuple

import numpy as np

from metaop.errors import MemoryBudgetError
from metaop.settings import text_of_bytes

_PIECE = 1 << 20


class Mapped(NamedTuple):
    """A file in memory, and where."""

    memory: mmap.mmap
    address: int


class SpillFile:
    """A program's memory of `nbytes` in a file in `folder`, which runs of it use in turns."""

    def __init__(self, folder: str, nbytes: int) -> None:
        self._folder, self._nbytes = folder, nbytes
        self._free: list[Mapped] = []

    def taken(self) -> Mapped:
        """Memory that nobody else uses until it is `given_back`; its content means nothing.

        Raises MemoryBudgetError if the folder cannot hold it.
        """
        try:
            return self._free.pop()
        except IndexError:
            return self._mapped()

    def given_back(self, memory: Mapped) -> None:
        """Lets other runs use the memory."""
        self._free.append(memory)

    def _mapped(self) -> Mapped:
        try:
            with tempfile.TemporaryFile(dir=self._folder, prefix="metaop-") as file:
                _reserve(file, self._nbytes)
                memory = mmap.mmap(file.fileno(), self._nbytes)
        except OSError as error:
            raise MemoryBudgetError(
                f"a program cannot spill {text_of_bytes(self._nbytes)} to {self._folder}: "
                f"{error.strerror or error}",
                fix="name a folder on a disk with more room, or raise the budget",
            ) from None
        return Mapped(memory, np.frombuffer(memory, np.uint8).ctypes.data)


def _reserve(file: IO[bytes], nbytes: int) -> None:
    """Makes the file as long as that, with room on disk: a write to memory cannot fail later."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, nbytes)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
    for start in range(0, nbytes, _PIECE):
        file.write(bytes(min(_PIECE, nbytes - start)))
    file.flush()
