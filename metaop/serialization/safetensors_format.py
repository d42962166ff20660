"""safetensors files: a flat mapping of names to tensors."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from os import SEEK_END
from typing import IO, Any, NamedTuple

import numpy as np

from metaop.errors import CheckpointError
from metaop.serialization.builder import Placement
from metaop.serialization.damage import Damage
from metaop.serialization.storage_types import SAFETENSORS_NAMES
from metaop.tensor.core import Tensor, from_array
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tensor_type import CPU

_MAXIMAL_HEADER = 100_000_000


def looks_like_safetensors(start: bytes) -> bool:
    """Whether a file that starts with these bytes (at least nine) is a safetensors file."""
    length = int.from_bytes(start[:8], "little")
    return len(start) > 8 and start[8:9] == b"{" and 2 <= length <= _MAXIMAL_HEADER


class Entry(NamedTuple):
    """A tensor of a file; its byte offsets start at the end of the header."""

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """The tensors of a file by name, the end of the header, and the metadata."""

    entries: dict[str, Entry]
    start: int
    metadata: dict[str, str]


def read_header(file: IO[bytes], size: int) -> Header:
    """Reads the header of a safetensors file of `size` bytes; raises Damage if it is invalid."""
    start = file.read(8)
    (length,) = struct.unpack("<Q", start.ljust(8, b"\0"))
    text = file.read(min(length, size))
    try:
        found = json.loads(text.decode(), object_pairs_hook=_without_repetition)
        metadata = found.pop("__metadata__", None) or {}
    except (ValueError, AttributeError, RecursionError):
        raise Damage("its header is cut short or damaged") from None
    try:
        entries = {name: _entry(name, e) for name, e in found.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise Damage(f"its header is damaged ({type(error).__name__}: {error})") from None
    _check_offsets(entries, size - 8 - length)
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for x in metadata.values()):
        raise Damage("its metadata are not a mapping of names to strings")
    return Header(entries, 8 + length, metadata)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Damage("its header has a name twice")
    return found


def _entry(name: str, entry: Any) -> Entry:
    dtype = SAFETENSORS_NAMES.get(entry["dtype"])
    if dtype is None:
        raise Damage(f"its tensor {name!r} has the unknown type {entry['dtype']!r}")
    shape, (begin, end) = entry["shape"], entry["data_offsets"]
    for what, numbers in (("shape", shape), ("data_offsets", (begin, end))):
        if any(type(number) is not int or number < 0 for number in numbers):
            raise Damage(f"its tensor {name!r} has the impossible {what} {list(numbers)}")
    needed = dtype.itemsize * prod(shape)
    if end - begin != needed:
        raise Damage(
            f"its tensor {name!r} of shape {list(shape)} needs {needed} bytes; the header gives "
            f"bytes {begin} to {end}"
        )
    return Entry(dtype, tuple(shape), begin, end)


def _check_offsets(entries: dict[str, Entry], available: int) -> None:
    """Raises Damage unless every byte after the header belongs to exactly one tensor."""
    reached = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.begin != reached:
            raise Damage(
                f"its tensor {name!r} begins at byte {entry.begin}, but the one before ends at "
                f"byte {reached}"
            )
        reached = entry.end
    if reached != available:
        raise Damage(f"its tensors have {reached} bytes, but the file has {available} for them")


def read_safetensors(file: IO[bytes], placement: Placement) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""
    return read_with_metadata(file, placement)[0]


def read_with_metadata(
    file: IO[bytes], placement: Placement
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file by name, and its metadata."""
    place = file.tell()
    size = file.seek(0, SEEK_END) - place
    file.seek(place)
    header = read_header(file, size)
    content = np.frombuffer(bytearray(file.read()), np.uint8)
    tensors = {name: tensor_of(entry, content, placement) for name, entry in header.entries.items()}
    return tensors, header.metadata


def tensor_of(entry: Entry, content: np.ndarray, placement: Placement) -> Tensor:
    """One tensor of a file whose bytes after the header are `content`."""
    raw = content[entry.begin : entry.end]
    tensor = from_array(raw.view(entry.dtype.numpy).reshape(entry.shape), entry.dtype)
    device = placement("cpu")
    return tensor if device is CPU else tensor.to(device)  # type: ignore[attr-defined]


def write_safetensors(
    file: IO[bytes], tensors: Any, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a flat mapping of names to tensors, and metadata; tied tensors are repeated."""
    from safetensors.numpy import save

    if not isinstance(tensors, Mapping):
        raise _not_flat(f"not a {type(tensors).__name__}")
    arrays = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise _not_flat(f"{name!r} is a {type(tensor).__name__}")
        arrays[name] = tensor.detach()._array()
    file.write(save(arrays, None if metadata is None else dict(metadata)))


def _not_flat(reason: str) -> CheckpointError:
    return CheckpointError(
        f"a .safetensors file holds tensors by name; {reason}",
        fix="save other objects under a name that ends in .pth",
    )
