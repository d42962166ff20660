"""Which values share a kernel."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop import inspect


def kernels_of(*results: metaop.Tensor) -> int:
    return inspect.kernels(*results).count("kernel map")


def values(elements: int) -> metaop.Tensor:
    return metaop.from_numpy(np.random.default_rng(0).random(elements, np.float32))


@pytest.mark.parametrize(("elements", "kernels"), [(1 << 20, 3), (100, 1)])
def test_large_arrays_share_no_kernel_because_of_a_scalar(elements: int, kernels: int) -> None:
    rate = metaop.from_numpy(np.array(0.5, np.float32))
    assert kernels_of(*(values(elements) * rate for _ in range(3))) == kernels


def test_readers_of_one_array_share_a_kernel() -> None:
    array = values(1 << 20)
    assert kernels_of(array * 2, array + 1, array.sin()) == 1
