"""Pickles objects in PyTorch's format, without PyTorch."""

from __future__ import annotations

import io
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from metaop.errors import CheckpointError
from metaop.nn.parameter import Parameter
from metaop.serialization.objects import place_of
from metaop.serialization.sparse_parts import parts_of
from metaop.serialization.storage_types import CLASS_OF_DTYPE
from metaop.tensor.core import Tensor
from metaop.tensor.history import Cell
from metaop.tensor.size import Size
from metaop.tensor.sparse.layouts import layout
from metaop.tensor.sparse.tensors import SparseTensor
from metaop.tensor.storage import owner_and_layout
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tensor_type import Device


class _Name:
    """A global name that the pickle refers to."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __call__(self) -> None:
        """Never called: pickle requires the functions that it writes to be callable."""


class _Storage(NamedTuple):
    """The memory of one or several tensors: `cell`, which they share, kept alive."""

    key: str
    base: Tensor
    cell: Cell


# Typed as Any: the Python pickler can be subclassed, but has no published types.
_Pickler: Any = pickle._Pickler  # type: ignore[attr-defined]


class CheckpointPickler(_Pickler):
    """Writes tensors as PyTorch does and collects their storages.

    Objects of other classes are written as Python pickles them.

    After `dump`, `storages` maps each storage's key to the tensor that owns the memory.
    """

    dispatch = dict(_Pickler.dispatch)

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=2)
        self._names: dict[tuple[str, str], _Name] = {}
        self._storages: dict[int, _Storage] = {}

    @property
    def storages(self) -> list[tuple[str, Tensor]]:
        return [(storage.key, storage.base) for storage in self._storages.values()]

    def name(self, module: str, name: str) -> _Name:
        """The unique object that represents a global name in this pickle."""
        return self._names.setdefault((module, name), _Name(module, name))

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _Storage):
            return None
        base = obj.base
        kind = self.name("torch", CLASS_OF_DTYPE[base.dtype])
        # Global tensors are written as their whole values.
        place = "cpu" if base.device.placement is not None else str(base.device)
        return ("storage", kind, obj.key, place, base.numel())  # type: ignore

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, DType):
            obj = self.name("torch", obj.name)
        elif isinstance(obj, np.generic):
            obj = obj.item()
        elif isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
            place = place_of(obj)
            obj = self.name(*place) if place else obj
        super().save(obj, save_persistent_id)

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        if kind is SparseTensor:
            parts = (obj.layout, parts_of(obj))
            return self.name("torch._utils", "_rebuild_sparse_tensor"), parts
        if kind is layout:
            return self.name("torch.serialization", "_get_layout"), (f"torch.{obj._name}",)
        if kind is OrderedDict:
            attributes = {key: value for key, value in vars(obj).items() if key == "_metadata"}
            items = iter(obj.items())
            return self.name("collections", "OrderedDict"), (), attributes or None, None, items
        if kind is Counter:  # the milestones of a learning rate schedule
            return self.name("collections", "Counter"), (dict(obj),)
        if kind is Size:
            return self.name("torch", "Size"), (tuple(obj),)
        if kind is Device:
            index = () if obj.index is None else (obj.index,)
            return self.name("torch", "device"), (obj.type, *index)
        if kind in (set, frozenset):
            return self.name("__builtin__", kind.__name__), (list(obj),)
        if kind is complex:
            return self.name("__builtin__", "complex"), (obj.real, obj.imag)
        if kind is bytes:
            return self.name("_codecs", "encode"), (obj.decode("latin1"), "latin1")
        if kind is np.ndarray and obj.dtype.kind in "biufc":
            return self._array(obj)
        if isinstance(obj, np.dtype) and obj.kind in "biufc":
            return self.name("numpy", "dtype"), *obj.__reduce__()[1:]
        if hasattr(kind, "_class_in_files"):
            # Modules created from a graph have their own classes, which cannot be imported.
            state = obj.__getstate__() if hasattr(obj, "__getstate__") else vars(obj)
            return object.__new__, (obj._class_in_files,), state
        return NotImplemented

    def _array(self, array: np.ndarray) -> Any:
        """An array in NumPy's pickle format; the state of its random generators has one."""
        empty = (self.name("numpy", "ndarray"), (0,), b"b")
        state = (1, array.shape, array.dtype, False, array.tobytes())
        return self.name("numpy._core.multiarray", "_reconstruct"), empty, state

    def _tensor(self, tensor: Tensor) -> Any:
        requires_grad = tensor.requires_grad
        if isinstance(tensor, Parameter):
            data = tensor.detach()
            return self.name("torch._utils", "_rebuild_parameter"), (
                data,
                requires_grad,
                OrderedDict(),
            )
        storage, offset, stride = self._storage(tensor)
        size = tuple(tensor.shape)
        requires_grad = requires_grad and tensor.is_leaf
        return self.name("torch._utils", "_rebuild_tensor_v2"), (
            storage,
            offset,
            size,
            stride,
            requires_grad,
            OrderedDict(),
        )

    def _storage(self, tensor: Tensor) -> tuple[_Storage, int, tuple[int, ...]]:
        """The storage of a tensor, and the tensor's offset and strides in it."""
        base, place = owner_and_layout(tensor)
        if base.dtype is not tensor.dtype:  # a real view of complex numbers, or the reverse
            base, place = owner_and_layout(tensor.detach().clone())
        peer = base.detach()  # gives both the cell that all tensors of this memory share
        cell = peer._cell
        assert cell is not None
        storage = self._storages.get(id(cell))
        if storage is None:
            storage = self._storages[id(cell)] = _Storage(str(len(self._storages)), base, cell)
        return storage, place[1], place[0]

    def _save_name(self, obj: _Name) -> None:
        self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        self.memoize(obj)

    dispatch[_Name] = _save_name


def pickle_checkpoint(obj: Any) -> tuple[bytes, list[tuple[str, Callable[[], np.ndarray]]]]:
    """The pickle of an object, and for each storage its key and a function that reads its bytes."""
    file = io.BytesIO()
    pickler = CheckpointPickler(file)
    try:
        pickler.dump(obj)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        if not isinstance(error, pickle.PicklingError) and "pickle" not in str(error):
            raise
        raise CheckpointError(
            f"cannot save an object: {error}",
            fix="save its state_dict, or give its class __getstate__ and __setstate__",
        ) from error
    return file.getvalue(), [(key, _reader(base)) for key, base in pickler.storages]


def _reader(base: Tensor) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        values = base.detach()._array().reshape(-1)
        return values.view(np.uint8)

    return read
