"""PyTorch's lists of classes that a checkpoint may name; metaop's reader has a fixed one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_listed: list[Any] = []


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Keeps a list; the reader makes tensors, containers and numbers only, whatever is listed."""
    _listed.extend(one for one in safe_globals if one not in _listed)


def get_safe_globals() -> list[Any]:
    """What was listed; see `add_safe_globals`."""
    return list(_listed)


def clear_safe_globals() -> None:
    """Forgets what was listed; see `add_safe_globals`."""
    _listed.clear()


@contextmanager
def safe_globals(safe_globals: Sequence[Any]) -> Iterator[None]:
    """Lists for a while; see `add_safe_globals`."""
    before = get_safe_globals()
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _listed[:] = before
