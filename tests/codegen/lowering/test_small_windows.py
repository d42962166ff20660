"""Small windows are reduced for neighbouring results at once, when those lie close together."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.nn import functional as F


def _text(value: metaop.Tensor) -> str:
    return metaop.inspect.kernels(value)


def test_lanes_run_along_the_results_of_overlapping_windows() -> None:
    x = metaop.randn(2, 3, 20, 24)
    x.numpy()
    assert "vector for i3 < 24" in _text(F.avg_pool2d(x, 3, 1, 1))
    assert "vector for i3 < 12" in _text(F.max_pool2d(x, 3, 2, 1))


def test_lanes_run_along_rows_that_are_far_apart() -> None:
    x = metaop.randn(64, 10)
    x.numpy()
    assert "vector for i1 < 10" in _text(x.sum(1))


@pytest.mark.parametrize("size, stride", [(2, 1), (2, 2), (3, 1), (3, 2), (5, 3), (8, 1)])
@pytest.mark.parametrize("width", [9, 16, 31, 40])
def test_windows_of_all_strides(size: int, stride: int, width: int) -> None:
    values = np.random.default_rng(width).standard_normal((2, 3, 11, width)).astype(np.float32)
    shown = np.lib.stride_tricks.sliding_window_view(values, (size, size), (2, 3))
    shown = shown[:, :, ::stride, ::stride]
    x = metaop.from_numpy(values)
    found = F.max_pool2d(x, size, stride).numpy()
    assert np.array_equal(found, shown.max((4, 5)))
    mean = F.avg_pool2d(x, size, stride).numpy()
    assert np.allclose(mean, shown.astype(np.float64).mean((4, 5)), atol=1e-5)
