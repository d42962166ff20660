"""Built-in message and reduce functions: data that message passing interprets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from metaop.errors import ShapeError
from metaop.tensor.core import Tensor


class CopyMessage(NamedTuple):
    """The feature of one side of each edge."""

    side: str
    field: str
    out: str


class BinaryMessage(NamedTuple):
    """An operator on features of two sides of each edge."""

    operator: str
    left: str
    right: str
    left_field: str
    right_field: str
    out: str


class Reduction(NamedTuple):
    """Reduces the messages that arrive at a node to one value, 0 if none arrives."""

    reducer: str
    message: str
    out: str


Message = CopyMessage | BinaryMessage


def aligned(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Features with dimensions of size 1 after the first, so that the others align."""

    def grown(value: Tensor, ndim: int) -> Tensor:
        missing = ndim - value.ndim
        if not missing:
            return value
        return value.reshape(value.shape[0], *(1,) * missing, *value.shape[1:])

    ndim = max(left.ndim, right.ndim)
    return grown(left, ndim), grown(right, ndim)


def combine(operator: str, left: Tensor, right: Tensor) -> Tensor:
    """The operator of a binary message, row by row; "dot" keeps a last dimension of 1."""
    left, right = aligned(left, right)
    if operator == "dot":
        if left.ndim < 2 or left.shape[-1] != right.shape[-1]:
            raise ShapeError(
                f"dot: features {list(left.shape)} and {list(right.shape)} must have equal last "
                "dimensions"
            )
        return (left * right).sum(-1, keepdim=True)
    return OPERATORS[operator](left, right)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda left, right: left + right,
    "sub": lambda left, right: left - right,
    "mul": lambda left, right: left * right,
    "div": lambda left, right: left / right,
}
