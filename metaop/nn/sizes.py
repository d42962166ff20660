"""Sizes given as one number for all dimensions or as one per dimension."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.tensor.arguments import WHOLE

Size = int | Sequence[int]


def many(size: Size, count: int) -> tuple[int, ...]:
    """`size` as a tuple; a single number applies to every dimension."""
    if isinstance(size, WHOLE):
        return (int(size),) * count
    return tuple(size)
