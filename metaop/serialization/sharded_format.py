"""Checkpoints in a folder: safetensors files of many processes, and an index, written last.

    last/
        index.pth                              where each part of a tensor is, and other values
        00000002-rank-1-of-4.safetensors       the parts that one process wrote

A tensor is stored in pieces, each a box of its indices. Reading a box opens the files that overlap
it, and touches only the bytes of the overlap. The files of a checkpoint have new names, so the
previous checkpoint stays valid until the index is replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metaop.serialization.damage import Damage
from metaop.serialization.safetensors_format import Header, read_header
from metaop.serialization.storage_types import DTYPE_NAMES
from metaop.unified_graph.dtype import DType

INDEX = "index.pth"
_FORMAT = "metaop sharded checkpoint 1"

Box = tuple[tuple[int, int], ...]


class Piece(NamedTuple):
    """The part of a tensor in one file."""

    file: str
    box: Box


class Stored(NamedTuple):
    """A tensor in pieces that do not overlap."""

    dtype: DType
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


def whole_box(shape: Sequence[int]) -> Box:
    """All indices of a tensor."""
    return tuple((0, extent) for extent in shape)


def piece_name(name: str, box: Box) -> str:
    """The name of a piece in its file."""
    return f"{name}[{', '.join(f'{low}:{high}' for low, high in box)}]"


def file_name(generation: int, rank: int, ranks: int) -> str:
    """The name of the file that one process writes for one checkpoint."""
    return f"{generation:08}-rank-{rank}-of-{ranks}.safetensors"


def write_pieces(path: Path, pieces: Mapping[str, np.ndarray]) -> int:
    """Writes arrays under the names of their pieces; returns the file size in bytes."""
    from safetensors.numpy import save_file

    save_file({name: np.asarray(array, order="C") for name, array in pieces.items()}, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return path.stat().st_size


def index_of(
    state: Any, tensors: Mapping[str, Stored], files: Mapping[str, int], generation: int
) -> dict[str, Any]:
    """The content of the index: the state with None for tensors, and where these are stored."""
    return {
        "format": _FORMAT,
        "generation": generation,
        "state": state,
        "tensors": {
            name: {
                "dtype": stored.dtype.name,
                "shape": list(stored.shape),
                "pieces": [[piece.file, [list(pair) for pair in piece.box]] for piece in stored[2]],
            }
            for name, stored in tensors.items()
        },
        "files": dict(files),
    }


def remove_others(folder: Path, files: Mapping[str, int]) -> None:
    """Removes the files of replaced or incomplete checkpoints."""
    for path in folder.glob("*-rank-*-of-*.safetensors"):
        if path.name not in files:
            path.unlink(missing_ok=True)


class ShardedReader:
    """A checkpoint in a folder: `state` has None in place of tensors, `tensors` has them by name.

    Raises Damage if the index or a file is missing, or contradicts the index.
    """

    def __init__(self, folder: Path, read_index: Callable[[Path], Any]) -> None:
        self.folder = folder
        path = folder / INDEX
        if not path.is_file():
            raise Damage(
                f"it has no {INDEX}: it was never completely written",
                fix="use an older checkpoint, or the folder in which the index is",
            )
        index = read_index(path)
        if not isinstance(index, dict) or index.get("format") != _FORMAT:
            raise Damage(f"its {INDEX} does not belong to a sharded checkpoint")
        try:
            self.state: Any = index["state"]
            self.generation: int = index["generation"]
            self.tensors = {name: _stored(entry) for name, entry in index["tensors"].items()}
            self._sizes: dict[str, int] = index["files"]
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise Damage(f"its {INDEX} is damaged ({type(error).__name__}: {error})") from None
        self._open: dict[str, tuple[Header, np.ndarray]] = {}

    def read(self, name: str, box: Box | None = None) -> np.ndarray:
        """A part of a tensor, or all of it, as a new array."""
        stored = self.tensors[name]
        wanted = whole_box(stored.shape) if box is None else box
        result = np.empty([high - low for low, high in wanted], stored.dtype.numpy)
        found = 0
        for piece in stored.pieces:
            shared = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(wanted, piece.box)]
            if any(low >= high for low, high in shared):
                continue
            source = self._piece(name, stored, piece)[_inside(shared, piece.box)]
            result[_inside(shared, wanted)] = source
            found += source.size
        if found != result.size:
            raise Damage(f"it has {found} of the {result.size} elements of {name} {list(wanted)}")
        return result

    def _piece(self, name: str, stored: Stored, piece: Piece) -> np.ndarray:
        """The piece as a memory-mapped array: nothing is read before it is used."""
        if piece.file not in self._open:
            self._open[piece.file] = self._opened(piece.file)
        header, content = self._open[piece.file]
        key = piece_name(name, piece.box)
        entry = header.entries.get(key)
        shape = tuple(high - low for low, high in piece.box)
        if entry is None or entry.dtype is not stored.dtype or entry.shape != shape:
            raise Damage(f"its file {piece.file} has no {key} of type {stored.dtype.name}")
        part = content[header.start + entry.begin : header.start + entry.end]
        return part.view(stored.dtype.numpy).reshape(shape)

    def _opened(self, file: str) -> tuple[Header, np.ndarray]:
        path = self.folder / file
        if not path.is_file():
            raise Damage(
                f"its file {file} is missing",
                fix="copy the whole folder; all hosts must see it under the same path",
            )
        size = path.stat().st_size
        if size != self._sizes.get(file):
            raise Damage(f"its file {file} has {size} bytes instead of {self._sizes.get(file)}")
        with open(path, "rb") as opened:
            header = read_header(opened, size)
        return header, np.memmap(path, np.uint8, "r")


def _inside(part: Sequence[tuple[int, int]], box: Box) -> tuple[slice, ...]:
    return tuple(slice(low - start, high - start) for (low, high), (start, _) in zip(part, box))


def _stored(entry: Mapping[str, Any]) -> Stored:
    pieces = tuple(
        Piece(file, tuple((low, high) for low, high in box)) for file, box in entry["pieces"]
    )
    return Stored(DTYPE_NAMES[entry["dtype"]], tuple(entry["shape"]), pieces)


def named_tensors(state: Any, is_tensor: Callable[[Any], bool]) -> dict[str, Any]:
    """The tensors in nested dicts, lists and tuples by their path: `optimizer/state/0/step`.

    Raises Damage when two of them have the same name.
    """
    found: dict[str, Any] = {}

    def note(name: str, value: Any) -> Any:
        if is_tensor(value):
            if name in found:
                raise Damage(f"it would have two tensors called {name}")
            found[name] = value
        return value

    mapped(state, note)
    return found


def mapped(value: Any, function: Callable[[str, Any], Any], where: str = "") -> Any:
    """Maps all leaves of nested dicts, lists and tuples by `function(name, value)`."""
    if isinstance(value, dict):
        made = copy(value)
        for key, inner in value.items():
            made[key] = mapped(inner, function, below(where, key))
        return made
    if isinstance(value, (list, tuple)):
        items = [mapped(inner, function, below(where, k)) for k, inner in enumerate(value)]
        return items if isinstance(value, list) else _like_tuple(value, items)
    return function(where, value)


def _like_tuple(like: tuple, items: list[Any]) -> tuple:
    make = getattr(type(like), "_make", tuple)
    made: tuple = make(items)
    return made


def below(where: str, key: object) -> str:
    """The name of the item of container `where` under a key."""
    return f"{where}/{key}" if where else str(key)
