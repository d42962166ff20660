"""Which values are stored because their readers would compute them again and again."""

from __future__ import annotations

import re

import numpy as np

import metaop
from metaop import inspect
from metaop.nn import functional
from metaop.tensor.core import Tensor


def _made(*shape: int) -> Tensor:
    numbers = np.random.default_rng(0).standard_normal(shape)
    return metaop.tensor(numbers, dtype=metaop.float32)


def _calls(function: str, value: Tensor) -> int:
    """How often kernels call a scalar function, which is no part of a kernel's name."""
    return len(re.findall(rf"(?<!_){function}\(", str(inspect.kernels(value))))


def test_steps_that_read_each_other_twice_are_stored() -> None:
    # Eight steps; all inlined into one another would be 255 calls, and two are 3.
    assert _calls("logaddexp", _made(4, 256).logcumsumexp(1)) <= 12


def test_a_stencil_over_an_expensive_value_computes_it_once() -> None:
    y = _made(32, 32).sigmoid()
    laplacian = y[1:-1, 1:-1] * 4 - y[2:, 1:-1] - y[:-2, 1:-1] - y[1:-1, 2:] - y[1:-1, :-2]
    assert _calls("sigmoid", laplacian) == 1


def test_one_more_read_and_chosen_pieces_are_computed_in_place() -> None:
    y = _made(32, 32).exp()
    for value in (y + y.T, functional.pad(y[None], (2, 2), mode="reflect")):
        assert str(inspect.kernels(value)).count("kernel ") == 1


def test_ranges_of_one_index_become_the_range_where_they_meet() -> None:
    x = _made(4, 64)
    shifted = x
    for width in (3, 5, -2):
        shifted = functional.pad(shifted, (width, -width))
    (condition,) = (
        line.split(" if ")[1] for line in str(inspect.kernels(shifted)).splitlines() if "if" in line
    )
    assert condition.count("<=") == 1
    padded = np.zeros((4, 64), np.float32)
    padded[:, 6:62] = x.numpy()[:, :56]
    np.testing.assert_array_equal(shifted.numpy(), padded)
