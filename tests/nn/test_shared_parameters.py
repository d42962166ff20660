"""Parameters in the memory of other tensors, as `Parameter(tensor)` makes them, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

STARTS = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def same(run: Any) -> None:
    expected, actual = run(torch), run(metaop)
    assert len(expected) == len(actual)
    for one, other in zip(expected, actual):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def test_writes_are_seen_by_both() -> None:
    def run(lib: Any) -> list[Any]:
        tensor, found = lib.tensor(STARTS), []
        parameter = lib.nn.Parameter(tensor)
        parameter.data.fill_(3)
        found.append(tensor.tolist())
        tensor[1] = 5
        found.append(parameter.tolist())
        with lib.no_grad():
            parameter.mul_(2)
        found.append(tensor.tolist())
        other = lib.nn.Parameter(parameter.detach())
        tensor.view(-1)[0] = -1
        found += [parameter.tolist(), other.tolist()]
        (parameter * other).sum().backward()
        return [*found, parameter.grad.tolist(), other.grad.tolist()]

    same(run)


def test_a_parameter_of_a_result_is_a_leaf_of_its_own() -> None:
    def run(lib: Any) -> list[Any]:
        source = lib.tensor(STARTS).requires_grad_()
        parameter = lib.nn.Parameter(source * 2)
        parameter.square().sum().backward()
        assert source.grad is None and parameter.is_leaf
        return [parameter.grad.tolist()]

    same(run)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"foreach": False}], ids=str)
def test_optimizers_update_shared_memory_once_for_each_parameter(options: dict[str, Any]) -> None:
    def run(lib: Any) -> list[Any]:
        first = lib.nn.Parameter(lib.tensor(STARTS))
        second, apart = lib.nn.Parameter(first.data), lib.nn.Parameter(lib.tensor(STARTS))
        optimizer = lib.optim.SGD([first, apart, second], lr=0.1, **options)
        losses = []
        for _ in range(3):
            loss = (first - 1).square().sum() + (second + 2 * apart).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return [losses, first.tolist(), second.tolist(), apart.tolist()]

    same(run)


def test_nothing_is_shared_with_a_tensor_that_is_gone() -> None:
    parameter = metaop.nn.Parameter(metaop.ones(3))
    assert parameter.call is parameter._call and parameter._cell is None
