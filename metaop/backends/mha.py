"""The switch of PyTorch's fast path of attention in inference, of which metaop has no need."""

from __future__ import annotations

_enabled = True


def get_fastpath_enabled() -> bool:
    """What `set_fastpath_enabled` was last called with."""
    return _enabled


def set_fastpath_enabled(value: bool) -> None:
    """Accepted; there is one implementation of attention."""
    global _enabled
    _enabled = value
