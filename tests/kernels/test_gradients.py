"""Declared gradients take part in backward like those of every other operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import GradientError
from metaop.kernels import Output, kernel, task


@kernel(tasks=lambda x, y, dy: x.shape[0], outputs=lambda x, y, dy: x)
def cube_gradient(x: Any, y: Any, dy: Any, dx: Any) -> None:
    dx[task()] = 3 * x[task()] * x[task()] * dy[task()]


@kernel(tasks=lambda x: x.shape[0], outputs=lambda x: x, gradient=cube_gradient)
def cube(x: Any, y: Any) -> None:
    y[task()] = x[task()] * x[task()] * x[task()]


@kernel(
    tasks=lambda x, w, power: x.shape[0],
    outputs=lambda x, w, power: [x, x],
    gradient=lambda inputs, outputs, cotangents: (
        cotangents[0] * inputs[1] - cotangents[1],
        cotangents[0] * inputs[0],
    ),
)
def product_and_negative(x: Any, w: Any, power: Any, y: Any, z: Any) -> None:
    y[task()] = x[task()] * w[task()]
    z[task()] = -x[task()]


def test_a_kernel_is_the_gradient() -> None:
    x = metaop.randn(50, requires_grad=True)
    (cube(x) * metaop.arange(50.0)).sum().backward()
    wanted = 3 * x.detach().numpy() ** 2 * np.arange(50.0)
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-5)


def test_a_function_is_the_gradient() -> None:
    x, w = (metaop.randn(20, requires_grad=True) for _ in range(2))
    y, z = product_and_negative(x, w, 3)
    (y + 2 * z).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), w.detach().numpy() - 2, rtol=1e-6)
    np.testing.assert_allclose(w.grad.numpy(), x.detach().numpy(), rtol=1e-6)


def test_finite_differences_and_second_derivatives() -> None:
    x, w = (metaop.randn(5, dtype=metaop.float64, requires_grad=True) for _ in range(2))
    assert metaop.autograd.gradcheck(lambda a, b: product_and_negative(a, b, 1), (x, w))
    assert metaop.autograd.gradgradcheck(lambda a, b: product_and_negative(a, b, 1), (x, w))


def test_changed_inputs_are_noticed() -> None:
    x = metaop.randn(5, requires_grad=True)
    copied = x * 1
    y = cube(copied)
    copied.add_(1)
    with pytest.raises(GradientError, match="inplace"):
        y.sum().backward()


@kernel(tasks=lambda x: x.shape[0], outputs=lambda x: x)
def without(x: Any, y: Any) -> None:
    y[task()] = x[task()]


def test_without_a_gradient_backward_is_an_error() -> None:
    x = metaop.ones(3, requires_grad=True)
    with pytest.raises(GradientError, match="without is a custom kernel without a gradient"):
        without(x).sum().backward()
    assert not without(x.detach()).requires_grad
    with metaop.no_grad():
        assert not without(x).requires_grad


def test_a_captured_training_step() -> None:
    x = metaop.randn(8)

    @metaop.jit
    def step(w: Any) -> Any:
        w = w.detach().requires_grad_()
        (slope,) = metaop.autograd.grad((cube(w) * x).sum(), w)
        return w.detach() - 0.01 * slope

    w = metaop.ones(8)
    wanted = np.ones(8)
    for _ in range(3):
        w = step(w)
        wanted = wanted - 0.03 * wanted**2 * x.numpy()
    np.testing.assert_allclose(w.numpy(), wanted, rtol=1e-5)


def test_code_has_a_gradient() -> None:
    x = metaop.randn(6, requires_grad=True)
    y = metaop.code(
        [x],
        Output(x.shape, x.dtype),
        tasks=6,
        python="out0[task()] = metaop.sin(in0[task()])",
        gradient=lambda inputs, outputs, cotangents: cotangents[0] * inputs[0].cos(),
    )
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.cos(x.detach().numpy()), rtol=1e-6)
