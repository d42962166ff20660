"""Mixed precision: `autocast` and `GradScaler`."""

from metaop.amp.autocast import autocast, custom_bwd, custom_fwd, is_autocast_available
from metaop.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
