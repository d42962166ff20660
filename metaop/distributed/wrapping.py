"""Modules around other modules, and policies that say which ones: `torch.distributed.fsdp.wrap`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

from metaop.errors import ArgumentError
from metaop.nn.attention.multi_head import MultiheadAttention
from metaop.nn.containers import ModuleDict, ModuleList
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "enable_wrap",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "wrap",
]

Policy = Callable[..., bool]


class Wrapper(Module):
    """A module around another one, which is its attribute `WRAPPED`.

    State dicts and parameters have the names of the wrapped module, whose attributes and items are
    those of the wrapper too.
    """

    WRAPPED: ClassVar[str]

    def __init__(self, module: Module) -> None:
        super().__init__()
        setattr(self, self.WRAPPED, module)
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    @property
    def wrapped(self) -> Any:
        """The module inside."""
        return super().__getattr__(self.WRAPPED)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(self.WRAPPED), name)

    def __getitem__(self, key: Any) -> Any:
        return self.wrapped[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """Pairs of dotted name, as in the wrapped module, and parameter."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield plain_name(name), parameter


def plain_name(name: str) -> str:
    """A dotted name without the wrappers on the way."""
    for wrapper in Wrapper.__subclasses__():
        name = name.replace(f"{wrapper.WRAPPED}.", "")
    return name


def _without_prefix(module: Wrapper, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    _rename(state, f"{prefix}{module.WRAPPED}.", prefix)


def _with_prefix(module: Wrapper, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    _rename(state, prefix, f"{prefix}{module.WRAPPED}.")


def _rename(state: dict[str, Any], old: str, new: str) -> None:
    for key in [key for key in state if key.startswith(old)]:
        state[new + key[len(old) :]] = state.pop(key)


def wrap_inside(model: Module, wrapper: Callable[[Module], Module], policy: Policy) -> None:
    """Wraps the modules inside a model that a policy chooses; the model itself stays.

    Raises ArgumentError for a policy that cannot be called.
    """
    if not callable(policy):
        raise ArgumentError(
            f"auto_wrap_policy={policy!r} cannot be called",
            fix="pass a function of module, recurse and nonwrapped_numel",
        )
    _wrapped(model, wrapper, policy, stays=True)


def _wrapped(
    module: Module, wrapper: Callable[[Module], Module], policy: Policy, *, stays: bool = False
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


# What `wrap` calls: those of the blocks that the program is in, the innermost last.
_enabled: list[Callable[..., Module]] = []


@contextmanager
def enable_wrap(*, wrapper_cls: Callable[..., Module], **wrapper_kwargs: Any) -> Iterator[None]:
    """Has `wrap` wrap modules until the block is left: `wrapper_cls(module, **wrapper_kwargs)`."""
    _enabled.append(partial(wrapper_cls, **wrapper_kwargs))
    try:
        yield
    finally:
        _enabled.pop()


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """The module, wrapped within a block of `enable_wrap`, whose settings `wrap_overrides` replace.

    >>> from metaop.distributed.wrapping import wrap
    >>> wrap(nn.Linear(2, 2))
    Linear(in_features=2, out_features=2, bias=True)
    """
    return _enabled[-1](module, **wrap_overrides) if _enabled else module


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Chooses every module."""
    return True


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Chooses the modules for which `lambda_fn` is true."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    transformer_layer_cls: Collection[type[Module]],
) -> bool:
    """Chooses the modules of some classes, the layers of a transformer."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = 100_000_000,
    force_leaf_modules: Collection[type[Module]] | None = None,
    exclude_wrap_modules: Collection[type[Module]] | None = None,
) -> bool:
    """Chooses modules with so many values in parameters that no module inside has taken.

    Modules of `exclude_wrap_modules` (lists and dicts of modules) are not chosen; inside of those
    of `force_leaf_modules` (`nn.MultiheadAttention`) none is.
    """
    leaves = (MultiheadAttention,) if force_leaf_modules is None else tuple(force_leaf_modules)
    kept = (ModuleList, ModuleDict) if exclude_wrap_modules is None else tuple(exclude_wrap_modules)
    is_large = nonwrapped_numel >= min_num_params
    return is_large and not isinstance(module, leaves if recurse else kept)


class ModuleWrapPolicy:
    """Chooses the modules of some classes.

    >>> from metaop.distributed.wrapping import ModuleWrapPolicy
    >>> ModuleWrapPolicy({nn.Linear})(nn.Linear(2, 2), recurse=False)
    True
    """

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, self._classes)


class CustomPolicy:
    """Chooses the modules for which `lambda_fn` is true; it may not give settings of their own."""

    def __init__(self, lambda_fn: Callable[[Module], bool]) -> None:
        self._function = lambda_fn

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        found = recurse or self._function(module)
        if not isinstance(found, bool):
            raise ArgumentError(
                f"a CustomPolicy gave {found!r} for a {type(module).__name__}",
                fix="return True or False: all modules are wrapped with the same settings",
            )
        return found
