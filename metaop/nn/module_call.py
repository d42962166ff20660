"""Calling a module: forward, with the hooks around it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from metaop.errors import ArgumentTypeError
from metaop.nn.hooks import BackwardWatch, Hook, HookNumbers, HookTable, RemovableHandle, everywhere
from metaop.tensor.operands import name_wrong_operand


class CallMixin:
    """`module(...)` and the hooks that run before and after it."""

    forward: Callable[..., Any]
    _forward_hooks: HookTable
    _forward_hooks_with_kwargs: HookNumbers
    _forward_hooks_always_called: HookNumbers
    _forward_pre_hooks: HookTable
    _forward_pre_hooks_with_kwargs: HookNumbers
    _backward_hooks: HookTable
    _backward_pre_hooks: HookTable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or any(everywhere.around_calls)
        ):
            return self.__call_with_hooks(args, kwargs)
        try:
            return self.forward(*args, **kwargs)
        except Exception as error:
            self.__name_wrong_operand(error, args, kwargs)
            raise

    def __name_wrong_operand(
        self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Names what is not a tensor, for metaop's modules; what users' modules raise is theirs."""
        if type(self).__module__.startswith("metaop."):
            name_wrong_operand(self.forward, error, args, kwargs, type(self).__name__)

    def __call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        called: set[int] = set()
        result = None
        try:
            args, kwargs = self.__before(args, kwargs)
            watch = self.__backward_watch()
            if watch is not None:
                args = watch.inputs(args)
            result = self.forward(*args, **kwargs)
            result = self.__after(args, kwargs, result, called)
            return result if watch is None else watch.outputs(result)
        except Exception as error:
            self.__after_failure(args, kwargs, result, called)
            self.__name_wrong_operand(error, args, kwargs)
            raise

    def __before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple, dict]:
        for number, hook in (*everywhere.forward_pre.items(), *self._forward_pre_hooks.items()):
            if number in self._forward_pre_hooks_with_kwargs:
                replaced = hook(self, args, kwargs)
                if replaced is None:
                    continue
                if not isinstance(replaced, tuple) or len(replaced) != 2:
                    raise ArgumentTypeError(
                        "forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {replaced}"
                    )
                args, kwargs = replaced
            else:
                replaced = hook(self, args)
                if replaced is not None:
                    args = replaced if isinstance(replaced, tuple) else (replaced,)
        return args, kwargs

    def __backward_watch(self) -> BackwardWatch | None:
        pre_hooks = [*everywhere.backward_pre.values(), *self._backward_pre_hooks.values()]
        hooks = [*everywhere.backward.values(), *self._backward_hooks.values()]
        return BackwardWatch(self, pre_hooks, hooks) if pre_hooks or hooks else None

    def __after(self, args: tuple, kwargs: dict, result: Any, called: set[int]) -> Any:
        for number, hook in (*everywhere.forward.items(), *self._forward_hooks.items()):
            called.add(number)
            replaced = self.__run_forward_hook(number, hook, args, kwargs, result)
            result = result if replaced is None else replaced
        return result

    def __run_forward_hook(
        self, number: int, hook: Hook, args: tuple, kwargs: dict, result: Any
    ) -> Any:
        if number in self._forward_hooks_with_kwargs or number in everywhere.forward_with_kwargs:
            return hook(self, args, kwargs, result)
        return hook(self, args, result)

    def __after_failure(self, args: tuple, kwargs: dict, result: Any, called: set[int]) -> None:
        always = self._forward_hooks_always_called | everywhere.forward_always
        for number, hook in (*everywhere.forward.items(), *self._forward_hooks.items()):
            if number not in always or number in called:
                continue
            try:
                replaced = self.__run_forward_hook(number, hook, args, kwargs, result)
                result = result if replaced is None else replaced
            except Exception as error:
                warnings.warn(
                    "module forward hook with ``always_call=True`` raised an exception that was "
                    f"silenced as another error was raised in forward: {error}",
                    stacklevel=2,
                )

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Runs `hook(module, args)` before forward; its return value replaces the arguments."""
        numbers = self._forward_pre_hooks_with_kwargs
        handle = self._forward_pre_hooks.add(hook, prepend=prepend, extra=(numbers,))
        if with_kwargs:
            numbers.add(handle.id)
        return handle

    def register_forward_hook(
        self,
        hook: Hook,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Runs `hook(module, args, output)` after forward; its return value replaces the output.

        With `always_call` the hook runs even when forward fails.
        """
        extra = (self._forward_hooks_with_kwargs, self._forward_hooks_always_called)
        handle = self._forward_hooks.add(hook, prepend=prepend, extra=extra)
        if with_kwargs:
            self._forward_hooks_with_kwargs.add(handle.id)
        if always_call:
            self._forward_hooks_always_called.add(handle.id)
        return handle

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Runs `hook(module, grad_output)` in backward; may return other gradients."""
        return self._backward_pre_hooks.add(hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Runs `hook(module, grad_input, grad_output)` in backward; may return other gradients.

        The gradients are those of the positional tensor arguments and of the outputs.
        """
        return self._backward_hooks.add(hook, prepend=prepend)

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """PyTorch's older name of `register_full_backward_hook`."""
        return self.register_full_backward_hook(hook)
