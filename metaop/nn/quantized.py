"""The floating-point part of PyTorch's quantisation layers."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.errors import UnsupportedError
from metaop.nn.linear import Identity
from metaop.nn.module import Module
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat


class FloatFunctional(Module):
    """Sums and products as methods of a module, so that quantisation can observe their results.

    In floating point they compute what their names say.
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Identity()

    def forward(self, x: Tensor) -> Tensor:
        raise UnsupportedError(
            "FloatFunctional is not intended to use the 'forward'.",
            fix="call the operation, for example .add(x, y)",
        )

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """`x + y`."""
        return self.activation_post_process(x + y)  # type: ignore[operator]

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """`x + y` for a number; the result is not observed."""
        return x + y  # type: ignore[operator]

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """`x * y`."""
        return self.activation_post_process(x * y)  # type: ignore[operator]

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """`x * y` for a number; the result is not observed."""
        return x * y  # type: ignore[operator]

    def cat(self, x: Sequence[Tensor], dim: int = 0) -> Tensor:
        """`cat(x, dim)`."""
        return self.activation_post_process(cat(x, dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """`relu(x + y)`."""
        return self.activation_post_process((x + y).relu())  # type: ignore[operator]

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """`x @ y`."""
        return self.activation_post_process(x @ y)  # type: ignore[operator]
