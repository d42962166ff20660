"""What systems offer for processes in their own ways: a count of cores, and hooks for forking."""

from __future__ import annotations

import os
from collections.abc import Callable


def core_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def register_at_fork(**calls: Callable[[], object]) -> None:
    """`os.register_at_fork`, which does not exist where processes cannot fork (Windows)."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)
