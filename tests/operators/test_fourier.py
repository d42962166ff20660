"""Transforms of real signals: PyTorch's values, and gradients of both orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import metaop
from metaop.errors import ShapeError


@pytest.mark.parametrize("n", [None, 5, 12])
@pytest.mark.parametrize("dim", [-1, 0, 1])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_real_transforms_are_those_of_torch(n: int | None, dim: int, norm: str | None) -> None:
    x = np.random.default_rng(0).standard_normal((4, 7, 6))

    def results(library: Any) -> list[np.ndarray]:
        tensor = library.from_numpy(x.copy()).requires_grad_()
        found = library.fft.rfft(tensor, n=n, dim=dim, norm=norm)
        loss = (found.abs() ** 3).sum()
        (slope,) = library.autograd.grad(loss, tensor, create_graph=True)
        (bend,) = library.autograd.grad((slope**2).sum(), tensor)
        parts = library.view_as_real(found), slope, bend
        return [part.detach().numpy() for part in parts]

    for own, other in zip(results(metaop), results(torch)):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9)


def test_kinds_and_sizes_of_real_transforms() -> None:
    x = np.random.default_rng(1).standard_normal(9).astype(np.float32)
    found = metaop.fft.rfft(metaop.from_numpy(x))
    assert found.dtype == metaop.complex64 and found.shape == (5,)
    np.testing.assert_allclose(found.numpy(), np.fft.rfft(x), rtol=1e-5, atol=1e-5)
    assert metaop.fft.rfft(metaop.arange(4)).dtype == metaop.complex64
    with pytest.raises(ShapeError, match="Invalid number of data points"):
        metaop.fft.rfft(metaop.from_numpy(x), n=0)
