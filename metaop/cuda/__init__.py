"""GPUs, in PyTorch's words.

On a machine without a usable GPU (no cupy, no driver, or no device) `is_available()` is False,
`device_count()` is 0, the memory counters are 0 and what only tidies up does nothing; everything
that needs a device raises `DeviceError` with what to do.
"""

from __future__ import annotations

from typing import Any

from metaop.codegen.cuda.device import device_count, runtime
from metaop.codegen.cuda.runtime import DeviceProperties, Runtime
from metaop.cuda import amp, nccl
from metaop.cuda.graphs import CUDAGraph, graph, make_graphed_callables
from metaop.cuda.memory import (
    OutOfMemoryError,
    max_memory_allocated,
    max_memory_reserved,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from metaop.cuda.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from metaop.cuda.streams import (
    Event,
    Stream,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from metaop.execution.executor import realize
from metaop.tensor.legacy import typed_tensors
from metaop.tensor.options import DeviceLike, device_of, index_of
from metaop.unified_graph.tensor_type import Device
from metaop.unified_graph.tracing import configured


def is_available() -> bool:
    """Whether tensors can be moved to a GPU."""
    return device_count() > 0


def is_initialized() -> bool:
    """Whether a GPU can be used at once; there is nothing to initialise by hand."""
    return is_available()


def _lazy_init() -> None:
    """Does nothing: a GPU is initialised by its first use."""


def __getattr__(name: str) -> Any:
    """`_initialized`, which programs read instead of asking `is_initialized`."""
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def current_device() -> int:
    """The number of the GPU that "cuda" means: the first, or that of `set_device`."""
    index = Device.current or 0
    runtime(index)
    return index


def set_device(device: DeviceLike) -> None:
    """Makes a GPU the one that "cuda" means from here on, and on which `placement("cuda")` lies.

    A negative number changes nothing. Raises DeviceError for a GPU that is not there.

    Example: `set_device(int(os.environ["LOCAL_RANK"]))`.
    """
    if isinstance(device, int) and device < 0:
        return
    index = index_of(device)
    runtime(index)
    _choose(index)


def _choose(index: int | None) -> None:
    if Device.current != index:
        Device.current = index
        configured("the current GPU")


class device:
    """A context in which a GPU is the one that "cuda" means, as by `set_device`."""

    def __init__(self, device: DeviceLike) -> None:
        self._device = device
        self._before: list[int | None] = []

    def __enter__(self) -> None:
        self._before.append(Device.current)
        set_device(self._device)

    def __exit__(self, *exception: object) -> None:
        _choose(self._before.pop())


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Name, compute capability, memory in bytes and number of multiprocessors."""
    return _runtime(device).properties()


def get_device_name(device: DeviceLike = None) -> str:
    """The name of a GPU, such as "NVIDIA H200"."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """The compute capability: (9, 0) is that of sm_90."""
    facts = get_device_properties(device)
    return facts.major, facts.minor


def is_bf16_supported() -> bool:
    """Whether bfloat16 tensors can be used: on every GPU that there is."""
    return is_available()


def synchronize(device: DeviceLike = None) -> None:
    """Waits until a GPU has done everything that the program has asked for so far."""
    realize()
    _runtime(device).synchronize()


def memory_allocated(device: DeviceLike = None) -> int:
    """The bytes that tensors hold on a GPU."""
    return _runtime(device).memory_allocated() if is_available() else 0


def memory_reserved(device: DeviceLike = None) -> int:
    """The bytes taken from a GPU, those kept for later tensors included."""
    return _runtime(device).memory_reserved() if is_available() else 0


def empty_cache() -> None:
    """Gives memory that no tensor uses back to the GPUs."""
    for index in range(device_count()):
        runtime(index).empty_cache()


def _runtime(device: DeviceLike) -> Runtime:
    return runtime(index_of(device))


# FloatTensor, LongTensor, …: tests of the type, and constructors on the first GPU.
globals().update(typed_tensors("cuda", __name__))

__all__ = [
    "CUDAGraph",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "amp",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "graph",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "nccl",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]
