"""Sizes that a program announces: dynamic ones compile once, static ones once for each value."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.execution import executor, specialisation

LENGTHS = (5, 9, 6, 30, 17)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that are made, in a process that has none yet."""
    kinds: list[str] = []

    def counting(name):
        made = getattr(specialisation, name)
        return lambda *arguments: kinds.append(name) or made(*arguments)

    for name in ("compile_subgraph", "compile_generally"):
        monkeypatch.setattr(specialisation, name, counting(name))
    executor.clear_programs()
    return kinds


def _step(x: metaop.Tensor, weight: metaop.Tensor) -> metaop.Tensor:
    return ((x @ weight).tanh() / x.shape[0]).sum(0)


def _run(length: int, width: int = 8, mark=None, function=_step) -> None:
    numbers = np.random.default_rng(length)
    values, weights = numbers.normal(size=(length, width)), numbers.normal(size=(width, 3))
    x, weight = metaop.tensor(values), metaop.tensor(weights)
    if mark is not None:
        mark(x)
    wanted = (np.tanh(values @ weights) / length).sum(0)
    np.testing.assert_allclose(function(x, weight).numpy(), wanted, rtol=1e-9)


def test_the_second_size_compiles_nothing(made: list[str]) -> None:
    for length in LENGTHS:
        _run(length, mark=lambda x: metaop.mark_dynamic(x, 0))
    assert made == ["compile_generally"]


def test_nor_does_it_in_a_captured_function(made: list[str]) -> None:
    captured = metaop.jit(_step)
    for length in LENGTHS:
        _run(length, mark=lambda x: metaop.mark_dynamic(x, -2), function=captured)
    assert made == ["compile_generally"]


def test_sizes_that_are_equal_by_chance_vary_apart(made: list[str]) -> None:
    """The length is the width at first; only the former is marked."""
    for length in (8, 5, 16):
        _run(length, mark=lambda x: metaop.mark_dynamic(x, 0))
    assert made == ["compile_generally"]


def test_without_marks_the_first_size_has_a_program_of_its_own(made: list[str]) -> None:
    for length in LENGTHS:
        _run(length)
    assert made == ["compile_subgraph", "compile_generally"]


def test_a_static_size_has_a_program_for_each_value(made: list[str]) -> None:
    for length, width in ((5, 8), (9, 8), (6, 4), (30, 4), (7, 8)):
        _run(length, width, mark=lambda x: (metaop.mark_dynamic(x, 0), metaop.mark_static(x, 1)))
    assert made == ["compile_generally"] * 2
    made.clear()
    for length in LENGTHS[:3]:
        _run(length, 16, mark=metaop.mark_static)
    assert len(made) == 3


def test_gradients_and_optimizers_of_marked_sizes(made: list[str]) -> None:
    model = metaop.nn.Linear(8, 3)
    optimizer = metaop.optim.Adam(model.parameters())
    for length in LENGTHS:
        x = metaop.randn(length, 8)
        metaop.mark_dynamic(x, 0)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        assert np.isfinite(model.weight.detach().numpy()).all()
    # The numbers are drawn apart, and the first step makes the optimizer's state.
    assert made.count("compile_generally") <= 3


def test_refusals() -> None:
    with pytest.raises(IndexError, match="out of range"):
        metaop.mark_dynamic(metaop.ones(2, 3), 2)
    with pytest.raises(TypeError, match="expected a tensor"):
        metaop.mark_static(5, 0)
