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


def test_gradients_of_steps_are_stored_where_they_are_read_at_two_places() -> None:
    # The gradient of each of six steps is read by two products, of which one is shifted.
    x = _made(32, 64).requires_grad_()
    (gradient,) = metaop.autograd.grad(x.cumprod(1).sum(), x)
    # All inlined into one another would be 127 multiplications.
    assert _calls("mul", gradient) <= 40


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


def test_short_pieces_with_functions_of_their_own_are_computed_apart() -> None:
    x = _made(70, 3)
    parts = [x, *(f(x * 2.0**k) for k in range(3) for f in (metaop.sin, metaop.cos))]
    whole = metaop.cat(parts, -1)
    text = str(inspect.kernels(metaop.cat([whole, whole * 3.0], 0)))
    assert "where(" not in text and text.count("sin(") == text.count("cos(") == 3
    angles = [x.numpy() * np.float32(2.0) ** k for k in range(3)]
    wanted = [x.numpy(), *(f(angle) for angle in angles for f in (np.sin, np.cos))]
    np.testing.assert_allclose(whole.numpy(), np.concatenate(wanted, -1), rtol=1e-6, atol=1e-6)


def test_short_pieces_that_cost_little_or_the_same_are_chosen_lane_by_lane() -> None:
    x = _made(70, 3)
    cheap = metaop.cat([x * float(k) for k in range(7)], -1)
    shared = metaop.cat([x + float(k) for k in range(7)], -1).sin().cos().exp().tanh()
    for value in (cheap, shared):
        assert "where(" in str(inspect.kernels(value))


def test_large_images_are_padded_by_launches_that_choose_nothing() -> None:
    x = _made(4, 16, 48, 48)
    for mode in ("reflect", "replicate", "circular"):
        padded = functional.pad(x, (2, 2, 2, 2), mode=mode)
        text = str(inspect.kernels(padded))
        assert "where(" not in text and " if " not in text and text.count("kernel ") <= 4
        modes = {"replicate": "edge", "circular": "wrap"}
        widths = ((0, 0), (0, 0), (2, 2), (2, 2))
        wanted = np.pad(x.numpy(), widths, mode=modes.get(mode, mode))  # type: ignore[call-overload]
        np.testing.assert_array_equal(padded.numpy(), wanted)
