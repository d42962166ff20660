"""Hooks around module calls: handles, global hooks, and gradient watchers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from metaop.differentiation.entries import TapeEntry
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.handles import RemovableHandle
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node
from metaop.unified_graph.recording import Call, part, record
from metaop.unified_graph.tracing import configured

Hook = Callable[..., Any]


class HookTable(OrderedDict):
    """Hooks by number, in calling order. (A plain dict cannot be referred to weakly.)"""

    def add(
        self, hook: Hook, *, prepend: bool = False, extra: Sequence[Any] = ()
    ) -> RemovableHandle:
        """Appends a hook, or prepends it."""
        handle = RemovableHandle(self, *extra)
        self[handle.id] = hook
        if prepend:
            self.move_to_end(handle.id, last=False)
        configured("hooks")
        return handle


class HookNumbers(set):
    """The numbers of hooks with some property."""


class GlobalHooks:
    """The hooks that run for every module."""

    def __init__(self) -> None:
        self.forward_pre = HookTable()
        self.forward = HookTable()
        self.forward_with_kwargs = HookNumbers()
        self.forward_always = HookNumbers()
        self.backward_pre = HookTable()
        self.backward = HookTable()
        self.parameter_registration = HookTable()
        self.buffer_registration = HookTable()
        self.module_registration = HookTable()
        # Read on every module call, so it is one attribute instead of four.
        self.around_calls = (self.forward_pre, self.forward, self.backward_pre, self.backward)


everywhere = GlobalHooks()


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Runs `hook(module, args)` before the forward of every module."""
    return everywhere.forward_pre.add(hook)


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Runs `hook(module, args, output)` after the forward of every module."""
    numbers = (everywhere.forward_with_kwargs, everywhere.forward_always)
    handle = everywhere.forward.add(hook, extra=numbers)
    if with_kwargs:
        everywhere.forward_with_kwargs.add(handle.id)
    if always_call:
        everywhere.forward_always.add(handle.id)
    return handle


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Runs `hook(module, grad_output)` when the gradients of any module's outputs are known."""
    return everywhere.backward_pre.add(hook)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Runs `hook(module, grad_input, grad_output)` after the backward of every module."""
    return everywhere.backward.add(hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """Runs `hook(module, name, parameter)` when a parameter is registered; may replace it."""
    return everywhere.parameter_registration.add(hook)


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """Runs `hook(module, name, buffer)` when a buffer is registered; may replace it."""
    return everywhere.buffer_registration.add(hook)


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """Runs `hook(module, name, submodule)` when a submodule is registered; may replace it."""
    return everywhere.module_registration.add(hook)


def registered(hooks: HookTable, module: Any, name: str, value: Any) -> Any:
    """`value`, or what the registration hooks replace it by."""
    for hook in hooks.values():
        replaced = hook(module, name, value)
        value = value if replaced is None else replaced
    return value


Gradients = tuple["Tensor | None", ...]


@composite(variadic=True)
def gradient_gate(inputs: tuple[Node, ...]) -> tuple[Node, ...]:
    """The identity; hooks see the gradients here."""
    return inputs


def watch_gradients(
    values: tuple[Any, ...], function: Callable[[Gradients], Gradients]
) -> tuple[tuple[Any, ...], bool]:
    """Passes the tensors of `values` that require gradients through a gate.

    When backward reaches them, `function` gets the gradients of all values (None where there is
    none) and returns those to propagate. The second result says whether any value requires one.
    """
    tracked = [
        k for k, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad
    ]
    if not tracked:
        return values, False

    def pull(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
        gradients: list[Tensor | None] = [None] * len(values)
        for position, cotangent in zip(tracked, cotangents):
            gradients[position] = None if cotangent is None else wrap(cotangent)
        passed = function(tuple(gradients))
        return [None if passed[k] is None else passed[k].call for k in tracked]  # type: ignore

    sources = tuple(values[k].call for k in tracked)
    gate = record(gradient_gate, sources)
    if not gate.requires_grad:
        return values, False
    gate.tape = TapeEntry(function=pull, sources=sources, outputs=len(sources))
    led = list(values)
    for index, position in enumerate(tracked):
        led[position] = wrap(part(gate, index))
    return tuple(led), True


class BackwardWatch:
    """Runs the backward hooks of one module call."""

    def __init__(self, module: Any, pre_hooks: list[Hook], hooks: list[Hook]) -> None:
        self.module = module
        self.pre_hooks = pre_hooks
        self.hooks = hooks
        self.grad_output: Gradients | None = None
        self.input_count = 0
        self.inputs_tracked = False

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of forward, passed through the hooks' gate."""
        self.input_count = len(args)
        args, self.inputs_tracked = watch_gradients(args, self._reached_inputs)
        return args

    def outputs(self, result: Any) -> Any:
        """The result of forward, passed through the hooks' gate."""
        if isinstance(result, Tensor):
            return watch_gradients((result,), self._reached_outputs)[0][0]
        if isinstance(result, tuple):
            return watch_gradients(result, self._reached_outputs)[0]
        return result

    def _reached_outputs(self, gradients: Gradients) -> Gradients:
        for hook in self.pre_hooks:
            replaced = hook(self.module, gradients)
            if replaced is not None:
                gradients = _as_many("Backward pre hook", replaced, len(gradients))
        self.grad_output = gradients
        if not self.inputs_tracked:
            self._reached_inputs((None,) * self.input_count)
        return gradients

    def _reached_inputs(self, gradients: Gradients) -> Gradients:
        arrived, self.grad_output = self.grad_output, None
        if arrived is None:  # no watched output had a gradient: PyTorch runs no hook either
            return gradients
        for hook in self.hooks:
            replaced = hook(self.module, gradients, arrived)
            if replaced is not None:
                gradients = _as_many("Backward hook", replaced, len(gradients))
        return gradients


def _as_many(kind: str, gradients: Any, count: int) -> Gradients:
    result = gradients if isinstance(gradients, tuple) else (gradients,)
    if len(result) != count:
        raise ArgumentError(
            f"{kind} returned an invalid number of grad tensors: {len(result)} instead of {count}",
            fix="return one gradient for each that the hook received, or None",
        )
    return result
