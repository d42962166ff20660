"""A custom gradient: rounding with a straight-through estimator.

Run: python examples/custom_function.py
"""

from __future__ import annotations

from typing import Any

import metaop


class RoundStraightThrough(metaop.autograd.Function):
    """Rounds in the forward pass; the backward pass is the identity."""

    @staticmethod
    def forward(context: Any, values: metaop.Tensor) -> metaop.Tensor:
        return values.round()

    @staticmethod
    def backward(context: Any, gradient: metaop.Tensor) -> metaop.Tensor:
        return gradient


def main() -> list[float]:
    """Returns the gradient of the sum of squares of rounded values."""
    values = metaop.tensor([0.4, 1.6, -2.7], requires_grad=True)
    rounded = RoundStraightThrough.apply(values)
    (rounded**2).sum().backward()
    print("rounded ", rounded.tolist())
    print("gradient", values.grad.tolist())
    return values.grad.tolist()


if __name__ == "__main__":
    main()
