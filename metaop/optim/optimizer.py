"""Optimizer: parameter groups, state, and how a step is recorded.

The update of all parameters of a group is one composite call. Its inputs are the parameters,
their gradients and states, and 0-d numbers (the learning rate, factors that depend on the step),
so changing a number does not recompile. The results become the new values of the parameters and
states; then the step runs.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, NoReturn

from metaop.dist.sbp import BROADCAST
from metaop.errors import ArgumentError, ArgumentTypeError, GradientError
from metaop.execution.executor import realize
from metaop.nn.hooks import HookTable, RemovableHandle
from metaop.optim.helpers import Grouped, TensorLists, group_tensors
from metaop.tensor.core import Tensor
from metaop.tensor.sharded.global_tensor import spread

Group = dict[str, Any]
ParamsT = Iterable[Any]

_everywhere_pre = HookTable()
_everywhere_post = HookTable()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Runs `hook(optimizer, args, kwargs)` before the step of every optimizer."""
    return _everywhere_pre.add(hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Runs `hook(optimizer, args, kwargs)` after the step of every optimizer."""
    return _everywhere_post.add(hook)


class _Required:
    """A default that marks a setting as required in every group."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class Optimizer:
    """The base of all optimizers.

    `params` is an iterable of tensors, of (name, tensor) pairs, or of dicts with "params" and their
    own settings; `defaults` apply to groups that do not override them. A subclass defines `step`,
    usually by subclassing `UpdateRule`.

    Raises ArgumentError if there are no parameters, ArgumentTypeError for non-tensors.

    >>> class Signs(metaop.optim.Optimizer):
    ...     def step(self):
    ...         for group in self.param_groups:
    ...             for weight in group["params"]:
    ...                 weight.data.sub_(group["lr"] * weight.grad.sign())
    >>> weight = nn.Parameter(metaop.ones(2))
    >>> optimizer = Signs([weight], {"lr": 0.5})
    >>> weight.sum().backward()
    >>> optimizer.step()
    >>> weight.tolist()
    [0.5, 0.5]
    """

    # Whether a group lists a parameter more than once.
    _repeats_parameters = False

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise ArgumentTypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                "dicts, but got a Tensor",
                fix="put it in a list",
            )
        self.defaults = defaults
        self.state: dict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        self._patch_step_function()
        groups = list(params)
        if not groups:
            raise ArgumentError(
                "optimizer got an empty parameter list",
                fix="check that the model has parameters, and that no generator was used twice",
            )
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _patch_step_function(self) -> None:
        """Makes the tables of hooks; wrappers that never call `__init__` call this instead."""
        self._step_pre_hooks = HookTable()
        self._step_post_hooks = HookTable()
        self._state_dict_pre_hooks = HookTable()
        self._state_dict_post_hooks = HookTable()
        self._load_state_dict_pre_hooks = HookTable()
        self._load_state_dict_post_hooks = HookTable()

    @staticmethod
    def _group_tensors_by_device_and_dtype(
        tensorlistlist: TensorLists, with_indices: bool = False
    ) -> Grouped:
        return group_tensors(tensorlistlist, with_indices)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates all parameters that have a gradient.

        `closure` recomputes the loss and returns it; `step` then returns that loss.
        """
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters (or fills them with zeros)."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none or parameter.grad is None:
                    parameter.grad = None
                else:
                    parameter.grad.detach_().zero_()

    # --- groups -----------------------------------------------------------------------------

    def add_param_group(self, param_group: Group) -> None:
        """Adds parameters with their own settings: `{"params": …, "lr": …}`."""
        if not isinstance(param_group, dict):
            raise ArgumentTypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise ArgumentTypeError(
                "optimizer parameters need to be organized in ordered collections, but the "
                "ordering of tensors in sets will change between runs",
                fix="use a list instead",
            )
        params = list(params)
        named = [isinstance(item, tuple) for item in params]
        if any(named):
            if not all(named):
                raise ArgumentError(
                    "all optimizer params should be with/without names. Some param names are "
                    "missing",
                    fix="pass model.named_parameters() or model.parameters()",
                )
            param_group["param_names"] = [name for name, _ in params]
            params = [parameter for _, parameter in params]
        param_group["params"] = params
        self.__check_parameters(params)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ArgumentError(
                    f"parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            param_group.setdefault(name, default)
        self.param_groups.append(param_group)

    def __check_parameters(self, params: Sequence[Any]) -> None:
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise ArgumentTypeError(
                    f"optimizer can only optimize Tensors, but one of the params is "
                    f"{type(parameter).__name__}",
                    fix="pass model.parameters()",
                )
            if not self.defaults.get("differentiable") and not parameter.is_leaf:
                raise ArgumentError(
                    "can't optimize a non-leaf Tensor", fix="pass the parameters themselves"
                )
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        numbers = [id(parameter) for parameter in params]
        if len(set(numbers)) != len(numbers):
            self._repeats_parameters = True
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters: each is updated "
                "once per occurrence; pass every parameter once",
                stacklevel=3,
            )
        if not seen.isdisjoint(numbers):
            raise ArgumentError(
                "some parameters appear in more than one parameter group",
                fix="put every parameter in one group",
            )

    # --- state ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Settings and state, with parameters numbered in the order of the groups."""
        for hook in self._state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers.setdefault(id(parameter), len(numbers))
            packed = {name: value for name, value in group.items() if name != "params"}
            packed["params"] = [numbers[id(parameter)] for parameter in group["params"]]
            groups.append(packed)
        state = {
            numbers[id(key)] if isinstance(key, Tensor) else key: value
            for key, value in self.state.items()
        }
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._state_dict_post_hooks.values():
            replaced = hook(self, result)
            result = result if replaced is None else replaced
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` returned; the groups must have the same numbers of parameters.

        State tensors are converted to the dtype and device of their parameter.
        """
        state_dict = dict(state_dict)
        for hook in self._load_state_dict_pre_hooks.values():
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        saved = deepcopy(state_dict["param_groups"])
        if len(saved) != len(self.param_groups):
            raise ArgumentError(
                f"loaded state dict has a different number of parameter groups: {len(saved)} "
                f"instead of {len(self.param_groups)}"
            )
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(saved, self.param_groups)):
            raise ArgumentError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                "optimizer's group"
            )
        parameter_of: dict[Any, Tensor] = {}
        for old, group in zip(saved, self.param_groups):
            parameter_of.update(zip(old["params"], group["params"]))
        state: dict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            parameter = parameter_of.get(key)
            if parameter is None:
                state[key] = value
            else:
                state[parameter] = _moved(value, parameter)
        groups = [
            {**_names(group), **old, "params": group["params"]}
            for old, group in zip(saved, self.param_groups)
        ]
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._load_state_dict_post_hooks.values():
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.state = defaultdict(dict, self.state)
        if "_step_pre_hooks" not in self.__dict__:
            self._patch_step_function()
        for group in self.param_groups:
            for name, default in self.defaults.items():
                group.setdefault(name, default)

    # --- hooks ------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Runs `hook(optimizer, args, kwargs)` before a step; may return other arguments.

        The first of `args` is the optimizer.
        """
        return self._step_pre_hooks.add(hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Runs `hook(optimizer, args, kwargs)` after a step."""
        return self._step_post_hooks.add(hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Runs `hook(optimizer)` before the state is collected."""
        return self._state_dict_pre_hooks.add(hook, prepend=prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Runs `hook(optimizer, state_dict)`; may return another state dict."""
        return self._state_dict_post_hooks.add(hook, prepend=prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Runs `hook(optimizer, state_dict)` before loading; may return another state dict."""
        return self._load_state_dict_pre_hooks.add(hook, prepend=prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Runs `hook(optimizer)` after loading."""
        return self._load_state_dict_post_hooks.add(hook, prepend=prepend)

    def __repr__(self) -> str:
        groups = []
        for index, group in enumerate(self.param_groups):
            settings = (f"    {k}: {group[k]}" for k in sorted(group) if k != "params")
            groups.append("\n".join([f"Parameter Group {index}", *settings, ""]))
        return f"{type(self).__name__} (\n" + "\n".join(groups) + ")"


def refuse_sparse(optimizer: Optimizer) -> NoReturn:
    """The error for a sparse gradient that an optimizer does not support."""
    raise GradientError(
        f"{type(optimizer).__name__} does not support sparse gradients, please consider "
        "SparseAdam instead",
        fix="use SparseAdam, SGD or Adagrad for tables with sparse=True, or omit sparse",
    )


def _names(group: Group) -> Group:
    """The names of a group's parameters, if any; loading a state without names keeps them."""
    return {"param_names": group["param_names"]} if "param_names" in group else {}


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with its hooks; all pending work runs at the end."""
    if getattr(step, "_has_hooks", False):
        return step

    def wrapped(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        self._opt_called = True  # type: ignore[attr-defined]
        if "_step_pre_hooks" not in vars(self):
            # A wrapper that never called __init__; the wrapped optimizer has the hooks.
            return step(self, *args, **kwargs)
        if not (
            _everywhere_pre or _everywhere_post or self._step_pre_hooks or self._step_post_hooks
        ):
            result = step(self, *args, **kwargs)
            realize()
            return result
        # Hooks see the optimizer among the arguments, as in PyTorch.
        args = (self, *args)
        for hook in (*_everywhere_pre.values(), *self._step_pre_hooks.values()):
            replaced = hook(self, args, kwargs)
            if replaced is not None:
                if not isinstance(replaced, tuple) or len(replaced) != 2:
                    raise ArgumentTypeError(
                        "optimizer step pre-hook must return None or a tuple of (new_args, "
                        f"new_kwargs), but got {replaced}"
                    )
                args, kwargs = replaced
        result = step(*args, **kwargs)
        realize()
        for hook in (*self._step_post_hooks.values(), *_everywhere_post.values()):
            hook(self, args, kwargs)
        return result

    wrapped.__name__, wrapped.__doc__ = "step", step.__doc__
    wrapped._has_hooks = True  # type: ignore[attr-defined]
    return wrapped


def _moved(value: Any, parameter: Tensor, key: str | None = None) -> Any:
    """Loaded state in the dtype and on the device of its parameter; counters stay unchanged."""
    if isinstance(value, Tensor):
        if key == "step":
            return value.detach().clone()
        dtype = parameter.dtype if parameter.dtype.is_floating_point else value.dtype
        placement = parameter.device.placement
        if placement is not None and value.device.placement is None:
            whole = value.detach().to(dtype=dtype)  # type: ignore[attr-defined]
            lie = parameter.sbp if value.ndim else BROADCAST  # type: ignore[attr-defined]
            return spread(whole, placement, lie)
        return value.detach().clone().to(parameter.device, dtype)
    if isinstance(value, dict):
        return {name: _moved(inner, parameter, name) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(inner, parameter) for inner in value)
    return value
