"""Hooks for forking, on systems where processes can fork."""

from __future__ import annotations

import os
from collections.abc import Callable


def register_at_fork(**calls: Callable[[], object]) -> None:
    """`os.register_at_fork`, which does not exist where processes cannot fork (Windows)."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)
