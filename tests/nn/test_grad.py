"""The gradients of convolutions as functions, against PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

IMAGE, KERNEL = 7, 3
OPTIONS = [{}, {"stride": 2, "padding": 1, "dilation": 1, "groups": 2}, {"dilation": 2}]


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def tensors(library: Any, arrays: Sequence[np.ndarray]) -> list[Any]:
    return [library.tensor(array).requires_grad_() for array in arrays]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("by", ["input", "weight"])
def test_gradients_of_convolutions(by: str, rank: int, options: dict[str, Any]) -> None:
    image = drawn(0, 2, 4, *[IMAGE] * rank)
    kernel = drawn(1, 6, 4 // options.get("groups", 1), *[KERNEL] * rank)
    shape = getattr(torch.nn.functional, f"conv{rank}d")(
        torch.tensor(image), torch.tensor(kernel), **options
    ).shape
    given, size = (kernel, image.shape) if by == "input" else (image, kernel.shape)
    results = []
    for library in (torch, metaop):
        tensor, cotangent = tensors(library, [given, drawn(2, *shape)])
        arguments = (size, tensor) if by == "input" else (tensor, size)
        function = getattr(library.nn.grad, f"conv{rank}d_{by}")
        found = function(*arguments, cotangent, **options)
        assert found.requires_grad
        # They are differentiable themselves.
        found.square().sum().backward()
        results.append([found.detach().numpy(), tensor.grad.numpy(), cotangent.grad.numpy()])
        with library.no_grad():
            assert not function(*arguments, cotangent, **options).requires_grad
    for expected, actual in zip(*results):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_windows_that_change_their_size(groups: int) -> None:
    """No axis is left over whose size is a quotient of sizes."""
    for window in (3, 5, 7, 2):
        image, cotangent = drawn(0, 2, 4, 12, 12), drawn(1, 2, 4, 15 - window, 15 - window)
        size = (4, 4 // groups, window, window)
        wanted, found = (
            library.nn.grad.conv2d_weight(
                library.tensor(image), size, library.tensor(cotangent), padding=1, groups=groups
            )
            for library in (torch, metaop)
        )
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-10, atol=1e-10)


def test_nothing_requires_a_gradient() -> None:
    found = metaop.nn.grad.conv1d_input((1, 1, 4), metaop.ones(1, 1, 2), metaop.ones(1, 1, 3))
    assert not found.requires_grad
