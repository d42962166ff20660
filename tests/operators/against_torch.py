"""Running functions of metaop.nn.functional beside PyTorch's of the same name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metaop.nn import functional
from tests.helpers import check, check_derivatives


def compare(name: str, *inputs: Any, **options: Any) -> None:
    """Values, dtypes, shapes and gradients of `nn.functional.name` in metaop and PyTorch."""
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn.functional, name)
    check((getattr(functional, name), theirs), *inputs, **options)


def compare_derivatives(name: str, *inputs: np.ndarray, **options: Any) -> None:
    """First and second derivatives of `nn.functional.name` against finite differences."""
    check_derivatives(lambda *xs: getattr(functional, name)(*xs, **options), *inputs)


def draw(*shape: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Normally distributed numbers, different for every shape and seed."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)
