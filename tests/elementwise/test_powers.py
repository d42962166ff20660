"""Powers with small exponents: PyTorch's values, and no logarithm."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import metaop
from metaop.elementwise.meta_op import Elementwise, apply
from metaop.fusion.simplify import simplify
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import constant
from metaop.unified_graph.shape_env import ShapeEnv

EXPONENTS = [-2, -1, -0.5, 0.5, 1, 2, 3, 4]
SPECIAL = [-math.inf, -3.0, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf, math.nan, 1e-30, 1e30]


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_are_those_of_pytorch(exponent: float, dtype: str) -> None:
    found = (metaop.tensor(SPECIAL, dtype=getattr(metaop, dtype)) ** exponent).numpy()
    wanted = (torch.tensor(SPECIAL, dtype=getattr(torch, dtype)) ** exponent).numpy()
    np.testing.assert_allclose(found, wanted, rtol=3 * np.finfo(dtype).eps)
    is_number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[is_number], np.signbit(wanted)[is_number])


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers_and_their_gradients_need_no_logarithm(exponent: float) -> None:
    x = metaop.tensor([0.5, 1.5, 3.0], requires_grad=True)
    y = x**exponent
    assert "pow" not in metaop.inspect.kernels(y)
    y.sum().backward()
    assert "pow" not in metaop.inspect.kernels(x.grad)
    slope = exponent * np.array([0.5, 1.5, 3.0]) ** (exponent - 1)
    np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-6)


def test_powers_inside_of_operators_need_no_logarithm() -> None:
    x = metaop.ones(2, 3, 8, 8)
    assert "pow" not in metaop.inspect.kernels(metaop.nn.functional.lp_pool2d(x, 2, 2))
    assert metaop.inspect.kernels(metaop.linalg.vector_norm(x, 3)).count("pow(") == 1
    assert "log" not in metaop.inspect.kernels(metaop.arange(5) ** 3)


def test_another_exponent_does_not_make_small_ones_slow() -> None:
    """Numbers that differ between programs are variables of one: not these."""
    x = metaop.rand(50)
    for exponent in (2.5, 3, 2, 1.5):
        y = x**exponent
        assert ("pow" in metaop.inspect.kernels(y)) == (exponent % 1 != 0)
        np.testing.assert_allclose(y.numpy(), x.numpy() ** exponent, rtol=2e-6)


def test_a_constant_base_is_not_taken_for_the_exponent() -> None:
    exponent = ShapeEnv().real_symbol(3.5)
    (power,) = simplify([apply("pow", constant(2.0, dtypes.float64, (4,)), exponent)])
    assert isinstance(power.op, Elementwise) and power.op.function.name == "pow"
