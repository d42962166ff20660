"""The benchmark of the cost model: ranks, and that estimates meet the kernels that run."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cost_model import kernels_of, spearman
from benchmarks.workload import WORKLOADS


def test_correlation_is_that_of_ranks() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 1000, 1e9]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # Equal numbers share a rank: those of 3 are 2.5.
    ranks = [1, 2.5, 2.5, 4], [3, 1, 2, 4]
    expected = np.corrcoef(*ranks)[0, 1]
    assert spearman([1, 3, 3, 7], [30, 10, 20, 40]) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["MLP 784-512-256-10, batch 128, Adam"])
def test_every_kernel_of_a_step_has_an_estimate(name: str) -> None:
    found = kernels_of(WORKLOADS[name], steps=1)
    assert len(found.names) == len(found.estimated) == len(found.measured) > 5
    assert min(found.estimated) > 0 and min(found.measured) >= 0
