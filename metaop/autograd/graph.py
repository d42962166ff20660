"""Hooks on what is saved for backward (`torch.autograd.graph`)."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from metaop.autograd.function import saved_hooks
from metaop.errors import ArgumentError

__all__ = ["disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]


class saved_tensors_hooks:
    """What `ctx.save_for_backward` saves inside goes through a pair of functions.

    `pack_hook(tensor)` runs once `forward` has returned, for each saved tensor in their order; its
    result is kept instead of the tensor. Each access of `ctx.saved_tensors` runs
    `unpack_hook(result)` for each of them, and it has to return a tensor. The innermost pair wins.
    What the gradients of metaop's own operators need is chosen when a program is compiled, and
    goes through no hook: a warning says so.
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self._pair = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        if saved_hooks.refusal is not None:
            raise ArgumentError(saved_hooks.refusal)
        warnings.warn(
            "saved_tensors_hooks: only what ctx.save_for_backward saves goes through the hooks; "
            "what metaop's own operators keep for backward does not",
            UserWarning,
            stacklevel=2,
        )
        saved_hooks.pairs.append(self._pair)

    def __exit__(self, *exception: object) -> None:
        saved_hooks.pairs.pop()


@contextlib.contextmanager
def save_on_cpu(pin_memory: bool = False, device_type: str = "cuda") -> Iterator[None]:
    """Changes nothing: it saves memory of a GPU in PyTorch, and no result depends on it."""
    yield


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside, `saved_tensors_hooks` raises ArgumentError with this message."""
    before, saved_hooks.refusal = saved_hooks.refusal, error_message
    try:
        yield
    finally:
        saved_hooks.refusal = before
