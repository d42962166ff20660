"""Modules whose calls are checkpointed: `torch.distributed.algorithms._checkpoint`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Any

from metaop.distributed.wrapping import Wrapper, wrap_inside
from metaop.nn.module import Module
from metaop.utils.checkpoint import checkpoint

__all__ = [
    "CheckpointImpl",
    "CheckpointWrapper",
    "apply_activation_checkpointing",
    "checkpoint_wrapper",
]


class CheckpointImpl(Enum):
    """PyTorch's two ways to checkpoint, which are one here."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class CheckpointWrapper(Wrapper):
    """A module that keeps only its arguments until backward, and runs again then.

    `checkpoint_fn(module, *args, **kwargs)` replaces `metaop.utils.checkpoint.checkpoint`; other
    keywords are passed to it.

    >>> from metaop.distributed.checkpoint_wrapper import CheckpointWrapper
    >>> sorted(CheckpointWrapper(metaop.nn.Linear(2, 2)).state_dict())
    ['bias', 'weight']
    """

    WRAPPED = "_checkpoint_wrapped_module"

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            is_reentrant = checkpoint_impl == CheckpointImpl.REENTRANT
            checkpoint_fn = partial(checkpoint, use_reentrant=is_reentrant)
        self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.checkpoint_fn(self.wrapped, *args, **kwargs)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> CheckpointWrapper:
    """The module, checkpointed whenever it is called; see `CheckpointWrapper`."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:
    """Wraps the modules inside a model for which `check_fn` is true; the model itself stays.

    `auto_wrap_policy(module=..., recurse=..., nonwrapped_numel=...)` decides instead, if it is
    given: with `recurse`, whether to look into the module, and then whether to wrap it, by the
    number of values in its parameters that are not wrapped already. Raises ArgumentError for a
    policy that cannot be called.

    >>> from metaop.distributed.checkpoint_wrapper import apply_activation_checkpointing
    >>> model = metaop.nn.Sequential(metaop.nn.Linear(2, 2), metaop.nn.ReLU())
    >>> apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, metaop.nn.Linear))
    >>> [type(layer).__name__ for layer in model]
    ['CheckpointWrapper', 'ReLU']
    """

    def chosen(module: Module, recurse: bool, nonwrapped_numel: int) -> bool:
        return recurse or check_fn(module)

    policy = chosen if auto_wrap_policy is None else auto_wrap_policy
    wrap_inside(model, checkpoint_wrapper_fn, policy)
