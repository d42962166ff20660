"""Memory of a GPU that is none, and arrays in it, as cupy's: NumPy cannot read them.

Memory is poisoned when it is handed out and, in the order of the stream for which it was allocated,
when it is given back: so other streams that still read it find NaN.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.cuda.emulator.streams import (
    StandInError,
    current_device,
    get_current_stream,
)

_ALIGNMENT = 512
_numbers = itertools.count()


class Memory:
    """A piece of the current GPU's memory; `ptr` is its address."""

    live: dict[int, Memory] = {}
    _free: dict[tuple[int, int], list[np.ndarray]] = {}

    def __init__(self, size: int) -> None:
        self.size, self.device_id = size, current_device()
        self._stream = get_current_stream()
        room = max(size, 1) + _ALIGNMENT
        known = Memory._free.get((self.device_id, room))
        self._raw = known.pop() if known else np.full(room, 0xFF, np.uint8)
        self.ptr = -(-self._raw.ctypes.data // _ALIGNMENT) * _ALIGNMENT
        Memory.live[self.ptr] = _Range(self.ptr, size, self.device_id)

    def __del__(self) -> None:
        raw, key = self._raw, (self.device_id, self._raw.size)
        Memory.live.pop(self.ptr, None)

        def give_back() -> None:
            raw.fill(0xFF)
            Memory._free.setdefault(key, []).append(raw)

        self._stream._work.put(give_back)


class _Range:
    def __init__(self, ptr: int, size: int, device_id: int) -> None:
        self.ptr, self.size, self.device_id = ptr, size, device_id


def check_range(ptr: int, size: int, device: int) -> None:
    """StandInError unless the bytes are memory of the GPU that is in use."""
    for one in list(Memory.live.values()):
        if one.ptr <= ptr and ptr + size <= one.ptr + max(one.size, 1):
            if one.device_id != device:
                raise StandInError(f"GPU {device} reads memory of GPU {one.device_id}")
            return
    raise StandInError(f"{size} bytes at {ptr:#x} are no memory of GPU {device}")


class UnownedMemory:
    """Memory that something else owns."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    """A place in memory."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset
        self.device_id = mem.device_id


def alloc(size: int) -> MemoryPointer:
    """Memory with arbitrary contents."""
    return MemoryPointer(Memory(size), 0)


def values_at(ptr: int, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """What lies at an address, for work that a stream does."""
    dtype = np.dtype(dtype)
    count = int(np.prod(tuple(shape), dtype=np.int64)) * dtype.itemsize
    raw = (ctypes.c_uint8 * max(count, 1)).from_address(ptr)
    return np.frombuffer(raw, np.uint8, count).view(dtype).reshape(tuple(shape))


class ndarray:
    """An array on a GPU: shapes and views at once, values when the current stream comes to it."""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any = float,
        memptr: MemoryPointer | None = None,
        *,
        _values: np.ndarray | None = None,
    ) -> None:
        dtype = np.dtype(dtype)
        if memptr is None:
            count = int(np.prod(tuple(shape), dtype=np.int64))
            memptr = alloc(count * dtype.itemsize)
        self._owner = memptr
        self._values = values_at(memptr.ptr, shape, dtype) if _values is None else _values

    def _shown(self, values: np.ndarray) -> ndarray:
        return ndarray(values.shape, values.dtype, self._owner, _values=values)

    @property
    def data(self) -> MemoryPointer:
        """Where the first element lies."""
        start = self._owner
        return MemoryPointer(start.mem, self._values.ctypes.data - start.mem.ptr)

    @property
    def flags(self) -> Any:
        """How the elements lie."""
        return self._values.flags

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "dtype", "size", "nbytes", "itemsize", "ndim", "strides"):
            return getattr(self._values, name)
        raise AttributeError(f"the stand-in for cupy.ndarray has no {name}")

    def __len__(self) -> int:
        return len(self._values)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __bool__(self) -> bool:
        raise StandInError("a value of the GPU is read: the stand-in does not wait for it")

    def view(self, dtype: Any) -> ndarray:
        """The same bytes as another type."""
        return self._shown(self._values.view(dtype))

    def reshape(self, *shape: Any) -> ndarray:
        """The same elements in another shape: a view where that is possible."""
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if not self._values.flags.c_contiguous:
            return self.copy().reshape(shape)
        return self._shown(self._values.reshape(shape))

    def __getitem__(self, index: Any) -> ndarray:
        found = self._values[index]
        if not isinstance(found, np.ndarray):
            found = self._values[(*np.atleast_1d(index), ...)]
        if found.size and not np.may_share_memory(found, self._values):
            raise StandInError("the stand-in has no advanced indexing")
        return self._shown(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        target = self[index]
        work(lambda here, other: here.__setitem__(..., other), target, value)

    def copy(self, order: str = "C") -> ndarray:
        """The same values in memory of their own."""
        result = ndarray(self.shape, self.dtype)
        result[...] = self
        return result

    def astype(self, dtype: Any, copy: bool = True) -> ndarray:
        """The values as another type."""
        result = ndarray(self.shape, dtype)
        work(lambda out, here: out.__setitem__(..., here.astype(dtype)), result, self)
        return result

    def __mul__(self, other: Any) -> ndarray:
        return ufunc(np.multiply, self, other)

    def __truediv__(self, other: Any) -> ndarray:
        return ufunc(np.true_divide, self, other)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        return ufunc(function, *inputs, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        own = FUNCTIONS.get(function.__name__)
        if own is None:
            raise StandInError(f"the stand-in for cupy has no {function.__name__}")
        return own(*args, **kwargs)


def work(function: Callable[..., Any], *operands: Any) -> None:
    """Puts a function of arrays on the current stream; StandInError for arrays of NumPy."""
    values, device = [], current_device()
    for one in operands:
        if isinstance(one, np.ndarray):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        if isinstance(one, ndarray):
            if one._owner.device_id not in (device, -1):
                raise StandInError(f"GPU {device} uses an array of GPU {one._owner.device_id}")
            values.append(one._values)
        else:
            values.append(one)
    get_current_stream().put(lambda: function(*values))


def ufunc(function: Any, *inputs: Any, out: Any = None) -> ndarray:
    """An elementwise function."""
    like = [np.ones((1,), x.dtype) if isinstance(x, ndarray) else x for x in inputs]
    shapes = [x.shape for x in inputs if isinstance(x, ndarray)]
    result = out[0] if isinstance(out, tuple) else out
    if result is None:
        result = ndarray(np.broadcast_shapes(*shapes), function(*like).dtype)
    work(lambda target, *xs: function(*xs, out=target, casting="unsafe"), result, *inputs)
    return result


def empty_like(prototype: ndarray, dtype: Any = None, shape: Any = None) -> ndarray:
    """Memory with arbitrary contents."""
    found = prototype.shape if shape is None else shape
    found = (found,) if isinstance(found, int) else found
    return ndarray(found, prototype.dtype if dtype is None else dtype)


def full_like(a: ndarray, fill_value: Any, dtype: Any = None, shape: Any = None) -> ndarray:
    """An array of one value."""
    result = empty_like(a, dtype, shape)
    result[...] = fill_value
    return result


def zeros_like(a: ndarray, dtype: Any = None, shape: Any = None) -> ndarray:
    """An array of zeros."""
    return full_like(a, 0, dtype, shape)


def concatenate(tup: Sequence[ndarray], axis: int = 0) -> ndarray:
    """Arrays one behind the other."""
    like = np.concatenate([np.empty(x.shape, x.dtype) for x in tup], axis)
    result = ndarray(like.shape, like.dtype)
    work(lambda out, *xs: np.concatenate(xs, axis, out=out), result, *tup)
    return result


def array_split(ary: ndarray, indices_or_sections: int, axis: int = 0) -> list[ndarray]:
    """Views of parts that are as equal as possible."""
    parts = np.array_split(ary._values, indices_or_sections, axis)
    return [ary._shown(part) for part in parts]


def moveaxis(a: ndarray, source: int, destination: int) -> ndarray:
    """A view with an axis elsewhere."""
    return a._shown(np.moveaxis(a._values, source, destination))


def ascontiguousarray(a: Any) -> ndarray:
    """The array, or a copy in order."""
    found = asarray(a)
    return found if found.flags.c_contiguous else found.copy()


def asarray(a: Any, dtype: Any = None) -> ndarray:
    """An array on the current GPU; one of NumPy is copied there at once."""
    if isinstance(a, ndarray):
        return a
    given = np.array(a, dtype)
    result = ndarray(given.shape, given.dtype)
    get_current_stream().put(lambda: result._values.__setitem__(..., given))
    return result


def asnumpy(a: ndarray) -> np.ndarray:
    """A copy in host memory, when the current stream has come so far."""
    found: list[np.ndarray] = []
    work(lambda values: found.append(values.copy()), a)
    get_current_stream().synchronize()
    return found[0]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (array_split, concatenate, empty_like, full_like, moveaxis, zeros_like)
}


def used_bytes(device: int) -> int:
    """The bytes of live pieces of memory."""
    return sum(one.size for one in list(Memory.live.values()) if one.device_id == device)
