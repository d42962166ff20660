"""Fits a line to noisy points: tensors, gradients, and gradient descent by hand.

Run: python examples/linear_regression.py
"""

from __future__ import annotations

import metaop


def main(steps: int = 200, lr: float = 0.1) -> tuple[float, float]:
    """Returns the fitted slope and intercept (true values: 3 and -1)."""
    metaop.manual_seed(0)
    x = metaop.rand(200)
    y = 3 * x - 1 + 0.01 * metaop.randn(200)
    slope = metaop.zeros(1, requires_grad=True)
    intercept = metaop.zeros(1, requires_grad=True)

    for _ in range(steps):
        loss = ((slope * x + intercept - y) ** 2).mean()
        loss.backward()
        with metaop.no_grad():
            for parameter in (slope, intercept):
                parameter -= lr * parameter.grad
                parameter.grad = None

    print(f"slope {slope.item():.2f}, intercept {intercept.item():.2f}")
    return slope.item(), intercept.item()


if __name__ == "__main__":
    main(steps=1000)
