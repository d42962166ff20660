"""Classes below `Tensor` that say themselves what functions make of them, under PyTorch's names.

    class Measured(metaop.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            result = super().__torch_function__(func, types, args, kwargs)
            ...

Every method of tensors, every function of `metaop`, `metaop.nn.functional`, `metaop.linalg`,
`metaop.fft` and `metaop.special`, and every layer calls it. Without one of its own, a class gets
results of the class. Functions that a module imported by name before the first such class was
defined do not see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from metaop.tensor.core import Tensor
from metaop.tensor.overrides import (
    DisableTorchFunctionSubclass,
    _disabled_torch_function_impl,
    dispatched,
    overriding,
)

__all__ = [
    "DisableTorchFunctionSubclass",
    "_disabled_torch_function_impl",
    "get_default_nowrap_functions",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
]


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether the class of an argument overrides functions."""
    return bool(overriding(relevant_args))


def has_torch_function_unary(tensor: Any) -> bool:
    """Whether the class of the only argument overrides functions."""
    return has_torch_function((tensor,))


def has_torch_function_variadic(*args: Any) -> bool:
    """Whether the class of one of the arguments overrides functions."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Lets the classes of arguments say what a function gives; TypeError if none knows it."""
    return dispatched(public_api, overriding(relevant_args), args, kwargs)


def is_tensor_like(inp: Any) -> bool:
    """Whether a value is a tensor, or of a class that has `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """The functions whose results stay plain tensors: none of those that call a class."""
    return set()
