"""What programs use of a GPU: its memory, copies and launches, whoever offers them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from metaop.codegen.checks import Check
from metaop.codegen.cuda.dependencies import Access
from metaop.codegen.memory.buffers import Buffer, allocate
from metaop.unified_graph.faults import Fault, reported_fault


class DeviceBuffer:
    """A block of GPU memory: `address` and `nbytes`; it is freed with its last reference.

    `is_pooled` says that it came from `allocate`: nobody else knows its memory.
    """

    __slots__ = ("address", "nbytes", "runtime", "is_pooled", "_owner", "__weakref__")

    exposure = None

    def __init__(
        self, address: int, nbytes: int, runtime: Runtime, owner: Any, is_pooled: bool = False
    ) -> None:
        self.address = address
        self.nbytes = nbytes
        self.runtime = runtime
        self.is_pooled = is_pooled
        self._owner = owner

    def to_host(self) -> Buffer:
        """A copy in host memory, after everything that writes this buffer is done."""
        buffer = allocate(self.nbytes)
        self.runtime.copy_to_host(buffer, self)
        return buffer

    def view(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """A copy in host memory as an array; unlike that of a host buffer, it shares no memory."""
        return self.to_host().view(shape, dtype)


class DeviceProperties(NamedTuple):
    """Facts about a GPU; memory in bytes."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


class Step(NamedTuple):
    """A launch: which of the program's addresses and which integers its kernel gets, in order.

    It accesses `nbytes` behind each address, and `writes` says where it does not only read.
    """

    kernel: Any
    blocks: int
    threads: int
    slots: Sequence[int]
    nbytes: Sequence[int]
    writes: Sequence[bool]
    integers: Sequence[int]

    def accesses(self, addresses: np.ndarray) -> list[Access]:
        """What it accesses when it gets these addresses."""
        starts = addresses[list(self.slots)].tolist()
        stops = map(operator.add, starts, self.nbytes)
        return list(map(Access, starts, stops, self.writes))


Launcher = Callable[[range], None]


class Runtime(Protocol):
    """The operations of one GPU that programs use.

    Copies to the device and launches run in order; copies to the host wait for them.
    """

    architecture: str
    multiprocessors: int

    def __hash__(self) -> int:
        """Runtimes compare by identity."""

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Memory with arbitrary contents."""

    def copy_from_host(
        self, target: DeviceBuffer, source: Buffer, non_blocking: bool = False
    ) -> None:
        """Copies all bytes of `source` to the front of `target`.

        The program may change `source` afterwards, unless it is pinned and the copy `non_blocking`.
        """

    def pinned(self, nbytes: int) -> Buffer:
        """Host memory that the device reads by itself, while the program goes on."""

    def is_pinned(self, buffer: Buffer) -> bool:
        """Whether the device reads a buffer by itself."""

    def copy_to_host(self, target: Buffer, source: DeviceBuffer) -> None:
        """Copies as many bytes as `target` has."""

    def buffer_of(self, array: Any) -> DeviceBuffer:
        """The memory of an array on the device."""

    def array_of(self, buffer: DeviceBuffer, shape: Sequence[int], dtype: Any) -> Any:
        """An array on the memory of a buffer."""

    def clear(self, target: DeviceBuffer) -> None:
        """Sets all bytes to zero."""

    def load(self, text: str, symbol: str) -> Any:
        """The kernel `symbol` of a CUDA C++ text."""

    def launcher(self, steps: Sequence[Step], addresses: np.ndarray) -> Launcher:
        """What starts some kernels, with the `addresses` (int64) that are there at that time."""

    def check_of(self, words: DeviceBuffer) -> Check:
        """The end of what was started so far, and the fault that its kernels put in `words`."""

    def synchronize(self) -> None:
        """Waits until everything started on the device is done."""

    def marker(self) -> Any:
        """A point behind everything that was started so far."""

    def is_reached(self, marker: Any) -> bool:
        """Whether the device has come to a marker."""

    def reached(self, markers: Sequence[Any]) -> list[int]:
        """When the device came to each marker, in nanoseconds after the first; waits for them."""

    def memory_allocated(self) -> int:
        """The bytes of live buffers."""

    def memory_reserved(self) -> int:
        """The bytes reserved on the device, including those cached for later buffers."""

    def note_memory(self) -> None:
        """Lets `most_memory` see what is allocated now."""

    def most_memory(self) -> tuple[int, int]:
        """The most bytes of live buffers, and reserved, that were noted.

        Counted are the start, or the last call of `forget_most_memory`, and what came later.
        """

    def forget_most_memory(self) -> None:
        """Lets `most_memory` begin with what there is now."""

    def empty_cache(self) -> None:
        """Returns memory that no buffer uses to the device."""

    def properties(self) -> DeviceProperties:
        """The properties of the device."""


def fault_in(words: np.ndarray) -> Fault | None:
    """The fault that kernels have written to their error slot."""
    return reported_fault(*map(int, words[1:4])) if words[0] else None
