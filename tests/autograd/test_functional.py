"""Jacobians, hessians and products with vectors against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")


def flat(value: Any) -> list[float]:
    """All numbers in nested tuples of tensors."""
    if isinstance(value, (tuple, list)):
        return [number for item in value for number in flat(item)]
    return value.detach().numpy().ravel().tolist()


def run(lib: Any, name: str, several: bool) -> list[float]:
    rng = np.random.default_rng(0)
    x, y, v, w = (lib.tensor(rng.standard_normal(3)) for _ in range(4))
    module = lib.autograd.functional
    scalar = name in ("hessian", "vhp", "hvp")

    def one(a: Any) -> Any:
        return (a.exp() * a).sum() if scalar else a.exp() * a.sum()

    def two(a: Any, b: Any) -> Any:
        return (a * b.sin() * a).sum() if scalar else (a * b, (a * a.sum()) @ b)

    function, inputs = (two, (x, y)) if several else (one, x)
    if name in ("jacobian", "hessian"):
        return flat(getattr(module, name)(function, inputs))
    if name == "vjp":
        vector = (v, lib.tensor(0.5, dtype=lib.float64)) if several else v
    else:
        vector = (v, w) if several else v
    return flat(getattr(module, name)(function, inputs, vector))


@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "vhp", "hvp"])
@pytest.mark.parametrize("several", [False, True])
def test_against_pytorch(name: str, several: bool) -> None:
    np.testing.assert_allclose(
        run(metaop, name, several), run(torch, name, several), rtol=1e-10, atol=1e-12
    )


def test_batched_gradients() -> None:
    results = []
    for lib in (metaop, torch):
        x = lib.tensor([1.0, 2.0], dtype=lib.float64, requires_grad=True)
        rows = lib.eye(2, dtype=lib.float64)
        found = lib.autograd.grad(x.exp() * x, x, rows, is_grads_batched=True)
        results.append(flat(found))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)
