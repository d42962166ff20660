"""Saving and loading the values of a module: state_dict and load_state_dict."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from metaop.codegen.memory.buffers import Buffer
from metaop.errors import ArgumentError, ArgumentTypeError, CheckpointError, InternalError
from metaop.nn.hooks import Hook, HookTable, RemovableHandle
from metaop.nn.parameter import Parameter, is_lazy
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import no_grad
from metaop.unified_graph.recording import leaf
from metaop.unified_graph.tracing import state

_EXTRA_STATE = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """The names that `load_state_dict` could not match."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"_IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )


class StateMixin:
    """Saves the values of a module by name and loads them again."""

    _version: int = 1
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: HookTable
    _state_dict_pre_hooks: HookTable
    _load_state_dict_pre_hooks: HookTable
    _load_state_dict_post_hooks: HookTable

    def get_extra_state(self) -> Any:
        """Returns additional state for the state_dict besides tensors; subclasses override it."""
        raise NotImplementedError

    def set_extra_state(self, state: Any) -> None:
        """Restores what `get_extra_state` returned."""
        raise NotImplementedError

    def __overrides(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(StateMixin, name)

    def __persistent(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                yield name, parameter
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                yield name, buffer

    # --- saving -----------------------------------------------------------------------------

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Writes this module's own values (not its children's) to `destination`."""
        for name, value in self.__persistent():
            destination[prefix + name] = value if keep_vars else value.detach()
        if self.__overrides("get_extra_state"):
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self,
        *args: Any,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """All parameters and persistent buffers by dotted name, detached unless `keep_vars`.

        The tensors share their values with the module.
        """
        if args:
            destination, prefix, keep_vars = args + (destination, prefix, keep_vars)[len(args) :]
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()  # type: ignore[attr-defined]
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in self._state_dict_hooks.values():
            replaced = hook(self, destination, prefix, local_metadata)
            if replaced is not None:
                if not getattr(hook, "_may_replace", False):
                    raise ArgumentError("state_dict post-hook must return None")
                destination = replaced
        return destination

    def register_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Runs `hook(module, prefix, keep_vars)` before the module's values are collected."""
        return self._state_dict_pre_hooks.add(hook)

    def register_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Runs `hook(module, state_dict, prefix, local_metadata)`; it may change the dict."""
        return self._state_dict_hooks.add(hook)

    def _register_state_dict_hook(self, hook: Hook) -> RemovableHandle:
        hook._may_replace = True  # type: ignore[attr-defined]
        return self._state_dict_hooks.add(hook)

    # --- loading ----------------------------------------------------------------------------

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Loads this module's own values from `state_dict`; problems are appended to the lists."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )
        own = dict(self.__persistent())
        for name, target in own.items():
            key = prefix + name
            if key in state_dict:
                assign = local_metadata.get("assign_to_params_buffers", False)
                problem = self.__load_one(name, target, state_dict[key], key, assign)
                if problem:
                    error_msgs.append(problem)
            elif strict:
                missing_keys.append(key)
        extra = prefix + _EXTRA_STATE
        if self.__overrides("set_extra_state"):
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            unexpected_keys.extend(self.__unknown_keys(state_dict, prefix, own))

    def __unknown_keys(
        self, state_dict: Mapping[str, Any], prefix: str, own: Mapping[str, Tensor]
    ) -> Iterator[str]:
        for key in state_dict:
            if not key.startswith(prefix) or key == prefix + _EXTRA_STATE:
                continue
            name, dot, _ = key[len(prefix) :].partition(".")
            if name not in (self._modules if dot else own):
                yield key

    def __load_one(self, name: str, target: Tensor, value: Any, key: str, assign: bool) -> str:
        """Loads one value; returns an error text, which is empty on success."""
        if not isinstance(value, Tensor):
            return (
                f'While copying the parameter named "{key}", expected metaop.Tensor from '
                f"checkpoint but received {type(value)}"
            )
        if is_lazy(value) and is_lazy(target):
            return ""
        if target.ndim == 0 and value.shape == (1,):
            value = value.reshape(())
        if value.shape != target.shape:
            return (
                f"size mismatch for {key}: copying a param with shape {value.shape!r} from "
                f"checkpoint, the shape in current model is {target.shape!r}."
            )
        with no_grad():
            if not assign:
                _copy_into(target, value)
            elif isinstance(target, Parameter) and not isinstance(value, Parameter):
                setattr(self, name, Parameter(value, requires_grad=target.requires_grad))
            else:
                if isinstance(target, Parameter):
                    value.requires_grad_(target.requires_grad)
                setattr(self, name, value)
        return ""

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copies the values of `state_dict` into this module and its children.

        With `strict` the names must match exactly. With `assign` the module takes the tensors
        themselves, with their dtype. One CheckpointError lists all problems.
        """
        if not isinstance(state_dict, Mapping):
            raise ArgumentTypeError(
                f"Expected state_dict to be dict-like, got {type(state_dict)}.",
                fix="pass what module.state_dict() returned",
            )
        keys = IncompatibleKeys([], [])
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        copied: dict[str, Any] = OrderedDict(state_dict)
        if metadata is not None:
            copied._metadata = metadata  # type: ignore[attr-defined]
        self.__load_tree(copied, "", metadata or {}, assign, keys, errors)
        if strict:
            for kind, names in (("Unexpected", keys[1]), ("Missing", keys[0])):
                if names:
                    listed = ", ".join(f'"{name}"' for name in names)
                    errors.insert(0, f"{kind} key(s) in state_dict: {listed}. ")
        if errors:
            listed = "\n\t".join(errors)
            raise CheckpointError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}",
                fix="build the module as it was when saved, or pass strict=False to skip names "
                "that do not match",
            )
        return keys

    def __load_tree(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        metadata: Mapping[str, Any],
        assign: bool,
        keys: IncompatibleKeys,
        errors: list[str],
    ) -> None:
        local_metadata = dict(metadata.get(prefix[:-1], {}))
        if assign:
            local_metadata["assign_to_params_buffers"] = True
        self._load_from_state_dict(state_dict, prefix, local_metadata, True, *keys, errors)
        for name, module in self._modules.items():
            if module is not None:
                inner = f"{prefix}{name}."
                part = OrderedDict((k, v) for k, v in state_dict.items() if k.startswith(inner))
                module.__load_tree(part, inner, metadata, assign, keys, errors)
        for hook in self._load_state_dict_post_hooks.values():
            if hook(self, keys) is not None:
                raise InternalError(
                    "hooks registered with register_load_state_dict_post_hook must return None",
                    fix="change incompatible_keys in place",
                )

    def register_load_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Runs `hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)`.

        It may change the dict and the lists before the values are loaded.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Hook, with_module: bool = False
    ) -> RemovableHandle:
        bound = _WithModule(hook, self) if with_module else hook
        return self._load_state_dict_pre_hooks.add(bound)

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Runs `hook(module, incompatible_keys)` after loading; it may change the keys."""
        return self._load_state_dict_post_hooks.add(hook)


def _copy_into(target: Tensor, value: Tensor) -> None:
    """Copies a computed value of the same type at once, so the next program need not."""
    kind, buffer = value.call.type, value.call.buffer
    if type(buffer) is Buffer and kind is target.call.type and state.trace is None:
        target._rebind(leaf(kind, buffer.copy()), "copy_")
    else:
        target.copy_(value)  # type: ignore[attr-defined]


class _WithModule:
    """A hook that gets its module as the first argument, even after the module was copied."""

    def __init__(self, hook: Hook, module: Any) -> None:
        self.hook = hook
        self.module = module

    def __call__(self, *args: Any) -> Any:
        return self.hook(self.module, *args)
