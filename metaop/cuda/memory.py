"""Statistics of GPU memory under PyTorch's names."""

from __future__ import annotations

from typing import Any

from metaop.codegen.cuda.device import device_count, runtime
from metaop.errors import OutOfMemoryError
from metaop.tensor.options import DeviceLike, index_of

__all__ = [
    "OutOfMemoryError",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes that were in use at a time."""
    return _most(device)[0]


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes that were taken from a GPU at a time."""
    return _most(device)[1]


def _most(device: DeviceLike) -> tuple[int, int]:
    return runtime(index_of(device)).most_memory() if device_count() else (0, 0)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Lets `max_memory_allocated` and `max_memory_reserved` begin with what is there now."""
    if device_count():
        runtime(index_of(device)).forget_most_memory()


reset_max_memory_allocated = reset_peak_memory_stats


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """The counters under PyTorch's names."""
    from metaop.cuda import memory_allocated, memory_reserved

    return {
        "allocated_bytes.all.current": memory_allocated(device),
        "allocated_bytes.all.peak": max_memory_allocated(device),
        "reserved_bytes.all.current": memory_reserved(device),
        "reserved_bytes.all.peak": max_memory_reserved(device),
    }


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """The counters as a text."""
    return "\n".join(f"{name}: {value}" for name, value in memory_stats(device).items())
