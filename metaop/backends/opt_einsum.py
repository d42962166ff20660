"""Switches of opt_einsum, which metaop does not use: they can be set and read."""

from __future__ import annotations

from typing import Any

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """Whether opt_einsum is used: never."""
    return False


def get_opt_einsum() -> Any:
    """The package that is used: none."""
    return None
