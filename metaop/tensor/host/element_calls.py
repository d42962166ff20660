"""Python functions that are called for every element, on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metaop.errors import DeviceError, GradientError
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.surface import method


def _called(name: str, function: Callable[..., Any], input: Tensor, *others: Tensor) -> Tensor:
    """The results for the elements, in the type of the tensor."""
    if input.device.type != "cpu":
        raise DeviceError(f"{name} is only implemented on CPU tensors", fix="call .cpu() first")
    if input.requires_grad:
        raise GradientError(
            f"Can't call {name}() on Variable that requires grad.",
            fix=f"use var.detach().{name}()",
        )
    arrays = [input._array(), *(other.expand(*input.shape)._array() for other in others)]
    rows = zip(*(array.reshape(-1).tolist() for array in arrays))
    found = np.array([function(*row) for row in rows], dtype=input.dtype.numpy)
    return from_array(found.reshape(tuple(input.shape)), input.dtype)


@method()
def apply_(input: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replaces every element by what a Python function returns for it; slow.

    Raises DeviceError for tensors of a GPU and GradientError for one that requires a gradient.
    """
    return input.copy_(_called("apply_", callable, input))  # type: ignore[attr-defined]


@method()
def map_(input: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replaces every element by what a Python function returns for it and for one of `tensor`.

    `tensor` broadcasts to the shape. Raises as `apply_`.
    """
    return input.copy_(_called("map_", callable, input, tensor))  # type: ignore[attr-defined]
