"""The functions of the packages `safetensors` and `safetensors.torch`, for metaop tensors."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors as _original
from safetensors import SafetensorError

from metaop.errors import ArgumentError
from metaop.serialization.damage import Damage
from metaop.serialization.files import placement_of, write_whole
from metaop.serialization.safetensors_format import (
    Header,
    read_header,
    read_with_metadata,
    tensor_of,
    write_safetensors,
)
from metaop.serialization.storage_types import SAFETENSORS_NAMES
from metaop.tensor.core import Tensor

__all__ = [
    "SafetensorError",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
]

_FRAMEWORKS = ("pt", "torch", "pytorch")
_TEXTS = {dtype: name for name, dtype in SAFETENSORS_NAMES.items()}


def __getattr__(name: str) -> Any:
    return getattr(_original, name)


def safe_open(
    filename: str | os.PathLike[str], framework: str, device: Any = "cpu", **options: Any
) -> Any:
    """Opens a file of tensors to read some of them; a context manager.

    `framework="pt"` returns metaop tensors on `device`; other frameworks use the function of the
    package safetensors. `backend` selects that package's reader and is otherwise ignored.
    Raises `SafetensorError` for a damaged file, `FileNotFoundError` if there is none.
    Example: `with safe_open("model.safetensors", "pt") as file: file.get_tensor("weight")`
    """
    if framework not in _FRAMEWORKS:
        return _original.safe_open(filename, framework, device=device, **options)
    unknown = sorted(set(options) - {"backend"})
    if unknown:
        raise ArgumentError(f"safe_open takes no {', '.join(unknown)}")
    return _OpenFile(filename, device)


class _OpenFile:
    """The result of `safe_open`."""

    def __init__(self, filename: str | os.PathLike[str], device: Any) -> None:
        size = os.path.getsize(filename)
        with open(filename, "rb") as file:
            self._header = _checked_header(filename, file, size)
        empty = size == self._header.start
        self._content = (np.empty(0, np.uint8) if empty else np.memmap(filename, np.uint8, "c"))[
            self._header.start :
        ]
        self._placement = placement_of(device)

    def __enter__(self) -> _OpenFile:
        return self

    def __exit__(self, *_problem: object) -> None:
        """Does nothing: the memory is freed with the last tensor in it."""

    def keys(self) -> list[str]:
        """The names of all tensors, sorted."""
        return sorted(self._header.entries)

    def offset_keys(self) -> list[str]:
        """The names of all tensors in the order of the file."""
        return sorted(self._header.entries, key=lambda name: self._header.entries[name].begin)

    def metadata(self) -> dict[str, str] | None:
        """The metadata of the file, or None."""
        return self._header.metadata or None

    def get_tensor(self, name: str) -> Tensor:
        """The whole tensor with a name."""
        return tensor_of(self._entry(name), self._content, self._placement)

    def get_slice(self, name: str) -> _Slice:
        """A tensor that is read when it is indexed."""
        return _Slice(self, self._entry(name), name)

    def _entry(self, name: str) -> Any:
        entry = self._header.entries.get(name)
        if entry is None:
            raise SafetensorError(f"File does not contain tensor {name}")
        return entry


class _Slice:
    """A tensor of a file, not yet read."""

    def __init__(self, file: _OpenFile, entry: Any, name: str) -> None:
        self._file, self._entry, self._name = file, entry, name

    def get_shape(self) -> list[int]:
        """The sizes of the axes."""
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        """The dtype in the notation of safetensors, such as "F32"."""
        return _TEXTS[self._entry.dtype]

    def __getitem__(self, index: Any) -> Tensor:
        return self._file.get_tensor(self._name)[index]


def _checked_header(name: str | os.PathLike[str], file: Any, size: int) -> Header:
    try:
        return read_header(file, size)
    except Damage as problem:
        raise SafetensorError(f"{os.fspath(name)}: {problem}") from None


def save(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file of tensors by name, with metadata."""
    file = io.BytesIO()
    write_safetensors(file, tensors, metadata)
    return file.getvalue()


def save_file(
    tensors: Mapping[str, Tensor],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
) -> None:
    """Atomically writes tensors by name to a file."""
    write_whole(Path(filename), lambda file: write_safetensors(file, tensors, metadata))


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors by name, from the bytes of a safetensors file."""
    try:
        return read_with_metadata(io.BytesIO(data), placement_of("cpu"))[0]
    except Damage as problem:
        raise SafetensorError(str(problem)) from None


def load_file(filename: str | os.PathLike[str], device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors by name, from a file, on a device."""
    with safe_open(filename, "pt", device=device) as file:
        return {name: file.get_tensor(name) for name in file.offset_keys()}


def save_model(
    model: Any,
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,
) -> None:
    """Writes the `state_dict` of a module; tied tensors only under their first name.

    Tensors are contiguous in the file, whatever `force_contiguous` is.
    """
    names: dict[int, str] = {}
    kept: dict[str, Tensor] = {}
    texts = dict(metadata or {})
    for name, tensor in model.state_dict(keep_vars=True).items():
        first = names.setdefault(id(tensor), name)
        if first == name:
            kept[name] = tensor
        else:
            texts[name] = first
    save_file(kept, filename, texts)


def load_model(
    model: Any, filename: str | os.PathLike[str], strict: bool = True, device: Any = "cpu"
) -> tuple[set[str], list[str]]:
    """Loads a module from a file that `save_model` wrote; returns missing and unexpected names.

    Names tied to a tensor in the file do not count as missing. With `strict`, raises
    `RuntimeError` for the others.
    """
    values = load_file(filename, device)
    missing, unexpected = model.load_state_dict(values, strict=False)
    tied = model.state_dict(keep_vars=True)
    present = {id(tied[name]) for name in values if name in tied}
    left = {name for name in missing if id(tied[name]) not in present}
    if strict and (left or unexpected):
        odd = [f"missing: {sorted(left)}"] * bool(left) + [f"unexpected: {unexpected}"]
        raise RuntimeError(f"{type(model).__name__} does not match the file: {'; '.join(odd)}")
    return left, list(unexpected)
