"""Modules whose calls are checkpointed: `torch.distributed.algorithms._checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any

from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.utils.checkpoint import checkpoint

__all__ = [
    "CheckpointImpl",
    "CheckpointWrapper",
    "apply_activation_checkpointing",
    "checkpoint_wrapper",
]

_WRAPPED = "_checkpoint_wrapped_module"


class CheckpointImpl(Enum):
    """PyTorch's two ways to checkpoint, which are one here."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class CheckpointWrapper(Module):
    """A module that keeps only its arguments until backward, and runs again then.

    `checkpoint_fn(module, *args, **kwargs)` replaces `metaop.utils.checkpoint.checkpoint`; other
    keywords are passed to it. State dicts have the names of the wrapped module, whose attributes
    and items are those of the wrapper too.

    >>> from metaop.distributed.checkpoint_wrapper import CheckpointWrapper
    >>> sorted(CheckpointWrapper(metaop.nn.Linear(2, 2)).state_dict())
    ['bias', 'weight']
    """

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            is_reentrant = checkpoint_impl == CheckpointImpl.REENTRANT
            checkpoint_fn = partial(checkpoint, use_reentrant=is_reentrant)
        self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(_WRAPPED), name)

    def __getitem__(self, key: Any) -> Any:
        wrapped: Any = self._checkpoint_wrapped_module
        return wrapped[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """Pairs of dotted name, as in the wrapped module, and parameter."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(f"{_WRAPPED}.", ""), parameter


def _without_prefix(module: Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    _rename(state, f"{prefix}{_WRAPPED}.", prefix)


def _with_prefix(module: Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    _rename(state, prefix, f"{prefix}{_WRAPPED}.")


def _rename(state: dict[str, Any], old: str, new: str) -> None:
    for key in [key for key in state if key.startswith(old)]:
        state[new + key[len(old) :]] = state.pop(key)


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
    if not callable(policy):
        raise ArgumentError(
            f"auto_wrap_policy={auto_wrap_policy!r} cannot be called",
            fix="pass a function of module, recurse and nonwrapped_numel",
        )
    _wrapped(model, checkpoint_wrapper_fn, policy, stays=True)


def _wrapped(
    module: Module,
    wrapper: Callable[[Module], Module],
    policy: Callable[..., bool],
    *,
    stays: bool = False,
) -> tuple[Module, int]:
    """The module or its wrapper, and how many values of its parameters are wrapped now."""
    total = sum(parameter.numel() for parameter in module.parameters())
    if not policy(module=module, recurse=True, nonwrapped_numel=total):
        return module, 0
    inside = 0
    for name, child in module.named_children():
        replacement, count = _wrapped(child, wrapper, policy)
        setattr(module, name, replacement)
        inside += count
    if stays or not policy(module=module, recurse=False, nonwrapped_numel=total - inside):
        return module, inside
    return wrapper(module), total
