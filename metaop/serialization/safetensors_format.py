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
    """Whether a file that starts with these (at least nine) bytes is a safetensors file."""
    length = int.from_bytes(start[:8], "little")
    return len(start) > 8 and start[8:9] == b"{" and 2 <= length <= _MAXIMAL_HEADER


class Entry(NamedTuple):
    """A tensor of a file; its bytes are counted from the end of the header."""

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """The tensors of a file by name, and where the header ends."""

    entries: dict[str, Entry]
    start: int


def read_header(file: IO[bytes], size: int) -> Header:
    """What a safetensors file of `size` bytes has; raises Damage unless it fits."""
    start = file.read(8)
    (length,) = struct.unpack("<Q", start.ljust(8, b"\0"))
    text = file.read(min(length, _MAXIMAL_HEADER))
    try:
        found = json.loads(text)
        found.pop("__metadata__", None)
    except (ValueError, AttributeError):
        raise Damage("its header is cut short or damaged") from None
    try:
        entries = {name: _entry(name, e, size - 8 - length) for name, e in found.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise Damage(f"its header is damaged ({type(error).__name__}: {error})") from None
    return Header(entries, 8 + length)


def _entry(name: str, entry: Any, available: int) -> Entry:
    dtype = SAFETENSORS_NAMES.get(entry["dtype"])
    if dtype is None:
        raise Damage(f"its tensor {name!r} has the unknown type {entry['dtype']!r}")
    shape = tuple(map(int, entry["shape"]))
    begin, end = entry["data_offsets"]
    needed = dtype.itemsize * prod(shape)
    if not 0 <= begin <= end <= available or end - begin != needed:
        raise Damage(
            f"its tensor {name!r} of shape {list(shape)} needs {needed} bytes; the header gives "
            f"bytes {begin} to {end} of {available}"
        )
    return Entry(dtype, shape, begin, end)


def read_safetensors(file: IO[bytes], placement: Placement) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""
    place = file.tell()
    size = file.seek(0, SEEK_END) - place
    file.seek(place)
    header = read_header(file, size)
    content = np.frombuffer(bytearray(file.read()), np.uint8)
    return {name: _tensor(entry, content, placement) for name, entry in header.entries.items()}


def _tensor(entry: Entry, content: np.ndarray, placement: Placement) -> Tensor:
    raw = content[entry.begin : entry.end]
    tensor = from_array(raw.view(entry.dtype.numpy).reshape(entry.shape), entry.dtype)
    device = placement("cpu")
    return tensor if device is CPU else tensor.to(device)  # type: ignore[attr-defined]


def write_safetensors(file: IO[bytes], tensors: Any) -> None:
    """Writes a flat mapping of names to tensors; tied tensors are written once each."""
    from safetensors.numpy import save

    if not isinstance(tensors, Mapping):
        raise _not_flat(f"not a {type(tensors).__name__}")
    arrays = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise _not_flat(f"{name!r} is a {type(tensor).__name__}")
        arrays[name] = tensor.detach()._array()
    file.write(save(arrays))


def _not_flat(reason: str) -> CheckpointError:
    return CheckpointError(
        f"a .safetensors file holds tensors by name; {reason}",
        fix="save other objects under a name that ends in .pth",
    )
