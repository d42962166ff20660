"""`Variable`, the name that tensors with gradients had before PyTorch 0.4."""

from __future__ import annotations

from typing import Any

from metaop.tensor.core import Tensor
from metaop.tensor.creation import as_tensor


class _VariableType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)

    def __call__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Tensor:
        value = as_tensor(data).detach()
        return value.requires_grad_() if requires_grad and not volatile else value


class Variable(metaclass=_VariableType):
    """`Variable(data)` is the tensor `data`; every tensor is an instance of Variable."""
