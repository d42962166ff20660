"""GPUs of Intel's, in PyTorch's words: there are none.

Questions have the answers of a machine without one, what only tidies up or seeds does nothing, and
everything else raises DeviceError.

>>> metaop.xpu.is_available(), metaop.xpu.memory_allocated()
(False, 0)
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from metaop.absent_devices import device_count, is_available, manual_seed, needing_a_device
from metaop.tensor.core import Tensor
from metaop.tensor.options import DeviceLike

is_initialized = is_bf16_supported = is_tf32_supported = is_available
manual_seed_all = manual_seed
# The only stream that there can be is None, which changes nothing.
stream = StreamContext = nullcontext


def empty_cache() -> None:
    """Does nothing."""


def seed() -> None:
    """Does nothing."""


seed_all = seed


def get_rng_state_all() -> list[Tensor]:
    """The states of no devices."""
    return []


def set_rng_state(new_state: Tensor, device: DeviceLike = "xpu") -> None:
    """Does nothing."""


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Does nothing."""


def memory_allocated(device: DeviceLike = None) -> int:
    """Always 0."""
    return 0


memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """No counters."""
    return {}


__all__ = [
    "StreamContext",
    "device_count",
    "empty_cache",
    "get_rng_state_all",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "is_tf32_supported",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
    "stream",
]

_NEEDING_A_DEVICE = """
    Event Stream XPUGraph can_device_access_peer current_device current_stream device device_of
    get_device_capability get_device_name get_device_properties get_per_process_memory_fraction
    get_rng_state get_stream_from_external init initial_seed mem_get_info
    reset_accumulated_memory_stats reset_peak_memory_stats set_device
    set_per_process_memory_fraction set_stream synchronize
"""
globals().update(needing_a_device(__name__, _NEEDING_A_DEVICE))
__all__ += _NEEDING_A_DEVICE.split()
