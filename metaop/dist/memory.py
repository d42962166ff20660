"""Where the ranks of a placement hold their parts: as arrays of NumPy, or of cupy on a GPU."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from metaop.dist.environment import launched
from metaop.errors import DeviceError


class Memory(Protocol):
    """The memory of one process's ranks. Arrays in it have NumPy's methods and functions."""

    # The number of the GPU; 0 for host memory.
    index: int

    def put(self, array: np.ndarray) -> Any:
        """The values in this memory."""

    def get(self, array: Any) -> np.ndarray:
        """The values in host memory."""


class HostMemory:
    """Host memory: nothing has to be moved."""

    index = 0

    def put(self, array: np.ndarray) -> Any:
        """The array itself."""
        return array

    def get(self, array: Any) -> np.ndarray:
        """The array itself."""
        found: np.ndarray = array
        return found


class GpuMemory:
    """A GPU through cupy; `device` is a context in which it is the current one."""

    def __init__(self, cupy: Any, index: int) -> None:
        self.index = index
        self._cupy = cupy
        self.device = cupy.cuda.Device(index)

    def put(self, array: np.ndarray) -> Any:
        """A copy on the GPU."""
        with self.device:
            return self._cupy.asarray(array)

    def get(self, array: Any) -> np.ndarray:
        """A copy in host memory, once everything that writes the array is done."""
        with self.device:
            found: np.ndarray = self._cupy.asnumpy(array)
            return found

    @property
    def nccl(self) -> Any:
        """The module cupy.cuda.nccl."""
        return self._cupy.cuda.nccl

    def stream(self) -> int:
        """The address of the stream on which kernels run."""
        with self.device:
            address: int = self._cupy.cuda.get_current_stream().ptr
            return address


HOST_MEMORY = HostMemory()


def gpu_memory() -> GpuMemory:
    """The GPU of this rank: the ranks of a host take its GPUs in turn.

    Raises DeviceError when there is none.
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
    return GpuMemory(cupy, 0 if place is None else place.local_rank % count)
