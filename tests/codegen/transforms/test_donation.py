"""Results take the memory of inputs that die with the run, and of no others."""

from __future__ import annotations

import numpy as np

import metaop
from metaop.codegen.memory import buffers
from metaop.nn import Parameter


def test_an_in_place_update_reuses_its_memory() -> None:
    tensor = metaop.ones(1000).clone() * 2
    address = tensor.buffer().address
    tensor.mul_(3.5)
    assert tensor.buffer().address == address
    np.testing.assert_array_equal(tensor.numpy(), np.full(1000, 7.0, np.float32))


def test_what_somebody_still_holds_is_not_overwritten() -> None:
    tensor = metaop.ones(1000).clone() * 2
    tensor.buffer()
    kept = tensor.detach().clone()
    array = tensor.numpy()
    other = tensor + 0.0
    tensor.mul_(3.5)
    tensor.buffer()
    np.testing.assert_array_equal(array, np.full(1000, 7.0, np.float32))  # it shows the tensor
    np.testing.assert_array_equal(kept.numpy(), np.full(1000, 2.0, np.float32))
    np.testing.assert_array_equal(other.numpy(), np.full(1000, 2.0, np.float32))


def test_arrays_of_the_user_are_left_alone() -> None:
    array = np.full(1000, 2.0, np.float32)
    tensor = metaop.from_numpy(array)
    result = tensor * 3.5
    del tensor
    np.testing.assert_array_equal(result.numpy(), np.full(1000, 7.0, np.float32))
    np.testing.assert_array_equal(array, np.full(1000, 2.0, np.float32))


def test_values_that_a_gradient_needs_survive() -> None:
    weight = Parameter(metaop.full((500,), 3.0))
    x = metaop.full((500,), 2.0) * 1.5
    x.buffer()
    y = weight * x
    total = y.sum()
    del x, y
    assert total.item() == 500 * 9.0
    total.backward()
    np.testing.assert_array_equal(weight.grad.numpy(), np.full(500, 3.0, np.float32))


def test_optimizer_steps_need_no_second_copy_of_the_parameters() -> None:
    weights = [Parameter(metaop.randn(256, 256)) for _ in range(8)]
    optimizer = metaop.optim.Adam(weights, lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss = sum((weight * weight).sum() for weight in weights)
        loss.backward()
        optimizer.step()

    for _ in range(3):
        step()
    before = buffers.host.used
    buffers.host.peak = before
    step()
    # Gradients are made; parameters and both states are updated where they are.
    assert buffers.host.peak - before < 2 * sum(weight.numel() * 4 for weight in weights)
    assert all(np.isfinite(weight.detach().numpy()).all() for weight in weights)


def test_indices_that_were_tested_before_do_not_forbid_it() -> None:
    table, weight = Parameter(metaop.randn(50, 64)), Parameter(metaop.randn(64, 64))
    optimizer = metaop.optim.SGD([table, weight], lr=0.1)
    tokens = metaop.arange(40).clone() % 50

    def step() -> None:
        loss = metaop.tanh(table[tokens].softmax(1) @ weight).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(3):
        step()
    tokens.buffer()
    address = weight.detach().buffer().address
    step()
    assert weight.detach().buffer().address == address
