"""NCCL is not used: processes exchange tensors through `metaop.dist`."""

from __future__ import annotations


def version() -> tuple[int, ...]:
    """(0, 0, 0): there is no NCCL."""
    return (0, 0, 0)


def is_available(tensors: object = None) -> bool:
    """Whether NCCL can be used: never."""
    return False
