"""The file of a program: safetensors with the weights, and the graph as JSON in its metadata.

Any reader of safetensors can read the weights. The metadata have one entry, `metaop_program`.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.serialization.damage import Damage, Reading
from metaop.serialization.files import write_whole
from metaop.serialization.safetensors_format import looks_like_safetensors, read_with_metadata
from metaop.tensor.core import Tensor
from metaop.unified_graph.tensor_type import CPU

KEY, VERSION = "metaop_program", 1
SUFFIX = ".mo"
# The required entries of a program, with the types of JSON.
FIELDS: dict[str, type] = {
    "version": int,
    "producer": str,
    "sizes": list,
    "arguments": list,
    "inputs": list,
    "weights": list,
    "numbers": list,
    "guards": list,
    "nodes": list,
    "outputs": list,
    "results": dict,
    "parameters": list,
    "buffers": list,
}
# What files of older releases lack.
_LATER = ("parameters", "buffers")
_MOST_RECORDS = 1 << 20


def written(content: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a file."""
    from safetensors.numpy import save

    found: bytes = save(dict(weights), {KEY: _text(content)})
    return found


def as_read(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file as readers will see it."""
    return _checked(json.loads(_text(content)))


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def write_file(file: str | os.PathLike[str] | IO[bytes], content: bytes) -> None:
    """Writes a file atomically, or to a file object."""
    if isinstance(file, (str, os.PathLike)):
        write_whole(Path(file), lambda opened: opened.write(content))
    else:
        file.write(content)


def check_suffix(file: str | os.PathLike[str]) -> None:
    """Raises ArgumentError for a name without the suffix."""
    if Path(file).suffix != SUFFIX:
        raise ArgumentError(f"{file} is not a name for a program", fix=f"let it end in {SUFFIX}")


def read_file(
    file: str | os.PathLike[str] | IO[bytes],
) -> tuple[dict[str, Any], dict[str, Tensor], str]:
    """The program in a file, its weights, and the name of the file for messages.

    Raises CheckpointError for a file that is damaged, of another kind or of another version.
    """
    if isinstance(file, (str, os.PathLike)):
        with open(file, "rb") as opened:
            return read_file(opened)
    name = str(getattr(file, "name", "the file object"))
    with Reading(name):
        start = file.read(9)
        file.seek(-len(start), os.SEEK_CUR)
        if start.startswith(b"PK\3\4"):
            _refuse_archive(file)
        if not looks_like_safetensors(start):
            raise Damage("it is not a program: export writes safetensors with a graph")
        weights, metadata = read_with_metadata(file, lambda location: CPU)
        if KEY not in metadata:
            raise Damage(
                "it has tensors, but no program", fix="read tensors with metaop.load(file)"
            )
        for key, tensor in weights.items():
            _check_truths(key, tensor)
        return _checked(json.loads(metadata[KEY])), weights, name


def _refuse_archive(file: IO[bytes]) -> None:
    """Raises Damage for a zip archive, as PyTorch writes them."""
    position = file.tell()
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    file.seek(position)
    if any("/code/" in name or name.endswith("/archive_format") for name in names):
        raise Damage(
            "it is a program of PyTorch, whose code metaop does not run",
            fix="in PyTorch, save its state_dict with torch.save; build the module here, and give "
            "the state_dict that metaop.load reads to its load_state_dict",
        )
    raise Damage(
        "it is not a program, but a zip archive", fix="read tensors with metaop.load(file)"
    )


def _check_truths(name: str, tensor: Tensor) -> None:
    """Raises Damage unless every bool is stored as 0 or 1: machine code relies on it."""
    array = tensor._array()
    if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise Damage(f"its tensor {name!r} has bools that are neither 0 nor 1")


def _checked(content: Any) -> dict[str, Any]:
    version = content.get("version") if isinstance(content, dict) else None
    if type(version) is int and version != VERSION:
        raise Damage(
            f"its format has version {version}; this metaop reads version {VERSION}",
            fix="read it with the metaop that wrote it, or export it again",
        )
    if isinstance(content, dict):
        content = {**{key: [] for key in _LATER}, **content}
    if not isinstance(content, dict) or set(content) != set(FIELDS):
        raise Damage(f"its program does not have the fields {', '.join(FIELDS)}")
    for name, kind in FIELDS.items():
        value: Any = content[name]
        if type(value) is not kind or (kind in (list, dict) and _length(value) > _MOST_RECORDS):
            raise Damage(f"the field {name!r} of its program is not a valid {kind.__name__}")
    return content


def _length(value: Any) -> int:
    return len(value)
