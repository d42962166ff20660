"""Converts PyTorch checkpoints to safetensors, without PyTorch and without running their code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from metaop.errors import CheckpointError
from metaop.serialization import load, save
from metaop.tensor.core import Tensor


def convert_weights(source: Path, target: Path) -> tuple[int, int]:
    """Writes the tensors of a checkpoint to a .safetensors file.

    Nested mappings and lists get dotted names; if a single entry, such as `state_dict`, holds all
    tensors, the names are those inside it. Tied tensors are written under each of their names.
    Returns the number of tensors and of bytes. Raises `CheckpointError` if the file is damaged,
    has no tensor, or requires running code.
    """
    if target.suffix != ".safetensors":
        raise CheckpointError(
            f"{target} does not end in .safetensors", fix="pass a name with this ending"
        )
    tensors = dict(named_tensors(_holder(load(source))))
    if not tensors:
        raise CheckpointError(f"{source} holds no tensors", fix="save a state_dict")
    save(tensors, target)
    return len(tensors), sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _holder(content: Any) -> Any:
    """The innermost mapping that holds all tensors."""
    while isinstance(content, Mapping):
        holders = [
            value for value in content.values() if next(named_tensors(value), None) is not None
        ]
        if len(holders) != 1 or not isinstance(holders[0], Mapping):
            break
        content = holders[0]
    return content


def named_tensors(content: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of plain containers, with dotted names."""
    if isinstance(content, Tensor):
        yield prefix or "tensor", content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from named_tensors(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(content, (list, tuple)):
        for index, value in enumerate(content):
            yield from named_tensors(value, f"{prefix}.{index}" if prefix else str(index))
