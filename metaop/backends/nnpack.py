"""Tells programs that the library behind PyTorch's module of this name is not used."""

from __future__ import annotations


def is_available() -> bool:
    """Never."""
    return False


_set = False


def set_flags(_enabled: bool) -> tuple[bool]:
    """Accepted; returns what it was called with before."""
    global _set
    previous, _set = _set, _enabled
    return (previous,)
