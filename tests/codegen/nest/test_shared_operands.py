"""Kernels of nests that differ only in which expression is used again."""

from __future__ import annotations

import numpy as np

import metaop
from metaop.execution.executor import realize


def test_an_expression_and_its_first_operand_are_told_apart() -> None:
    values = np.random.default_rng(0).standard_normal((4, 6))
    x = metaop.tensor(values)
    scaled, result = x * 1.5, (x * 1.25).sin()
    realize(scaled.call, result.call)
    np.testing.assert_allclose(result.numpy(), np.sin(values * 1.25), rtol=1e-12)
    scaled = x * 1.5
    result = (scaled * 1.25).sin()
    realize(scaled.call, result.call)
    np.testing.assert_allclose(result.numpy(), np.sin(values * 1.5 * 1.25), rtol=1e-12)
