"""Compiled objects kept in a folder, shared safely by processes that come and go."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from metaop import settings

try:
    import fcntl
except ImportError:  # on Windows, where nobody waits
    fcntl = None  # type: ignore[assignment]

_MAGIC = b"metaop object 1\n"
_HEADER = len(_MAGIC) + hashlib.sha256().digest_size
_SUFFIX = ".object"
_TEMPORARY = ".partial"
_LOCK = ".lock"
# The seconds for which a process waits for another one that makes what it needs, and those after
# which it looks again.
_LONGEST_WAIT, _PAUSE = 120.0, 0.005
# After an eviction the folder is this full, so that not every later write evicts again.
_KEPT_SHARE = 0.8
_WRITES_BEFORE_LISTING = 64
_LARGE_SHARE = 0.01


class DiskCache:
    """A folder of byte strings by key, bounded in size, with least-recently-used eviction.

    An entry that is truncated, changed, renamed or foreign counts as absent; if the folder cannot
    be read, so do all. Writing never raises.
    """

    def __init__(self, directory: str | os.PathLike[str], limit: int) -> None:
        self.directory = Path(directory).expanduser()
        self.limit = limit
        self._size: int | None = None
        self._writes = 0

    def __reduce__(self) -> tuple[object, ...]:
        """Another process has one cache of a folder as well."""
        return cache_at, (str(self.directory), self.limit)

    def get(self, key: str) -> bytes | None:
        """The bytes stored under `key`, or None."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        payload = content[_HEADER:]
        if content[:_HEADER] != _header(key, payload):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def put(self, key: str, payload: bytes) -> bool:
        """Stores `payload`; readers see all of it or nothing. False when it cannot be stored."""
        content = _header(key, payload) + payload
        if len(content) > self.limit:
            return False
        try:
            self._replace(self._path(key), content)
        except OSError:
            return False
        self._account(len(content))
        return True

    def remove(self, key: str) -> None:
        """Removes what is stored under `key`, if anything is."""
        with contextlib.suppress(OSError):
            os.unlink(self._path(key))

    @contextlib.contextmanager
    def alone(self, key: str, patience: float = _LONGEST_WAIT) -> Iterator[bool]:
        """A scope for what makes an entry, in which processes that share the folder take turns.

        So all but the first find the entry. It is False for a process that has lost its `patience`,
        which counts in seconds. Where there are no locks, all go on at once; the lock of a process
        that dies is free.
        """
        with contextlib.ExitStack() as stack:
            is_alone = True
            if fcntl is not None:
                with contextlib.suppress(OSError):
                    turn = self._turn(self.directory / (key + _LOCK), patience)
                    is_alone = stack.enter_context(turn)
            yield is_alone

    @contextlib.contextmanager
    def _turn(self, path: Path, patience: float) -> Iterator[bool]:
        """A scope in which a file is locked, or for which this process has waited too long."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("w") as file:
            end = time.monotonic() + patience
            while not (locked := _takes_lock(file.fileno())) and time.monotonic() < end:
                time.sleep(_PAUSE)
            try:
                yield locked
            finally:
                if locked:
                    with contextlib.suppress(OSError):
                        os.unlink(path)

    def keys(self) -> list[str]:
        """The keys of all entries in order, including damaged ones."""
        try:
            names = os.listdir(self.directory)
        except OSError:
            return []
        return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))

    def _path(self, key: str) -> Path:
        return self.directory / (key + _SUFFIX)

    def _replace(self, path: Path, content: bytes) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(_TEMPORARY, dir=self.directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _account(self, added: int) -> None:
        """Adds to the known size; the folder is listed after some writes and when it is full.

        Listing a full folder takes long, so a process that writes little leaves it to others.
        """
        self._writes += 1
        if self._size is None:
            if self._writes < _WRITES_BEFORE_LISTING and added < self.limit * _LARGE_SHARE:
                return
            self._size = sum(size for _, size, _ in self._entries())
        else:
            self._size += added
        if self._size > self.limit:
            self._size = self._evict()

    def _entries(self) -> Iterator[tuple[float, int, str]]:
        """(last use, bytes, path) of each file of the cache, including those of dead writers."""
        with contextlib.suppress(OSError), os.scandir(self.directory) as files:
            for file in files:
                if file.name.endswith((_SUFFIX, _TEMPORARY, _LOCK)):
                    with contextlib.suppress(OSError):
                        status = file.stat()
                        yield status.st_mtime, status.st_size, file.path

    def _evict(self) -> int:
        entries = sorted(self._entries())
        size = sum(entry_size for _, entry_size, _ in entries)
        for _, entry_size, path in entries:
            if size <= self.limit * _KEPT_SHARE:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                size -= entry_size
        return size


def shared_cache() -> DiskCache | None:
    """The folder of this user's compiled kernels; None when METAOP_DISK_CACHE is off."""
    if not settings.get("METAOP_DISK_CACHE"):
        return None
    return cache_at(settings.get("METAOP_CACHE_DIR"), settings.get("METAOP_CACHE_BYTES"))


@functools.cache
def cache_at(directory: str, limit: int) -> DiskCache:
    """The cache of a folder, one in a process."""
    return DiskCache(directory, limit)


def _takes_lock(descriptor: int) -> bool:
    """Locks a file; False if another process has. Raises OSError where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _header(key: str, payload: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(key.encode() + b"\n" + payload).digest()
