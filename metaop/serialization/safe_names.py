"""PyTorch's lists of classes that a checkpoint may name; metaop's reader has a fixed one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Accepted; the reader makes tensors, containers and numbers only, whatever is listed."""


@contextmanager
def safe_globals(safe_globals: Sequence[Any]) -> Iterator[None]:
    """Accepted; see `add_safe_globals`."""
    yield
