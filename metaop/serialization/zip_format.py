"""PyTorch's zip checkpoints: `data.pkl` describes the object, `data/KEY` are its storages."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable
from typing import IO, Any

import numpy as np

from metaop.serialization.allowed_names import storage_of
from metaop.serialization.builder import Builder, Placement, StorageReference, Survey
from metaop.serialization.damage import Damage
from metaop.serialization.unpickler import unpickle

_FOLDER = "archive"
_ALIGNMENT = 64
_LOCAL_HEADER_BYTES = 30
# The maximum expansion of a compressed byte.
_EXPANSION = {zipfile.ZIP_DEFLATED: 1032}


def read_zip(file: IO[bytes], placement: Placement, trusted: bool = False) -> Any:
    """The object in a zip checkpoint; a trusted one may hold objects of all classes."""
    try:
        with zipfile.ZipFile(file) as archive:
            _check_sizes(archive)
            return _read_archive(archive, placement, trusted)
    except zipfile.BadZipFile as error:
        raise Damage(f"its zip archive is cut short or damaged ({error})") from None


def _read_archive(archive: zipfile.ZipFile, placement: Placement, trusted: bool) -> Any:
    names = set(archive.namelist())
    folder = next((name[: -len("data.pkl")] for name in names if name.endswith("/data.pkl")), None)
    if folder is None:
        raise Damage("its zip archive has no data.pkl, so it is not a checkpoint")
    if folder + "constants.pkl" in names:
        raise Damage(
            "it is a TorchScript archive, a program", fix="save the state_dict of the module"
        )
    order = folder + "byteorder"
    if order in names and archive.read(order) != b"little":
        raise Damage("its numbers are big-endian")
    content = archive.read(folder + "data.pkl")
    survey = Survey(trusted)
    unpickle(io.BytesIO(content), survey, storage_of)

    def read(key: str) -> np.ndarray:
        return _read_storage(archive, f"{folder}data/{key}", survey.storages[key])

    return unpickle(io.BytesIO(content), Builder(survey, read, placement), storage_of)


def _check_sizes(archive: zipfile.ZipFile) -> None:
    """Raises Damage if the directory lists more bytes than the file has."""
    end = archive.start_dir
    for record in archive.infolist():
        if not 0 <= record.header_offset <= record.header_offset + record.compress_size <= end:
            raise Damage(f"its record {record.filename} extends beyond the file")


def _read_storage(archive: zipfile.ZipFile, name: str, storage: StorageReference) -> np.ndarray:
    try:
        record = archive.getinfo(name)
    except KeyError:
        raise Damage(f"its zip archive lacks the storage {name}") from None
    size = record.file_size
    if size > record.compress_size * _EXPANSION.get(record.compress_type, 1):
        raise Damage(f"its storage {name} cannot have {size} bytes")
    if size < storage.nbytes:
        raise Damage(f"its storage {name} has {size} bytes instead of {storage.nbytes}")
    values = np.empty(size, np.uint8)
    with archive.open(name) as stream:
        if stream.readinto(values.data) != size:  # type: ignore[attr-defined]
            raise Damage(f"its storage {name} is cut short")
    return values


def write_zip(
    file: IO[bytes], pickled: bytes, storages: Iterable[tuple[str, Callable[[], np.ndarray]]]
) -> None:
    """Writes a zip checkpoint; each storage is fetched only when it is written."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _write_record(archive, "data.pkl", pickled)
        _write_record(archive, "byteorder", b"little")
        for key, fetch in storages:
            _write_record(archive, f"data/{key}", fetch().data)
        _write_record(archive, "version", b"3\n")


def _write_record(archive: zipfile.ZipFile, name: str, content: bytes | memoryview) -> None:
    # Contents start at multiples of 64 bytes, so that readers can map them into memory. The
    # padding is an extra field of the header: an identifier, a length, and as many bytes.
    record = zipfile.ZipInfo(f"{_FOLDER}/{name}")
    position = archive.fp.tell() + _LOCAL_HEADER_BYTES + len(record.filename) + 4  # type: ignore
    padding = -position % _ALIGNMENT
    record.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    archive.writestr(record, content)  # type: ignore[arg-type]
