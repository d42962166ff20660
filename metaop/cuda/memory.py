"""Statistics of GPU memory under PyTorch's names."""

from __future__ import annotations

from typing import Any

from metaop.errors import OutOfMemoryError
from metaop.tensor.options import DeviceLike

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
    """The bytes in use; peaks are what is reserved, because freed memory is kept for reuse."""
    return max_memory_reserved(device)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The bytes taken from a GPU; they are given back by `empty_cache` only."""
    from metaop.cuda import memory_reserved

    return memory_reserved(device)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Gives unused memory back, so that the peak is what is in use."""
    from metaop.cuda import empty_cache

    empty_cache()


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
