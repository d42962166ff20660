"""Host memory for tensors: aligned buffers that return to a pool with their last reference."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from metaop import settings
from metaop.codegen.memory.exposure import Exposure, is_held
from metaop.errors import CaptureError

ALIGNMENT = 64
# A foreign array is used in place if it has at least the alignment that NumPy guarantees.
FOREIGN_ALIGNMENT = 16

# Large blocks begin where pages do. A load waits for an earlier store whose address has the same
# last 12 bits; arrays that begin alike and are walked together never meet in them.
_PAGE, _LARGE = 4096, 1 << 16

# The C types that Python has for elements.
_NUMBERS: dict[np.dtype, Any] = {
    np.dtype(name): np.ctypeslib.as_ctypes_type(name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")
}


class _SizeClass:
    """Freed blocks of one size, each an (address, owner of the memory) pair."""

    __slots__ = ("nbytes", "blocks", "allocator")

    def __init__(self, nbytes: int, allocator: Allocator) -> None:
        self.nbytes = nbytes
        self.blocks: list[tuple[int, np.ndarray]] = []
        self.allocator = allocator


class Runs(Protocol):
    """Asynchronous runs on another thread."""

    def settle(self) -> None:
        """Waits for all of them."""


class Waiting:
    """The asynchronous runs that may still access memory, if there are any (`llvm.run_ahead`)."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: Runs | None = None


waiting = Waiting()


def settled() -> None:
    """Waits until no asynchronous run uses memory; raises the error of one that failed."""
    if waiting.runs is not None:
        waiting.runs.settle()


