"""A leaky integrator as a custom kernel, with its gradient, fitted to data.

`y[t] = decay · y[t-1] + x[t]` carries a value from step to step, which no composition of the three
operator families does in one pass. Each row of the batch is a task.
"""

from __future__ import annotations

import metaop
from metaop.kernels import task


@metaop.kernel(
    tasks=lambda x, decay, y, dy: x.shape[0],
    outputs=lambda x, decay, y, dy: [x, (x.shape[:1], x.dtype)],
)
def integrate_gradient(x, decay, y, dy, dx, row_slopes):
    """Runs the recurrence backward; every row computes its part of the gradient of `decay`."""
    row, steps = task(), x.shape[1]
    carried = 0.0
    slope = 0.0
    for t in range(steps - 1, -1, -1):
        carried = dy[row, t] + decay[()] * carried
        dx[row, t] = carried
        if t > 0:
            slope += carried * y[row, t - 1]
    row_slopes[row] = slope


def gradient(inputs, outputs, cotangents):
    """The gradients of x and decay."""
    dx, slopes = integrate_gradient(*inputs, *outputs, *cotangents)
    return dx, slopes.sum()


@metaop.kernel(tasks=lambda x, decay: x.shape[0], outputs=lambda x, decay: x, gradient=gradient)
def integrate(x, decay, y):
    """y[row, t] = decay · y[row, t-1] + x[row, t]."""
    value = 0.0
    for t in range(x.shape[1]):
        value = decay[()] * value + x[task(), t]
        y[task(), t] = value


def main(steps: int = 60) -> float:
    """Finds the decay with which data was made; returns it."""
    metaop.manual_seed(0)
    x = metaop.randn(32, 100)
    # Interpreted once, with all checks, on one row.
    integrate.check(x[:1], metaop.tensor(0.9))
    target = integrate(x, metaop.tensor(0.9))
    decay = metaop.tensor(0.5, requires_grad=True)
    optimizer = metaop.optim.Adam([decay], lr=0.02)
    for step in range(steps):
        loss = (integrate(x, decay) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: decay {decay.item():.3f}, loss {loss.item():.4f}")
    return decay.item()


if __name__ == "__main__":
    print(f"decay found: {main():.3f} (0.900 made the data)")
