"""`Variable`, the name that tensors with gradients had before PyTorch 0.4."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentTypeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty


class _VariableType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)

    def __call__(
        cls, data: Tensor | None = None, requires_grad: bool = False, volatile: Any = None
    ) -> Tensor:
        if data is None:
            data = empty(0)
        if not isinstance(data, Tensor):
            raise ArgumentTypeError(
                f"Variable data has to be a tensor, but got {type(data).__name__}",
                fix="make it a tensor with metaop.tensor(...)",
            )
        return data.detach().requires_grad_(requires_grad)


class Variable(metaclass=_VariableType):
    """`Variable(data)` is `data.detach()`, a leaf of its own; every tensor is a Variable.

    `volatile` does nothing, as in PyTorch. Raises ArgumentTypeError when `data` is not a tensor.

    >>> isinstance(metaop.ones(1), metaop.autograd.Variable)
    True
    """
