"""Values that are read between layers and then forgotten: the gradient still needs some of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import metaop

# Most of these have a gradient that reads the result, and some of them nothing else.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "tanh": lambda F, x: x.tanh(),
    "sigmoid": lambda F, x: x.sigmoid(),
    "relu": lambda F, x: x.relu(),
    "exp": lambda F, x: x.exp(),
    "sqrt": lambda F, x: (x * x + 1).sqrt(),
    "reciprocal": lambda F, x: (x * x + 1).reciprocal(),
    "rsqrt": lambda F, x: (x * x + 1).rsqrt(),
    "softplus": lambda F, x: F.softplus(x),
    "logsigmoid": lambda F, x: F.logsigmoid(x),
    "elu": lambda F, x: F.elu(x),
    "softmax": lambda F, x: F.softmax(x, -1),
    "log_softmax": lambda F, x: F.log_softmax(x, -1),
    "maximum": lambda F, x: x + x.max(-1, keepdim=True)[0],
    "sorted": lambda F, x: x.sort(-1)[0],
    "deviation": lambda F, x: x - x.std(-1, keepdim=True),
    "flat": lambda F, x: x.flatten().view(x.shape),
}
READS: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: x.sum().item(),
    "numpy": lambda x: x.detach().numpy().copy(),
    "list": lambda x: x.tolist(),
}


def gradients(T: Any, layers: list[str], read: str | None, steps: int) -> list[np.ndarray]:
    """Gradients of a weight after each step; only the last value outlives the forward pass."""
    F = T.nn.functional
    w = T.tensor(np.linspace(-1.2, 1.3, 20, dtype=np.float32).reshape(4, 5), requires_grad=True)
    found = []
    for step in range(steps):
        w.grad = None
        x = T.tensor(np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4) + step) @ w
        for layer in layers:
            x = FUNCTIONS[layer](F, x)
            if read is not None:
                READS[read](x)
        (x * x).mean().backward()
        found.append(np.array(w.grad.tolist()))
    return found


@pytest.mark.parametrize("first", FUNCTIONS)
def test_a_function_after_a_value_that_was_read(first: str) -> None:
    for second, read in itertools.product(FUNCTIONS, READS):
        wanted = gradients(torch, [first, second], None, 1)
        np.testing.assert_allclose(
            gradients(metaop, [first, second], read, 1), wanted, rtol=2e-4, atol=2e-6
        )


@pytest.mark.parametrize("read", READS)
def test_chains_of_values_that_were_read(read: str) -> None:
    random = np.random.default_rng(0)
    for _ in range(12):
        layers = list(random.choice(list(FUNCTIONS), 5))
        wanted = gradients(torch, layers, None, 3)
        found = gradients(metaop, layers, read, 3)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5, err_msg=str(layers))


def after_reads(T: Any, times: int) -> list[np.ndarray]:
    """Gradients and statistics of a norm whose gradient by user code reads what was not kept."""

    class Tanh(T.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.tanh()
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            x, y = ctx.saved_tensors
            return gradient * (1 - y * y) + 0.01 * gradient * x

    norm, weight = T.nn.BatchNorm1d(5), T.ones(5, requires_grad=True)
    found = []
    for step in range(3):
        x = T.tensor(np.linspace(-1, 2, 20, dtype=np.float32).reshape(4, 5) ** 2 + step)
        total = 0.0
        for _ in range(times):
            y = (Tanh.apply(norm(x) * weight) * weight).relu()
            y.detach().clone().tolist()
            total = total + y.square().sum() + Tanh.apply(norm(x * 0.5)).sum()
        total.backward()
        found += [np.array(one.tolist()) for one in (weight.grad, norm.weight.grad)]
    return [*found, np.array(norm.running_mean.tolist()), np.array(norm.running_var.tolist())]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_statistics_that_were_replaced_before_a_layer_runs_again(times: int) -> None:
    for actual, wanted in zip(after_reads(metaop, times), after_reads(torch, times)):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
