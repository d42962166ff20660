"""Makes methods of the functions: each function module lists the names that tensors offer too."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from types import ModuleType
from typing import Any

from metaop.tensor.core import Tensor
from metaop.tensor.writing import in_place


def bind(module: ModuleType) -> None:
    """Attaches the functions in `module.METHODS` to Tensor, and in-place forms of `IN_PLACE`.

    `PROPERTIES` become properties, `SPECIAL` gives Python's special methods by name. The first
    parameter of each function is the tensor. `name_` is made from `name` for every name
    in `IN_PLACE`: it computes the function and writes the result into the tensor.
    """
    for name in getattr(module, "METHODS", ()):
        setattr(Tensor, name, _taking_axis(getattr(module, name)))
    for name in getattr(module, "PROPERTIES", ()):
        setattr(Tensor, name, property(getattr(module, name)))
    for name, function in getattr(module, "SPECIAL", {}).items():
        setattr(Tensor, name, function)
    for name in getattr(module, "IN_PLACE", ()):
        setattr(Tensor, name + "_", _in_place_form(getattr(module, name)))


def _taking_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with `axis` and `keepdims` for `dim` and `keepdim`, as in NumPy and PyTorch."""
    if "dim" not in signature(function).parameters:
        return function

    @wraps(function)
    def method(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for word, name in (("axis", "dim"), ("keepdims", "keepdim")):
                if word in kwargs:
                    kwargs[name] = kwargs.pop(word)
        return function(*args, **kwargs)

    return method


def _in_place_form(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(function)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return in_place(self, function, *args, **kwargs)

    method.__name__ = function.__name__ + "_"
    return method
