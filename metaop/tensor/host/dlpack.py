"""Exchange of memory with other libraries by DLPack, without copying.

NumPy and cupy make and read the capsules; each keeps the memory alive until the other side lets go.
What they lack is the type bfloat16: it travels as 16-bit integers, with its own code written into
the capsule.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from metaop.codegen.cuda.device import runtime
from metaop.codegen.cuda.runtime import DeviceBuffer
from metaop.errors import ArgumentTypeError, UnsupportedError
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.devices import moved
from metaop.tensor.exposed import borrow, lend
from metaop.tensor.options import DeviceLike, device_of
from metaop.tensor.surface import public
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import leaf
from metaop.unified_graph.tensor_type import CPU, Device, TensorType

_CPU, _CUDA, _PINNED, _MANAGED = 1, 2, 3, 13
_UNSIGNED, _BFLOAT = 1, 4
_VERSION = (1, 0)


class _Description(ctypes.Structure):
    """The DLTensor of a capsule, as far as it is read here."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
    ]


# Where the description begins: after version, context, deleter and flags in the newer layout.
_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 32}

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _describe(capsule: Any) -> _Description:
    name = _name_of(capsule) if type(capsule).__name__ == "PyCapsule" else None
    if name not in _OFFSETS:
        raise ArgumentTypeError(
            f"from_dlpack: {capsule!r} is no DLPack capsule that can be read",
            fix="a capsule can be consumed once only; pass the tensor itself",
        )
    address = _pointer_of(capsule, name) + _OFFSETS[name]
    return _Description.from_address(address)


# --- giving -------------------------------------------------------------------------------------


def dlpack_device(input: Tensor) -> tuple[int, int]:
    """DLPack's type and number of the device."""
    device = input.device
    if device.type == "cuda":
        return _CUDA, device.index or 0
    return _CPU, 0


def dlpack(
    input: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A capsule through which another library shows the memory of the tensor, computed now.

    Raises BufferError for tensors that require a gradient and for other devices than their own.
    """
    if input.requires_grad:
        raise BufferError(
            "Can't export tensors that require gradient, use tensor.detach() before __dlpack__"
        )
    if dl_device is not None and tuple(dl_device) != dlpack_device(input):
        raise BufferError(f"a tensor on {input.device} cannot be exported to device {dl_device}")
    versions = {} if max_version is None else {"max_version": max_version}
    source: Any = input.clone() if copy else input
    narrow = input.dtype is dtypes.bfloat16
    if input.device is CPU:
        lent = lend(source)
        array = source._array() if lent is None else lent
        shown: Any = array.view(np.uint16) if narrow else array
        capsule = shown.__dlpack__(**versions)
    else:
        capsule = _device_array(source, narrow).__dlpack__(stream=stream, **versions)
    if narrow:
        _describe(capsule).type_code = _BFLOAT
    return capsule


def _device_array(tensor: Tensor, narrow: bool) -> Any:
    """The memory of a tensor on a GPU as an array of cupy, which keeps it alive."""
    import cupy

    buffer: Any = tensor.buffer()
    index = tensor.device.index or 0
    memory = cupy.cuda.UnownedMemory(buffer.address, buffer.nbytes, buffer, index)
    dtype = np.uint16 if narrow else tensor.dtype.numpy
    return cupy.ndarray(tuple(tensor.shape), dtype, cupy.cuda.MemoryPointer(memory, 0))


def to_dlpack(tensor: Tensor) -> Any:
    """The capsule of a tensor; `from_dlpack` of another library takes it, once.

    The shape, the type and the memory are the tensor's.

    >>> from metaop.utils.dlpack import to_dlpack
    >>> metaop.from_dlpack(to_dlpack(metaop.tensor([1.0, 2.0])))
    tensor([1., 2.])
    """
    return dlpack(tensor)


# --- taking -------------------------------------------------------------------------------------


class _Parcel:
    """A capsule on its way to NumPy or cupy."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self._capsule = capsule
        self._device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule


class _Writable:
    """An array that may be written, although NumPy does not know so."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


@public()
def from_dlpack(ext_tensor: Any, *, device: DeviceLike = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's: NumPy, PyTorch, JAX, cupy, ….

    `ext_tensor` has `__dlpack__`, or is a capsule. Memory that is read-only, has negative strides
    or is not aligned to 16 bytes is copied; `copy=False` makes that a BufferError, `copy=True`
    copies always. `device` moves the result.

    The shape and the type are kept.

    >>> import numpy as np
    >>> metaop.from_dlpack(np.array([1.0, 2.0], np.float32))
    tensor([1., 2.])
    """
    if isinstance(ext_tensor, Tensor):
        result: Tensor = ext_tensor.detach()
    else:
        capsule = _capsule_of(ext_tensor)
        description = _describe(capsule)
        kind = description.device_type
        if kind in (_CPU, _PINNED):
            result = _from_host(capsule, description, copy)
        elif kind in (_CUDA, _MANAGED):
            result = _from_device(capsule, description, copy)
        else:
            raise UnsupportedError(
                f"from_dlpack: memory of DLPack's device type {kind}", fix="move it to the host"
            )
    if copy:
        result = result.clone()
    return result if device is None else moved(result, device_of(device))


def _capsule_of(source: Any) -> Any:
    if not hasattr(source, "__dlpack__"):
        return source
    try:
        return source.__dlpack__(max_version=_VERSION)
    except TypeError:  # a library that knows the older protocol only
        return source.__dlpack__()


def _taken_type(description: _Description) -> bool:
    """Whether the capsule holds bfloat16; says 16-bit integers then."""
    if description.type_code != _BFLOAT:
        return False
    description.type_code = _UNSIGNED
    return True


def _from_host(capsule: Any, description: _Description, copy: bool | None) -> Tensor:
    narrow = _taken_type(description)
    older = _name_of(capsule) == b"dltensor"
    array = np.from_dlpack(_Parcel(capsule, (_CPU, 0)))
    if older:  # without a flag that says otherwise it may be written
        array = np.asarray(_Writable(array))
    if narrow:
        array = array.view(dtypes.bfloat16.numpy)
    dtype = dtypes.from_numpy_dtype(array.dtype)
    if dtype is None:
        raise ArgumentTypeError(
            f"from_dlpack: elements of type {array.dtype}",
            fix="supported types are " + ", ".join(known.name for known in dtypes.ALL),
        )
    result = borrow(array, dtype)
    if copy is False and array.size and result.data_ptr() != array.ctypes.data:
        raise BufferError(
            "from_dlpack: the memory has to be copied, because it is read-only, has negative "
            "strides, or is not aligned to 16 bytes"
        )
    return result


def _from_device(capsule: Any, description: _Description, copy: bool | None) -> Tensor:
    import cupy

    index = description.device_index
    narrow = _taken_type(description)
    array = cupy.from_dlpack(_Parcel(capsule, (_CUDA, index)))
    contiguous = cupy.ascontiguousarray(array)
    if copy is False and contiguous is not array:
        raise BufferError("from_dlpack: the memory has to be copied: it is not contiguous")
    dtype = dtypes.bfloat16 if narrow else dtypes.from_numpy_dtype(contiguous.dtype)
    if dtype is None:
        raise ArgumentTypeError(f"from_dlpack: elements of type {contiguous.dtype}")
    buffer = DeviceBuffer(contiguous.data.ptr, contiguous.nbytes, runtime(index), contiguous)
    kind = TensorType(tuple(contiguous.shape), dtype, Device("cuda", index))
    return wrap(leaf(kind, buffer))
