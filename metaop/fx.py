"""The words of `torch.fx` that need no symbolic tracing; there is none in metaop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from metaop.errors import ArgumentError

__all__ = ["wrap"]

_Wrapped = TypeVar("_Wrapped", bound="str | Callable")


def wrap(fn_or_name: _Wrapped) -> _Wrapped:
    """Its argument, a function or the name of one: PyTorch's tracer would leave it whole.

    Raises ArgumentError for anything else.
    """
    if not isinstance(fn_or_name, str) and not callable(fn_or_name):
        raise ArgumentError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    return fn_or_name
