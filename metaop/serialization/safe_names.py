"""PyTorch's lists of classes that a checkpoint may name; metaop's reader has a fixed one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_listed: list[Any] = []


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Records the list; the reader still creates only tensors, containers and numbers."""
    _listed.extend(one for one in safe_globals if one not in _listed)


def get_safe_globals() -> list[Any]:
    """The recorded list; see `add_safe_globals`."""
    return list(_listed)


def clear_safe_globals() -> None:
    """Clears the recorded list; see `add_safe_globals`."""
    _listed.clear()


@contextmanager
def safe_globals(safe_globals: Sequence[Any]) -> Iterator[None]:
    """Extends the recorded list inside the block; see `add_safe_globals`."""
    before = get_safe_globals()
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _listed[:] = before
