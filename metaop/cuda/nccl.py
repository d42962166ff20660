"""NCCL, which moves the parts of tensors on `placement("cuda", ...)` between GPUs."""

from __future__ import annotations

from typing import Any


def _library() -> Any:
    try:
        from cupy.cuda import nccl
    except ImportError:
        return None
    return nccl if nccl.available else None


def version() -> tuple[int, ...]:
    """The version of NCCL that cupy has found; (0, 0, 0) when there is none."""
    found = _library()
    if found is None:
        return (0, 0, 0)
    number = found.get_version()
    return (number // 10000, number // 100 % 100, number % 100)


def is_available(tensors: object = None) -> bool:
    """Whether NCCL can be used."""
    return _library() is not None
