"""The global names that a checkpoint's pickle may use, and their counterparts here."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from metaop.serialization.builder import Builder, Region, StorageReference, Survey
from metaop.serialization.damage import Damage
from metaop.serialization.sparse_parts import layout_named
from metaop.serialization.storage_types import DTYPE_NAMES, STORAGE_CLASSES
from metaop.tensor.size import Size
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tensor_type import Device


class Allowed:
    """A function that a pickle may call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


class StorageClass:
    """The value of a name like `torch.FloatStorage`; `dtype` is None for untyped bytes."""

    def __init__(self, dtype: DType | None) -> None:
        self.dtype = dtype


class NumpyType:
    """A NumPy dtype of plain numbers before its state is known."""

    def __init__(self, text: str, *flags: Any) -> None:
        self.dtype = np.dtype(str(text))
        if self.dtype.kind not in "biufc":
            raise Damage(f"it has an array with elements of type {self.dtype}")

    def completed(self, state: Any) -> np.dtype:
        """The type; of the pickled state only the byte order matters."""
        return self.dtype.newbyteorder(state[1])


def storage_of(pid: Any) -> StorageReference:
    """The storage that a persistent id ('storage', class, key, location, length, …) names."""
    if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
        raise Damage(f"it has the unknown persistent id {pid!r}")
    _, kind, key, location, length = pid[:5]
    if not isinstance(kind, StorageClass):
        raise Damage(f"its storage {key!r} has no storage class")
    return StorageReference(str(key), kind.dtype, str(location), int(length))


def tensor_names(maker: Survey | Builder) -> dict[tuple[str, str], Any]:
    """The functions by which PyTorch's pickles rebuild tensors, implemented with `maker`."""

    def rebuild(
        storage: StorageReference,
        offset: int,
        size: tuple[int, ...],
        stride: tuple[int, ...],
        requires_grad: bool = False,
        hooks: Any = None,
        metadata: Any = None,
    ) -> Any:
        if storage.dtype is None:
            raise Damage("it has a tensor in a storage without an element type")
        region = Region(storage.dtype, int(offset), tuple(size), tuple(stride))
        return maker.tensor(storage, region, bool(requires_grad))

    def rebuild_with_dtype(
        storage: StorageReference,
        offset: int,
        size: tuple[int, ...],
        stride: tuple[int, ...],
        requires_grad: bool,
        hooks: Any,
        dtype: DType,
        metadata: Any = None,
    ) -> Any:
        region = Region(dtype, int(offset), tuple(size), tuple(stride))
        return maker.tensor(storage, region, bool(requires_grad))

    def rebuild_parameter(data: Any, requires_grad: bool, *hooks_and_state: Any) -> Any:
        return maker.parameter(data, bool(requires_grad))

    functions: dict[str, Callable[..., Any]] = {
        "_rebuild_tensor": rebuild,
        "_rebuild_tensor_v2": rebuild,
        "_rebuild_tensor_v3": rebuild_with_dtype,
        "_rebuild_parameter": rebuild_parameter,
        "_rebuild_parameter_with_state": rebuild_parameter,
        "_rebuild_sparse_tensor": maker.sparse,
    }
    return {("torch._utils", name): Allowed(function) for name, function in functions.items()}


def _encode(text: str, encoding: str) -> bytes:
    """Decodes bytes as pickle protocol 2 writes them."""
    if encoding != "latin1":
        raise Damage(f"it encodes bytes as {encoding!r}")
    return text.encode("latin1")


def _byte_array(content: bytes = b"") -> bytearray:
    """A bytearray, which a number would make as large as it likes."""
    if not isinstance(content, bytes):
        raise Damage(f"it makes a bytearray of {content!r}")
    return bytearray(content)


def _default_dictionary(factory: Any = None) -> dict[Any, Any]:
    """A defaultdict of plain containers; a plain dict where a pickle chooses another factory."""
    return defaultdict(factory) if factory in _CONTAINERS else {}


def _empty_array(*ignored: Any) -> np.ndarray:
    """An array whose shape, type and bytes come with the following BUILD."""
    return np.empty(0, np.int8)


def _numpy_scalar(kind: np.dtype, content: bytes) -> int | float | bool | complex:
    """Converts a NumPy scalar to the Python number of the same value."""
    if not isinstance(kind, np.dtype):
        raise Damage(f"it has a number of the type {kind!r}")
    return np.frombuffer(content, kind, 1)[0].item()


_CONTAINERS = (set, frozenset, dict, list)

PLAIN_NAMES: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "Counter"): Allowed(Counter),
    ("collections", "defaultdict"): Allowed(_default_dictionary),
    ("_codecs", "encode"): Allowed(_encode),
    ("torch", "Size"): Allowed(Size),
    ("torch", "device"): Allowed(Device),
    ("torch.serialization", "_get_layout"): Allowed(layout_named),
    ("torch.storage", "UntypedStorage"): StorageClass(None),
    ("torch", "UntypedStorage"): StorageClass(None),
    ("numpy", "dtype"): Allowed(NumpyType),
    ("numpy", "ndarray"): "numpy.ndarray",
}
PLAIN_NAMES |= {("torch", name): StorageClass(dtype) for name, dtype in STORAGE_CLASSES.items()}
PLAIN_NAMES |= {("torch", name): dtype for name, dtype in DTYPE_NAMES.items()}
# The tar files of early releases name tensor classes besides storage classes.
for _name, _dtype in STORAGE_CLASSES.items():
    PLAIN_NAMES["torch", _name.replace("Storage", "Tensor")] = _dtype
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    PLAIN_NAMES[_module, "_reconstruct"] = Allowed(_empty_array)
    PLAIN_NAMES[_module, "scalar"] = Allowed(_numpy_scalar)
for _module in ("builtins", "__builtin__"):
    for _kind in (*_CONTAINERS, complex):
        PLAIN_NAMES[_module, _kind.__name__] = _kind
    PLAIN_NAMES[_module, "bytearray"] = Allowed(_byte_array)
    PLAIN_NAMES[_module, "bytes"] = Allowed(lambda: b"")  # how protocol 2 writes b""
