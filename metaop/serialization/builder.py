"""Builds tensors from the storages and regions that a checkpoint describes.

A checkpoint is unpickled twice: first to survey which regions of which storages it uses, then,
with the bytes available, to build the tensors. This reveals shared storages before any is built.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from metaop.nn.parameter import Parameter
from metaop.serialization.damage import Damage
from metaop.serialization.objects import check_allowed, imported
from metaop.serialization.sparse_parts import rebuilt
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.sparse.layouts import layout
from metaop.tensor.strides import contiguous_strides
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

    def covers(self, count: int) -> bool:
        """Whether it has a number of elements, which is all of them, in their order."""
        is_in_order = self.stride == contiguous_strides(self.size)
        return self.offset == 0 and prod(self.size) == count and is_in_order


Placement = Callable[[str], Device]


class Survey:
    """The first pass: records what is used and builds nothing.

    `trusted` says that the caller allows the file to name all classes and functions.
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

    def sparse(self, kind: layout, parts: tuple[Any, ...]) -> Any:
        return Stub()

    def named(self, module: str, name: str) -> Any:
        """A placeholder for a class or function that the file names."""
        check_allowed(module, name, self.trusted)
        return Stub()


class Stub:
    """A placeholder for a tensor, an object or a class in the survey, which imports nothing."""

    def __call__(self, *arguments: Any, **options: Any) -> Stub:
        return Stub()

    def append(self, item: Any) -> None:
        """Takes an item of a list."""

    def add(self, item: Any) -> None:
        """Takes an item of a set."""

    def __setitem__(self, key: Any, item: Any) -> None:
        """Takes an item of a dictionary."""


class Builder:
    """The second pass: `read(key)` returns the bytes of a storage; tied tensors stay tied."""

    def __init__(
        self, survey: Survey, read: Callable[[str], np.ndarray], placement: Placement
    ) -> None:
        self.trusted = survey.trusted
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
            is_whole = region.covers(base.numel()) and region.size == tuple(base.shape)
            place = (region.size, region.stride, region.offset)
            tensor = base.detach() if is_whole else base.as_strided(*place)
        self._built.setdefault(key, tensor)
        return tensor.requires_grad_() if requires_grad else tensor

    def parameter(self, data: Any, requires_grad: bool) -> Any:
        return Parameter(data, requires_grad)

    def sparse(self, kind: layout, parts: tuple[Any, ...]) -> Any:
        return rebuilt(kind, parts)

    def named(self, module: str, name: str) -> Any:
        """A class or function that the file names."""
        check_allowed(module, name, self.trusted)
        return imported(module, name)

    def _alone(self, storage: StorageReference, region: Region) -> Tensor:
        values = self._values(storage, region.dtype)[region.offset :]
        strides = [step * region.dtype.itemsize for step in region.stride]
        shown = np.lib.stride_tricks.as_strided(values, region.size, strides)
        return self._placed(np.ascontiguousarray(shown).reshape(region.size), storage, region.dtype)

    def _base(self, storage: StorageReference, dtype: DType) -> Tensor:
        """All values of a storage, in the shape of the tensor that has all if there is one.

        A parameter has to be such a tensor: one that is made of a view has memory of its own.
        """
        base = self._bases.get((storage.key, dtype))
        if base is None:
            values = self._values(storage, dtype)
            regions = [one for one in self._survey.regions[storage.key] if one.dtype is dtype]
            wholes = [one.size for one in regions if one.covers(values.size)]
            shape = wholes[0] if wholes else values.shape
            base = self._placed(values.reshape(shape), storage, dtype)
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