class Buffer:
    """A block of host memory: `address` and `nbytes`; it is freed with its last reference.

    `numpy.asarray(buffer)` is its bytes as an array that keeps the buffer alive. `exposure` is None
    unless objects outside of the framework may show the memory, or once did.
    """

    __slots__ = ("address", "nbytes", "exposure", "_owner", "_size_class", "__weakref__")

    address: int
    nbytes: int
    exposure: Exposure | None
    _owner: np.ndarray
    _size_class: _SizeClass | None

    @staticmethod
    def from_numpy(array: np.ndarray) -> Buffer:
        """The memory of `array`, shared when it is writable, C-contiguous and 16-byte aligned.

        Otherwise a C-contiguous copy, so that writing the buffer never changes an array that
        its user protected. Nobody else may write the array; see `borrowed`.
        """
        address: int = array.__array_interface__["data"][0]
        flags = array.flags
        shareable = flags.c_contiguous and flags.writeable and array.nbytes
        if not shareable or address % FOREIGN_ALIGNMENT:
            buffer = allocate(array.nbytes)
            buffer.view(array.shape, array.dtype)[...] = array
            return buffer
        return _buffer(address, array.nbytes, array, None)

    @staticmethod
    def borrowed(array: np.ndarray) -> Buffer:
        """The memory of an array that its user may go on to read and write."""
        buffer = Buffer.from_numpy(array)
        if buffer._owner is array:
            buffer.exposure = Exposure()
        return buffer

    @property
    def is_exposed(self) -> bool:
        """Whether an object outside of the framework shows the memory now."""
        exposure = self.exposure
        if exposure is None:
            return False
        return exposure.is_shown or (self._size_class is None and is_held(self))

    def lent(self) -> np.ndarray:
        """The bytes as an array for users: while it or a view of it lives, they are exposed."""
        if self.exposure is None:
            self.exposure = Exposure()
        return self.exposure.shown(self)

    def vacate(self) -> Buffer:
        """Moves the values to other memory, and returns a buffer on the memory that they had.

        So whoever holds this buffer keeps the values, and what is exposed can be written.
        """
        settled()
        left = _buffer(self.address, self.nbytes, self._owner, self._size_class)
        left.exposure, self.exposure = self.exposure, None
        if left.exposure is not None:
            left.exposure.keep(left)
        moved = allocate(self.nbytes)
        np.asarray(moved)[...] = np.asarray(left)
        self.address, self._owner = moved.address, moved._owner
        self._size_class, moved._size_class = moved._size_class, None
        return left

    def view(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """A C-contiguous array on the first bytes of this buffer, which it keeps alive.

        Raises `ValueError` when the buffer is smaller than the array.
        """
        dtype = np.dtype(dtype)
        needed = dtype.itemsize
        for extent in shape:
            needed *= extent
        if needed > self.nbytes:
            raise ValueError(
                f"an array of shape {tuple(shape)} and type {dtype} needs {needed} bytes, "
                f"the buffer has {self.nbytes}"
            )
        array: np.ndarray = np.ndarray(shape, dtype, np.asarray(self))
        return array

    def number(self, dtype: np.dtype, position: int = 0) -> Any:
        """An element as a Python number, without making an array."""
        kind = _NUMBERS.get(dtype)
        if kind is None:
            return self.view((position + 1,), dtype)[position].item()
        return kind.from_address(self.address + position * dtype.itemsize).value

    def parts(self, count: int) -> list[Buffer]:
        """The buffer as equal parts, which share its memory and keep all of it alive.

        Parts that would lie at addresses which kernels cannot take are copies.
        """
        nbytes, memory = self.nbytes // count, np.asarray(self)
        starts = range(self.address, self.address + count * nbytes, nbytes or 1)
        if nbytes % FOREIGN_ALIGNMENT or not nbytes:
            return [Buffer.from_numpy(one.copy()) for one in memory.reshape(count, nbytes)]
        found: list[Buffer] = []
        for position, address in enumerate(starts):
            part = _new_buffer(PartOfBuffer)
            part.address, part.nbytes = address, nbytes
            part._owner, part._size_class, part.exposure = memory, None, None
            part.whole, part.position = self, position
            found.append(part)
        return found

    def copy(self) -> Buffer:
        """A copy of the buffer."""
        copied = allocate(self.nbytes)
        np.asarray(copied)[...] = np.asarray(self)
        return copied

    @property
    def is_pooled(self) -> bool:
        """Whether the memory is the allocator's, not a user's array."""
        return self._size_class is not None

    @property
    def memory(self) -> np.ndarray:
        """The owner of the memory; holding it does not count as a use of the buffer."""
        return self._owner

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if waiting.runs is not None:
            settled()
        return {
            "version": 3,
            "typestr": "|u1",
            "shape": (self.nbytes,),
            "data": (self.address, False),
        }

    def __del__(self) -> None:
        size_class = self._size_class
        if size_class is not None:
            allocator = size_class.allocator
            nbytes = size_class.nbytes
            allocator.used -= nbytes
            if allocator.watch is not None:
                allocator.watch(self.address, -nbytes)
            if allocator.cached + nbytes <= allocator.limit:
                allocator.cached += nbytes
                size_class.blocks.append((self.address, self._owner))


class PartOfBuffer(Buffer):
    """One of equal parts of another buffer, `whole`, by its position.

    It has no `whole` after its values were moved elsewhere.
    """

    __slots__ = ("whole", "position")

    whole: Buffer | None
    position: int

    def vacate(self) -> Buffer:
        """As of any buffer; the memory still belongs to the others as well."""
        left, self.whole = super().vacate(), None
        return left


class _LostBuffer(Buffer):
    """A buffer whose value was never computed, because the run failed that should have done it."""

    __slots__ = ()

    @property
    def address(self) -> int:  # type: ignore[override]
        # A pending error says more than this one, so it is raised first.
        settled()
        raise CaptureError(
            "this value was never computed: the captured call that ran asynchronously, or one "
            "before it, has failed",
            fix="see the error that was raised first, and compute the value again",
        )

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"data": (self.address, False)}


def lose(buffer: Buffer | None) -> None:
    """Makes every later use of a buffer raise CaptureError."""
    if buffer is not None and not isinstance(buffer, _LostBuffer):
        size_class, buffer._size_class = buffer._size_class, None
        if size_class is not None:
            size_class.allocator.used -= size_class.nbytes
            if size_class.allocator.watch is not None:
                size_class.allocator.watch(buffer.address, -size_class.nbytes)
        buffer.__class__ = _LostBuffer


