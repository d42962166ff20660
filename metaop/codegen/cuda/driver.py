"""Launches through the CUDA driver, whose library comes with the driver of a GPU.

What a launch needs is prepared once: starting a kernel again is one call.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from cffi import FFI

from metaop.errors import DeviceError

if TYPE_CHECKING:
    from metaop.codegen.cuda.device import Step

_DECLARED = """
int cuLaunchKernel(
    void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
    unsigned shared, void* stream, void** parameters, void** extra);
int cuGetErrorString(int status, const char** text);
"""
_SONAMES = ("libcuda.so.1", "nvcuda.dll")

ffi = FFI()
ffi.cdef(_DECLARED)


@functools.cache
def library() -> Any:
    """The driver; raises DeviceError where it is not installed."""
    for name in _SONAMES:
        try:
            return ffi.dlopen(name)
        except OSError:
            continue
    raise DeviceError(
        f"none of {' and '.join(_SONAMES)} was found",
        fix="install the driver of the GPU, or stay on the CPU",
    )


class Launch:
    """A kernel with the places of its parameters; the integers stay, the addresses may change."""

    def __init__(self, step: Step, addresses: np.ndarray) -> None:
        # Eight bytes for each: a kernel reads as many as its parameter has.
        self._integers = np.array(step.integers, np.int64)
        self._addresses = addresses
        table, own = addresses.ctypes.data, self._integers.ctypes.data
        places = [table + 8 * slot for slot in step.slots]
        error = table + 8 * (len(addresses) - 1)
        places += [*(own + 8 * k for k in range(len(self._integers))), error]
        self._places = ffi.new("void*[]", [ffi.cast("void*", place) for place in places])
        self._kernel = step.kernel
        function = ffi.cast("void*", step.kernel.ptr)
        self._shape = (function, step.blocks, 1, 1, step.threads, 1, 1, 0)
        self._start = library().cuLaunchKernel

    def start(self, stream: int) -> None:
        """Queues the kernel on a stream of the current GPU."""
        status = self._start(*self._shape, ffi.cast("void*", stream), self._places, ffi.NULL)
        if status:
            text = ffi.new("const char**")
            library().cuGetErrorString(status, text)
            raise DeviceError(f"a kernel was not launched: {ffi.string(text[0]).decode()}")
