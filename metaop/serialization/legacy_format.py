"""PyTorch's older checkpoints: pickles followed by storages, and the tar files before them.

Both are only read.
"""

from __future__ import annotations

import io
import struct
import tarfile
from os import SEEK_END
from typing import IO, Any

import numpy as np

from metaop.serialization.allowed_names import storage_of
from metaop.serialization.builder import Builder, Placement, Region, StorageReference, Survey
from metaop.serialization.damage import Damage
from metaop.serialization.unpickler import unpickle
from metaop.unified_graph.dtype import DType

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_PROTOCOL_VERSION = 1001


class _Bounded:
    """A file that never allocates more bytes than it has."""

    def __init__(self, file: IO[bytes]) -> None:
        self.tell, self.seek, self.readline = file.tell, file.seek, file.readline
        self._read = file.read
        place = file.tell()
        self._end = file.seek(0, SEEK_END)
        file.seek(place)

    def read(self, count: int) -> bytes:
        """At most `count` bytes."""
        return self._read(max(0, min(count, self._end - self.tell())))


def read_legacy(source: IO[bytes], placement: Placement, trusted: bool = False) -> Any:
    """The object in a checkpoint of PyTorch before 1.6 (or written with the old format)."""
    file: Any = _Bounded(source)
    survey = Survey(trusted)
    names: dict[str, StorageReference] = {}

    def persistent(pid: Any) -> StorageReference:
        # ('module', class, file, source) wraps a class with its source; it is refused.
        storage = storage_of(pid)
        names[storage.key] = storage
        return storage

    if unpickle(file, survey, persistent) != MAGIC_NUMBER:
        raise Damage("it is not a checkpoint: its magic number is wrong")
    version = unpickle(file, survey, persistent)
    if version != _PROTOCOL_VERSION:
        raise Damage(f"its format has the unknown version {version}")
    system = unpickle(file, survey, persistent)
    if not isinstance(system, dict) or not system.get("little_endian", True):
        raise Damage("its numbers are big-endian")
    start = file.tell()
    unpickle(file, survey, persistent)
    keys = unpickle(file, survey, persistent)
    contents: dict[str, np.ndarray] = {}
    for key in map(str, keys):
        if key not in names:
            raise Damage(f"it has the unused storage {key}")
        contents[key] = _read_counted(file, names[key].dtype)
    file.seek(start)
    return unpickle(file, Builder(survey, _lookup(contents), placement), persistent)


def _lookup(contents: dict[str, np.ndarray]) -> Any:
    def read(key: str) -> np.ndarray:
        try:
            return contents[key]
        except KeyError:
            raise Damage(f"it lacks the storage {key}") from None

    return read


def _read_counted(file: IO[bytes], dtype: DType | None) -> np.ndarray:
    """A storage written as its number of elements and their bytes."""
    (count,) = struct.unpack("<q", _read_exactly(file, 8))
    if count < 0:
        raise Damage(f"it has a storage of {count} elements")
    itemsize = 1 if dtype is None else dtype.itemsize
    return np.frombuffer(bytearray(_read_exactly(file, count * itemsize)), np.uint8)


def _read_exactly(file: IO[bytes], nbytes: int) -> bytes:
    content = file.read(nbytes)
    if len(content) != nbytes:
        raise Damage(f"it is cut short: {nbytes} bytes expected, {len(content)} found")
    return content


def read_tar(file: IO[bytes], placement: Placement) -> Any:
    """The object in a checkpoint of the first PyTorch releases."""
    with tarfile.open(fileobj=file, mode="r:") as archive:
        parts = {name: _part(archive, name) for name in ("storages", "tensors", "pickle")}
    storages, contents = _tar_storages(parts["storages"])
    regions = _tar_tensors(parts["tensors"], storages)
    survey = Survey()
    unpickle(parts["pickle"], survey, _tar_persistent(regions, survey))
    builder = Builder(survey, _lookup(contents), placement)
    parts["pickle"].seek(0)
    return unpickle(parts["pickle"], builder, _tar_persistent(regions, builder))


def _part(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    try:
        stream = archive.extractfile(name)
    except KeyError:
        stream = None
    if stream is None:
        raise Damage(f"its tar archive lacks {name!r}, so it is not a checkpoint")
    return io.BytesIO(stream.read())


def _plain(file: IO[bytes]) -> Any:
    return unpickle(file, Survey(), storage_of)


def _tar_storages(
    file: IO[bytes],
) -> tuple[dict[str, StorageReference], dict[str, np.ndarray]]:
    storages: dict[str, StorageReference] = {}
    contents: dict[str, np.ndarray] = {}
    for _ in range(_plain(file)):
        key, location, kind = _plain(file)
        content = _read_counted(file, kind.dtype)
        length = content.size // kind.dtype.itemsize
        storages[str(key)] = StorageReference(str(key), kind.dtype, str(location), length)
        contents[str(key)] = content
    for key, root, offset, length in _plain(file):
        whole = storages[str(root)]
        itemsize = 1 if whole.dtype is None else whole.dtype.itemsize
        span = slice(offset * itemsize, (offset + length) * itemsize)
        contents[str(key)] = contents[str(root)][span]
        storages[str(key)] = whole._replace(key=str(key), length=length)
    return storages, contents


def _tar_tensors(
    file: IO[bytes], storages: dict[str, StorageReference]
) -> dict[str, tuple[StorageReference, Region]]:
    tensors = {}
    for _ in range(_plain(file)):
        key, storage_key, _ = _plain(file)
        storage = storages[str(storage_key)]
        (ndim, _) = struct.unpack("<ii", _read_exactly(file, 8))
        size = struct.unpack(f"<{ndim}q", _read_exactly(file, 8 * ndim))
        stride = struct.unpack(f"<{ndim}q", _read_exactly(file, 8 * ndim))
        (offset,) = struct.unpack("<q", _read_exactly(file, 8))
        assert storage.dtype is not None
        tensors[str(key)] = storage, Region(storage.dtype, offset, size, stride)
    return tensors


def _tar_persistent(
    regions: dict[str, tuple[StorageReference, Region]], maker: Survey | Builder
) -> Any:
    def persistent(pid: Any) -> Any:
        if isinstance(pid, tuple) or str(pid) not in regions:
            raise Damage(f"it has the unknown persistent id {pid!r}")
        return maker.tensor(*regions[str(pid)], requires_grad=False)

    return persistent
