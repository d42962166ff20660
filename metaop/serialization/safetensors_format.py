"""safetensors files: a flat mapping of names to tensors."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from metaop.errors import CheckpointError
from metaop.serialization.builder import Placement
from metaop.serialization.damage import Damage
from metaop.serialization.storage_types import SAFETENSORS_NAMES
from metaop.tensor.core import Tensor, from_array
from metaop.unified_graph.tensor_type import CPU

_MAXIMAL_HEADER = 100_000_000


def looks_like_safetensors(start: bytes) -> bool:
    """Whether a file that starts with these (at least nine) bytes is a safetensors file."""
    length = int.from_bytes(start[:8], "little")
    return len(start) > 8 and start[8:9] == b"{" and 2 <= length <= _MAXIMAL_HEADER


def read_safetensors(file: IO[bytes], placement: Placement) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""
    start = file.read(8)
    (length,) = struct.unpack("<Q", start.ljust(8, b"\0"))
    header = file.read(min(length, _MAXIMAL_HEADER))
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
    except (ValueError, AttributeError):
        raise Damage("its header is cut short or damaged") from None
    content = bytearray(file.read())
    try:
        return {name: _tensor(name, entry, content, placement) for name, entry in entries.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise Damage(f"its header is damaged ({type(error).__name__}: {error})") from None


def _tensor(name: str, entry: Any, content: bytearray, placement: Placement) -> Tensor:
    dtype = SAFETENSORS_NAMES.get(entry["dtype"])
    if dtype is None:
        raise Damage(f"its tensor {name!r} has the unknown type {entry['dtype']!r}")
    shape = tuple(map(int, entry["shape"]))
    start, end = entry["data_offsets"]
    needed = dtype.itemsize
    for extent in shape:
        needed *= extent
    if not 0 <= start <= end <= len(content) or end - start != needed:
        raise Damage(
            f"its tensor {name!r} of shape {list(shape)} needs {needed} bytes; the header gives "
            f"bytes {start} to {end} of {len(content)}"
        )
    raw = np.frombuffer(content, np.uint8, needed, start) if needed else np.empty(0, np.uint8)
    tensor = from_array(raw.view(dtype.numpy).reshape(shape), dtype)
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
