"""Signal processing."""

from metaop.signal import windows

__all__ = ["windows"]
