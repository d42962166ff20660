"""The classes and functions of the user that a checkpoint may name, as in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_listed: list[Any] = []


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Lets files name these classes and functions, which reading a file may then call.

    Each is one of them, or a pair of it and of the name by which files know it.
    """
    _listed.extend(one for one in safe_globals if one not in _listed)


def get_safe_globals() -> list[Any]:
    """The list; see `add_safe_globals`."""
    return list(_listed)


def clear_safe_globals() -> None:
    """Clears the list; see `add_safe_globals`."""
    _listed.clear()


@contextmanager
def safe_globals(safe_globals: Sequence[Any]) -> Iterator[None]:
    """Extends the list inside the block; see `add_safe_globals`."""
    before = get_safe_globals()
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _listed[:] = before


def is_listed(module: str, name: str) -> bool:
    """Whether files may name this class or function."""
    return f"{module}.{name}" in map(_name_in_files, _listed)


def _name_in_files(one: Any) -> str:
    if isinstance(one, tuple):
        name: str = one[1]
        return name
    return f"{one.__module__}.{one.__qualname__}"
