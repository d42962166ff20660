"""The older names of `metaop.amp`, for GPUs."""

from __future__ import annotations

from typing import Any

from metaop import amp
from metaop.amp import custom_bwd, custom_fwd
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):
    """`metaop.amp.autocast("cuda")`."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: DType = dtypes.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`metaop.amp.GradScaler("cuda")`, switched off on a machine without a GPU."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        from metaop.cuda import is_available

        options: dict[str, Any] = {
            "init_scale": init_scale,
            "growth_factor": growth_factor,
            "backoff_factor": backoff_factor,
            "growth_interval": growth_interval,
            "enabled": enabled and is_available(),
        }
        super().__init__("cuda", **options)
