"""Storages: the memory behind tensors, as an array of elements or of bytes.

A view and its base have one storage, and so have a tensor and what `detach()` made of it. What is
written into a storage is seen by all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from metaop.errors import ArgumentTypeError, DimensionError, UnsupportedError
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.strides import Layout, contiguous_strides, view_layout
from metaop.tensor.surface import method, public
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tensor_type import META, Device


def owner_and_layout(tensor: Tensor) -> tuple[Tensor, Layout]:
    """The tensor that owns the memory which `tensor` shows, and the strides and the offset in it.

    That is its base, or the tensor itself: of a view that no strides describe as well.
    """
    base = tensor._base
    layout = None if base is None else view_layout(base._shape, tensor._steps)
    if base is None or layout is None:
        return tensor, (contiguous_strides(tensor._shape), 0)
    return base, layout


@method()
def data_ptr(input: Tensor) -> int:
    """The address of the first element, 0 where there is none; computes the value.

    A write in place may move a tensor: metaop computes its new value beside the old one.
    """
    if 0 in input._shape or input.device is META:
        return 0
    owner, (_, offset) = owner_and_layout(input)
    address: int = owner.buffer().address
    return address + offset * input.dtype.itemsize


class Storage:
    """What both kinds of storage have: an entry is an element of one and a byte of the other."""

    def __init__(self, owner: Tensor) -> None:
        self._owner = owner.data

    @property
    def device(self) -> Device:
        return self._owner.device

    @property
    def is_cuda(self) -> bool:
        return self._owner.device.type == "cuda"

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return data_ptr(self._owner)

    def nbytes(self) -> int:
        """How many bytes the storage has."""
        return self._owner._call.type.nbytes

    def element_size(self) -> int:
        """How many bytes an entry has."""
        raise NotImplementedError

    def size(self) -> int:
        """How many entries the storage has."""
        return self.nbytes() // self.element_size()

    def __len__(self) -> int:
        return self.size()

    def is_pinned(self) -> bool:
        """Whether the memory is locked for transfers: never."""
        return False

    def is_shared(self) -> bool:
        """Whether other processes see the memory: never."""
        return False

    def resize_(self, size: int) -> None:
        """Raises UnsupportedError unless the size is the current one."""
        if size != self.size():
            raise UnsupportedError("resize_ of a storage", fix="resize_() the tensor")

    def tolist(self) -> list[Any]:
        """All entries."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __repr__(self) -> str:
        entries = "\n".join(f" {entry}" for entry in self.tolist())
        kind = f"metaop.storage.{type(self).__name__}"
        return f"{entries}\n[{kind}({self._description()}) of size {self.size()}]"

    def _description(self) -> str:
        return f"device={self.device}"

    def _position(self, index: Any) -> int:
        if not isinstance(index, int):
            raise ArgumentTypeError(
                f"can't index a {type(self).__name__} with {type(index).__name__}",
                fix="pass an integer, or index the tensor",
            )
        if not -self.size() <= index < self.size():
            raise DimensionError(
                f"index {index} out of range for storage of size {self.size()}",
                fix="indices count from 0",
            )
        return index


class UntypedStorage(Storage):
    """The memory behind a tensor as bytes; a byte that is written copies the storage.

    >>> metaop.UntypedStorage(metaop.zeros(3)).nbytes()
    12
    """

    def element_size(self) -> int:
        """How many bytes an entry has: one."""
        return 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[int, int, Device]:
        return self.data_ptr(), self.nbytes(), self.device

    @property
    def _cdata(self) -> int:
        return self.data_ptr()

    def _bytes(self) -> np.ndarray:
        return np.ascontiguousarray(self._owner._array()).reshape(-1).view(np.uint8)

    def _replace(self, content: np.ndarray) -> None:
        kind = self._owner._call.type
        values = content.view(kind.dtype.numpy).reshape(kind.shape)
        self._owner.copy_(from_array(values, kind.dtype))

    def tolist(self) -> list[int]:
        """All bytes."""
        return list(self._bytes().tolist())

    def __getitem__(self, index: int) -> int:
        return int(self._bytes()[self._position(index)])

    def __setitem__(self, index: int | slice, value: int) -> None:
        content = self._bytes().copy()
        content[index if isinstance(index, slice) else self._position(index)] = value
        self._replace(content)

    def fill_(self, value: int) -> UntypedStorage:
        """Sets every byte."""
        self._replace(np.full(self.nbytes(), value, np.uint8))
        return self

    def copy_(self, source: UntypedStorage, non_blocking: Any = None) -> UntypedStorage:
        """Takes over the bytes of a storage of the same size."""
        self._replace(source._bytes().copy())
        return self

    def clone(self) -> UntypedStorage:
        """A storage of its own with the same bytes."""
        return UntypedStorage(self._owner.clone())

    def cpu(self) -> UntypedStorage:
        """The storage, or a copy of it in host memory."""
        return UntypedStorage(self._owner.cpu()) if self.is_cuda else self


class TypedStorage(Storage):
    """The memory behind a tensor as elements in a row; its length is their number.

    >>> list(metaop.TypedStorage(metaop.tensor([[1, 2], [3, 4]])))
    [1, 2, 3, 4]
    """

    @property
    def dtype(self) -> DType:
        return self._owner.dtype

    def element_size(self) -> int:
        """How many bytes an element has."""
        return self.dtype.itemsize

    def _description(self) -> str:
        return f"dtype={self.dtype}, device={self.device}"

    def _row(self) -> Any:
        return self._owner.view(-1)

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage(self._owner)

    _untyped_storage = property(untyped)

    def tolist(self) -> list[Any]:
        """All elements."""
        return list(self._row().tolist())

    def __getitem__(self, index: int) -> Any:
        return self._row()[self._position(index)].item()

    def __setitem__(self, index: int | slice, value: Any) -> None:
        place = index if isinstance(index, slice) else self._position(index)
        self._row()[place] = value

    def fill_(self, value: Any) -> TypedStorage:
        """Sets every element."""
        self._owner.fill_(value)
        return self

    def copy_(self, source: TypedStorage, non_blocking: Any = None) -> TypedStorage:
        """Takes over the elements of a storage of the same size."""
        self._row().copy_(source._row())
        return self

    def clone(self) -> TypedStorage:
        """A storage of its own with the same elements."""
        return TypedStorage(self._owner.clone())

    def cpu(self) -> TypedStorage:
        """The storage, or a copy of it in host memory."""
        return TypedStorage(self._owner.cpu()) if self.is_cuda else self


@method()
def untyped_storage(input: Tensor) -> UntypedStorage:
    """The memory of the tensor, or of the base of a view, as bytes."""
    return UntypedStorage(owner_and_layout(input)[0])


@method()
def storage(input: Tensor) -> TypedStorage:
    """The memory of the tensor, or of the base of a view, as elements."""
    return TypedStorage(owner_and_layout(input)[0])


@public()
def is_storage(obj: Any) -> bool:
    """Whether an object is the storage of a tensor.

    >>> metaop.is_storage(metaop.zeros(2).untyped_storage())
    True
    """
    return isinstance(obj, Storage)


method("const_data_ptr")(data_ptr)
