"""Random chains of operators whose sizes and other numbers change from call to call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import metaop

# Takes the framework, its functions, a matrix, and two numbers between 0 and 1.
Operator = Callable[[Any, Any, Any, float, float], Any]

COUNT = int(os.environ.get("METAOP_FUZZ_COUNT", "100"))
CALLS = 5
OPERATORS: list[Operator] = [
    lambda T, F, x, p, q: F.leaky_relu(x, p),
    lambda T, F, x, p, q: F.elu(x, p + 0.5),
    lambda T, F, x, p, q: F.threshold(x, p - 0.5, q),
    lambda T, F, x, p, q: F.hardtanh(x, -p, q + 0.1),
    lambda T, F, x, p, q: x * p + q,
    lambda T, F, x, p, q: (x * x + 0.1) ** (p + 0.5),
    lambda T, F, x, p, q: x.clamp(-p, q),
    lambda T, F, x, p, q: F.layer_norm(x, x.shape[1:], eps=p / 10 + 1e-3),
    lambda T, F, x, p, q: x.roll(int(p * 5) + 2, 0),
    lambda T, F, x, p, q: F.pad(x, (int(p * 4) + 2, int(q * 4) + 2), value=p),
    lambda T, F, x, p, q: x[int(p * 2) :],
    lambda T, F, x, p, q: x.softmax(1),
    lambda T, F, x, p, q: T.cat([x, x * p], 0),
    lambda T, F, x, p, q: x @ x.t() @ x * 0.05,
    lambda T, F, x, p, q: x.cumsum(0) * q,
    lambda T, F, x, p, q: F.softshrink(x, p),
    lambda T, F, x, p, q: T.lerp(x, x * 2, p),
    lambda T, F, x, p, q: x / (x.norm() + p),
    lambda T, F, x, p, q: x - x.mean(0, keepdim=True) * p,
    lambda T, F, x, p, q: T.where(x > p, x, x * q),
]


def run(T: Any, chain: list[Operator], x: Any, numbers: np.ndarray) -> list[Any]:
    result, x.grad = x, None
    for operator, (p, q) in zip(chain, numbers.tolist()):
        result = operator(T, T.nn.functional, result, p, q)
    result.sin().sum().backward()
    return [result.detach(), x.grad]


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_chain_with_ever_new_numbers(seed: int) -> None:
    draw = np.random.default_rng(seed)
    chain = [OPERATORS[k] for k in draw.integers(0, len(OPERATORS), draw.integers(1, 6))]
    is_captured, has_one_size = draw.random(2) < 0.5
    shape = (7, 9)
    for _ in range(CALLS):
        shape = shape if has_one_size else draw.integers(4, 14, 2)
        values = draw.standard_normal(shape)
        numbers = draw.random((len(chain), 2)) * 0.98 + 0.01
        exact, theirs = (
            run(torch, chain, torch.tensor(values, dtype=dtype, requires_grad=True), numbers)
            for dtype in (torch.float64, torch.float32)
        )
        x = metaop.tensor(values, dtype=metaop.float32, requires_grad=True)

        def step(x: Any, numbers: np.ndarray = numbers) -> list[Any]:
            return run(metaop, chain, x, numbers)

        function = metaop.jit(step) if is_captured else step
        for _ in range(3 if is_captured else 1):
            ours = function(x)
        for mine, other, true in zip(ours, theirs, exact, strict=True):
            scale = max(1.0, true.abs().max().item())
            rounding = (other - true).abs().max().item() / scale
            error = np.abs(mine.numpy() - true.numpy()).max() / scale
            assert error < 1e-4 + 20 * rounding
