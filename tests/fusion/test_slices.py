"""Loops over slices of stacks: they read the stacks themselves, from the right rows on."""

import numpy as np
import pytest

import metaop
from metaop import Tensor, inspect


def running_sums(xs: Tensor, reverse: bool) -> Tensor:
    """The sums of rows so far, from a carried value that each step multiplies by a matrix."""
    w = metaop.eye(4, dtype=metaop.float64)

    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return carry @ w + x, carry @ w + x

    first = metaop.zeros(3, 4, dtype=metaop.float64)
    return metaop.scan(step, first, xs, reverse=reverse)[1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("start, end", [(0, 9), (0, 6), (2, 9), (3, 8), (4, 5)])
def test_rows_of_an_argument(start: int, end: int, reverse: bool) -> None:
    rows = np.random.default_rng(0).normal(size=(9, 3, 4))
    found = running_sums(metaop.from_numpy(rows)[start:end], reverse)
    expected = rows[start:end]
    expected = expected[::-1].cumsum(0)[::-1] if reverse else expected.cumsum(0)
    assert "map_reindex" not in inspect.kernels(found)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_of_another_loop(reverse: bool) -> None:
    rows = np.random.default_rng(1).normal(size=(9, 3, 4))
    found = running_sums(running_sums(metaop.from_numpy(rows), False)[1:7], reverse)
    expected = rows.cumsum(0)[1:7]
    expected = expected[::-1].cumsum(0)[::-1] if reverse else expected.cumsum(0)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
