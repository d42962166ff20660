"""Switches of cuDNN, which metaop does not use: they can be set and read, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = False


def is_available() -> bool:
    """Whether cuDNN is used: never."""
    return False


def version() -> int | None:
    """The version of cuDNN: there is none."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """Whether cuDNN would take the tensor: never."""
    return False


@contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """Sets the switches inside a `with` block."""
    given = dict(locals())
    previous = {name: globals()[name] for name in given}
    globals().update(given)
    try:
        yield
    finally:
        globals().update(previous)
