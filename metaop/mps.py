"""GPUs of Apple's, in PyTorch's words: there are none, so most functions raise DeviceError.

>>> metaop.mps.is_available(), metaop.mps.device_count()
(False, 0)
"""

from __future__ import annotations

from metaop.absent_devices import device_count, is_available, manual_seed, needing_a_device

__all__ = ["device_count", "is_available", "manual_seed"]

_NEEDING_A_DEVICE = """
    Event compile_shader current_allocated_memory driver_allocated_memory empty_cache
    get_rng_state load_metallib recommended_max_memory seed set_per_process_memory_fraction
    set_rng_state synchronize
"""
globals().update(needing_a_device(__name__, _NEEDING_A_DEVICE))
__all__ += _NEEDING_A_DEVICE.split()
