"""Where the ranks of a job hold arrays: NumPy arrays in host memory, cupy arrays on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from metaop.dist.environment import launched
from metaop.errors import DeviceError
from metaop.unified_graph.tensor_type import CPU, Device


class Memory(Protocol):
    """The memory of a process's ranks. Its arrays have NumPy's methods and functions."""

    def __hash__(self) -> int:
        """Memories are compared by identity."""

    # The device of a local tensor in this memory.
    device: Device

    def active(self) -> AbstractContextManager[Any]:
        """A context inside which functions may be called on arrays in this memory."""

    def put(self, array: np.ndarray) -> Any:
        """Copies values to this memory."""

    def get(self, array: Any) -> np.ndarray:
        """Copies values to host memory."""

    def full(self, shape: Sequence[int], value: object, dtype: np.dtype) -> Any:
        """A new array filled with one value."""


class HostMemory:
    """Host memory; `put` and `get` copy nothing."""

    device = CPU

    def active(self) -> AbstractContextManager[Any]:
        """An empty context."""
        return nullcontext()

    def put(self, array: np.ndarray) -> Any:
        """The array itself."""
        return array

    def get(self, array: Any) -> np.ndarray:
        """The array itself."""
        found: np.ndarray = array
        return found

    def full(self, shape: Sequence[int], value: object, dtype: np.dtype) -> Any:
        """A new array filled with one value."""
        return np.full(tuple(shape), value, dtype)


class GpuMemory:
    """The memory of a GPU, through cupy."""

    def __init__(self, cupy: Any, index: int) -> None:
        self.device = Device("cuda", index)
        self._cupy = cupy
        self._gpu = cupy.cuda.Device(index)

    def active(self) -> AbstractContextManager[Any]:
        """Makes the GPU the current one."""
        # Contexts may be nested, but a cupy Device remembers only one previous GPU.
        context: AbstractContextManager[Any] = self._cupy.cuda.Device(self.device.index)
        return context

    def put(self, array: np.ndarray) -> Any:
        """A copy on the GPU."""
        with self.active():
            return self._cupy.asarray(array)

    def get(self, array: Any) -> np.ndarray:
        """A copy in host memory, once all writes to the array are done."""
        with self.active():
            found: np.ndarray = self._cupy.asnumpy(array)
            return found

    def full(self, shape: Sequence[int], value: object, dtype: np.dtype) -> Any:
        """A new array filled with one value."""
        with self.active():
            made = self._cupy.ndarray(tuple(shape), dtype)
            made[...] = value
            return made

    @property
    def cuda(self) -> Any:
        """The module cupy.cuda."""
        return self._cupy.cuda

    @property
    def bus(self) -> str:
        """The PCI bus id, which distinguishes the GPUs of a host."""
        place: str = self._gpu.pci_bus_id
        return place


HOST_MEMORY = HostMemory()


def memory_of(device: Device) -> Memory:
    """The memory of a local device; raises DeviceError for a GPU that does not exist."""
    return HOST_MEMORY if device is CPU else _gpu_memory(device.index or 0)


@lru_cache
def _gpu_memory(index: int) -> GpuMemory:
    import cupy

    return GpuMemory(cupy, index)


def own_gpu() -> Memory:
    """The GPU of this rank: that of `cuda.set_device`, or one assigned to the ranks round-robin.

    Raises DeviceError if there is none.
    """
    try:
        import cupy

        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:
        raise DeviceError(
            f'placement("cuda") needs cupy and a GPU on every host: {error}',
            fix="pip install 'metaop[cuda13]' there, or use placement(\"cpu\", ...)",
        ) from None
    place = launched()
    if Device.current is not None:
        return _gpu_memory(Device.current)
    return _gpu_memory(0 if place is None else place.local_rank % count)