class Allocator:
    """A caching allocator: freed blocks wait by size class for the next request of that size.

    All counts are in bytes and count whole blocks: `used` by live buffers, `cached` in freed
    blocks, `peak` the most ever used at once. `limit` bounds `cached`. With `poison` all bits of a
    block are set when it is handed out: what is read before it is written reads NaN, or -1.
    """

    def __init__(self, limit: int, poison: bool = False) -> None:
        self.limit = limit
        self.poison = poison
        self.used = 0
        self.cached = 0
        self.peak = 0
        # Called with the bytes of every allocated block, and with negative bytes when it is freed.
        self.watch: Callable[[int, int], None] | None = None
        self._classes: dict[int, _SizeClass] = {}

    def allocate(self, nbytes: int) -> Buffer:
        """A buffer of `nbytes` (zero is legal), 64-byte aligned, with arbitrary contents.

        Raises `MemoryError`, which names the size, when the machine cannot provide it.
        """
        rounded = _block_size(nbytes)
        try:
            size_class = self._classes[rounded]
            address, owner = size_class.blocks.pop()
            self.cached -= rounded
        except (KeyError, IndexError):
            size_class = self._classes.setdefault(rounded, _SizeClass(rounded, self))
            address, owner = self._fresh_block(nbytes, rounded)
        self.used += rounded
        if self.used > self.peak:
            self.peak = self.used
        if self.poison and waiting.runs is None:  # which may use the block until they are done
            owner.fill(0xFF)
        if self.watch is not None:
            self.watch(address, rounded)
        return _buffer(address, nbytes, owner, size_class)

    def release_cached(self) -> int:
        """Returns all cached blocks to the system, and their number of bytes to the caller."""
        released = 0
        for size_class in list(self._classes.values()):
            with contextlib.suppress(IndexError):  # the list may shrink under our hands
                while True:
                    size_class.blocks.pop()
                    self.cached -= size_class.nbytes
                    released += size_class.nbytes
        return released

    def _fresh_block(self, nbytes: int, rounded: int) -> tuple[int, np.ndarray]:
        alignment = _PAGE if rounded >= _LARGE else ALIGNMENT
        for attempt in range(2):
            try:
                owner = np.empty(rounded + alignment, np.uint8)
            except (MemoryError, ValueError):
                if attempt == 0 and self.release_cached():
                    continue
                break
            start: int = owner.__array_interface__["data"][0]
            return start + -start % alignment, owner
        raise MemoryError(
            f"cannot allocate {nbytes} bytes ({nbytes / 2**30:.3g} GiB) of host memory; "
            f"{self.used} bytes are in use by other tensors"
        )


def _block_size(nbytes: int) -> int:
    """Rounds up to a multiple of 64 and, above 1 KiB, to four significant binary digits."""
    if nbytes > 1024:
        shift = (nbytes - 1).bit_length() - 4
        return (nbytes + (1 << shift) - 1) >> shift << shift
    if nbytes < 0:
        raise ValueError(f"a buffer cannot have {nbytes} bytes")
    return (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT or ALIGNMENT


_new_buffer = Buffer.__new__


def _buffer(address: int, nbytes: int, owner: np.ndarray, size_class: _SizeClass | None) -> Buffer:
    buffer = _new_buffer(Buffer)
    buffer.address = address
    buffer.nbytes = nbytes
    buffer.exposure = None
    buffer._owner = owner
    buffer._size_class = size_class
    return buffer


def _limit() -> int:
    limit: int = settings.get("METAOP_MEMORY_CACHE_BYTES")
    if limit >= 0:
        return limit
    return machine_bytes() // 4


def machine_bytes() -> int:
    """The bytes of memory of this machine."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Windows fills MEMORYSTATUSEX: its own length in the first word, the memory in the second.
    status = (ctypes.c_uint64 * 8)(64)
    ctypes.CDLL("kernel32").GlobalMemoryStatusEx(status)
    return status[1]


host = Allocator(_limit(), settings.get("METAOP_POISON"))
allocate = host.allocate
release_cached = host.release_cached
