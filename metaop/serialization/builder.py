"""Builds tensors from the storages and regions that a checkpoint describes.

A checkpoint is unpickled twice: first to survey which regions of which storages it uses, then,
with the bytes available, to build the tensors. This reveals shared storages before any is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from metaop.nn.parameter import Parameter
from metaop.serialization import objects
from metaop.serialization.damage import Damage
from metaop.tensor.core import Tensor, from_array
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tensor_type import CPU, Device


class StorageReference(NamedTuple):
    """A storage as a pickle names it; `dtype` is None for untyped bytes."""

    key: str
    dtype: DType | None
    location: str
    length: int

    @property
    def nbytes(self) -> int:
        return self.length * (1 if self.dtype is None else self.dtype.itemsize)


class Region(NamedTuple):
    """The elements of a storage that one tensor views; offset and strides are in elements."""

    dtype: DType
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def end(self) -> int:
        """One past the last element of the storage that is read."""
        if 0 in self.size:
            return 0
        return 1 + self.offset + sum((n - 1) * s for n, s in zip(self.size, self.stride))


Placement = Callable[[str], Device]


class Survey:
    """The first pass: records what is used and builds nothing.

    `trusted` says that the caller allows the file to name classes and functions to import.
    """

    def __init__(self, trusted: bool = False) -> None:
        self.trusted = trusted
        self.storages: dict[str, StorageReference] = {}
        self.regions: dict[str, dict[Region, None]] = {}

    def tensor(self, storage: StorageReference, region: Region, requires_grad: bool) -> Any:
        check_region(storage, region)
        self.storages[storage.key] = storage
        self.regions.setdefault(storage.key, {})[region] = None
        return Stub()

    def parameter(self, data: Any, requires_grad: bool) -> Any:
        return Stub()

    def object(self, function: str, *arguments: Any) -> Any:
        if not self.trusted:
            raise Damage(
                f"it holds a whole object ({'.'.join(map(str, arguments[:2]))})",
                fix="pass weights_only=False if you trust the file: it names modules to import",
            )
        return Stub()


class Stub:
    """A placeholder for a tensor or an object during the survey; accepts any attributes."""


class Builder:
    """The second pass: `read(key)` returns the bytes of a storage; tied tensors stay tied."""

    def __init__(
        self, survey: Survey, read: Callable[[str], np.ndarray], placement: Placement
    ) -> None:
        self._survey = survey
        self._read = read
        self._placement = placement
        self._built: dict[tuple[str, Region], Tensor] = {}
        self._bases: dict[tuple[str, DType], Tensor] = {}

    def tensor(self, storage: StorageReference, region: Region, requires_grad: bool) -> Any:
        key = (storage.key, region)
        first = self._built.get(key)
        if first is not None:
            tensor = first.detach()
        elif len(self._survey.regions[storage.key]) == 1:
            tensor = self._alone(storage, region)
        else:
            base = self._base(storage, region.dtype)
            tensor = base.as_strided(region.size, region.stride, region.offset)  # type: ignore
        self._built.setdefault(key, tensor)
        return tensor.requires_grad_() if requires_grad else tensor

    def parameter(self, data: Any, requires_grad: bool) -> Any:
        return Parameter(data, requires_grad)

    def object(self, function: str, *arguments: Any) -> Any:
        return getattr(objects, function)(*arguments)

    def _alone(self, storage: StorageReference, region: Region) -> Tensor:
        values = self._values(storage, region.dtype)[region.offset :]
        strides = [step * region.dtype.itemsize for step in region.stride]
        shown = np.lib.stride_tricks.as_strided(values, region.size, strides)
        return self._placed(np.ascontiguousarray(shown).reshape(region.size), storage, region.dtype)

    def _base(self, storage: StorageReference, dtype: DType) -> Tensor:
        base = self._bases.get((storage.key, dtype))
        if base is None:
            base = self._placed(self._values(storage, dtype), storage, dtype)
            self._bases[storage.key, dtype] = base
        return base

    def _values(self, storage: StorageReference, dtype: DType) -> np.ndarray:
        raw = self._read(storage.key)
        return raw[: raw.size // dtype.itemsize * dtype.itemsize].view(dtype.numpy)

    def _placed(self, values: np.ndarray, storage: StorageReference, dtype: DType) -> Tensor:
        tensor = from_array(values, dtype)
        device = self._placement(storage.location)
        return tensor if device is CPU else tensor.to(device)  # type: ignore[attr-defined]


def check_region(storage: StorageReference, region: Region) -> None:
    """Raises Damage for a region that exceeds its storage."""
    negative = min((region.offset, *region.size, *region.stride)) < 0
    if len(region.size) != len(region.stride) or negative:
        raise Damage(f"its tensor has the impossible layout {region}")
    needed = region.end * region.dtype.itemsize
    if needed > storage.nbytes:
        raise Damage(
            f"its tensor of size {list(region.size)} needs {needed} bytes of storage "
            f"{storage.key!r}, which has {storage.nbytes}"
        )
