"""`swap_tensors`, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

LIBRARIES = pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])


@LIBRARIES
def test_everything_is_exchanged(lib: Any) -> None:
    parameter, plain = lib.nn.Parameter(lib.ones(2)), lib.zeros(3)
    plain.note, parameter.grad = "attached", lib.ones(2) * 5
    lib.utils.swap_tensors(parameter, plain)
    assert type(parameter) is lib.Tensor and type(plain) is lib.nn.Parameter
    assert parameter.tolist() == [0, 0, 0] and plain.tolist() == [1, 1]
    assert plain.requires_grad and not parameter.requires_grad
    assert parameter.note == "attached" and not hasattr(plain, "note")
    assert plain.grad.tolist() == [5, 5] and parameter.grad is None


@LIBRARIES
def test_training_goes_on(lib: Any) -> None:
    layer = lib.nn.Linear(2, 1, bias=False)
    weight = layer.weight
    lib.utils.swap_tensors(weight, lib.nn.Parameter(lib.ones(1, 2) * 3))
    assert layer.weight is weight
    optimizer = lib.optim.SGD(layer.parameters(), lr=1.0)
    for _ in range(2):
        optimizer.zero_grad()
        layer(lib.tensor([[1.0, 2.0]])).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(weight.tolist(), [[1, -1]])


@LIBRARIES
def test_results_keep_their_history(lib: Any) -> None:
    leaf = lib.ones(2, requires_grad=True)
    result, other = leaf * 2, lib.zeros(3)
    lib.utils.swap_tensors(result, other)
    assert result.tolist() == [0, 0, 0] and not result.requires_grad
    (other * 3).sum().backward()
    assert leaf.grad.tolist() == [6, 6]
    lib.utils.swap_tensors(other, other)
    assert other.tolist() == [2, 2]


def test_gradients_of_earlier_results() -> None:
    """PyTorch refuses this backward pass."""
    leaf, other = metaop.ones(2, requires_grad=True), metaop.zeros(3)
    middle = leaf * 2
    middle.retain_grad()
    total, moved = middle.sum(), metaop.zeros(1)
    metaop.utils.swap_tensors(leaf, other)
    metaop.utils.swap_tensors(middle, moved)
    total.backward()
    assert other.grad is not None and other.grad.tolist() == [2, 2] and leaf.grad is None
    assert moved.grad is not None and moved.grad.tolist() == [1, 1]


@LIBRARIES
def test_other_things(lib: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        lib.utils.swap_tensors(lib.ones(1), 3)
