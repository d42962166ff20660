"""The examples run and find what they look for."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # where dataclasses look for the names of annotations
    specification.loader.exec_module(module)
    return module


def test_linear_regression() -> None:
    slope, intercept = load("linear_regression").main(steps=1000)
    assert abs(slope - 3) < 0.05 and abs(intercept + 1) < 0.05


def test_custom_function() -> None:
    assert load("custom_function").main() == [0, 4, -6]


def test_custom_kernel() -> None:
    assert abs(load("custom_kernel").main() - 0.9) < 0.02


def test_digits() -> None:
    pytest.importorskip("sklearn")
    assert load("digits_mlp").main() > 0.95


def test_text_generation() -> None:
    example = load("text_generation")
    text = example.main()
    assert len(text) == 43
    assert all(text[k : k + 4] in example.TEXT for k in range(len(text) - 3))


def test_every_example_has_a_test() -> None:
    source = Path(__file__).read_text()
    for path in FOLDER.glob("*.py"):
        assert f'load("{path.stem}")' in source


def test_three_families_agree_with_numpy() -> None:
    small = load("three_families")
    random = np.random.default_rng(0)
    x, w, b = (small.Node("input", shape) for shape in [(5, 3), (3, 4), (4,)])
    loss = small.total(small.tanh(x @ w + b) * small.tanh(x @ w + b))
    slopes = small.gradients(loss, [x, w, b])
    program = small.Program([loss, *slopes], [x, w, b])
    values = [random.normal(size=node.shape) for node in (x, w, b)]
    hidden = np.tanh(values[0] @ values[1] + values[2])
    at_sum = 2 * hidden * (1 - hidden**2)
    expected = [(hidden**2).sum(), at_sum @ values[1].T, values[0].T @ at_sum, at_sum.sum(0)]
    for one, other in zip(program(*values), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_three_families_have_gradients_of_gradients_and_convolutions() -> None:
    small = load("three_families")
    random = np.random.default_rng(1)
    x, w = small.Node("input", (9,)), small.Node("input", (3,))
    loss = small.total(small.exp(small.convolution(x, w)))
    (by_w,) = small.gradients(loss, [w])
    (of_norm,) = small.gradients(small.total(by_w * by_w), [x])
    program = small.Program([loss, by_w, of_norm], [x, w])
    values = [random.normal(size=node.shape) for node in (x, w)]

    def norm(at: np.ndarray) -> float:
        windows = np.lib.stride_tricks.sliding_window_view(at, 3)
        return ((np.exp(windows @ values[1]) @ windows) ** 2).sum()

    windows = np.lib.stride_tricks.sliding_window_view(values[0], 3)
    results = program(*values)
    np.testing.assert_allclose(results[0], np.exp(windows @ values[1]).sum(), rtol=1e-12)
    np.testing.assert_allclose(results[1], np.exp(windows @ values[1]) @ windows, rtol=1e-12)
    step = 1e-6 * np.eye(9)
    slopes = [(norm(values[0] + one) - norm(values[0] - one)) / 2e-6 for one in step]
    np.testing.assert_allclose(results[2], slopes, rtol=1e-6, atol=1e-6)


def test_three_families_fuse_and_learn() -> None:
    small = load("three_families")
    a, b = small.Node("input", (4, 6)), small.Node("input", (6, 5))
    program = small.Program([small.tanh(a @ b)], [a, b])
    assert len(program.kernels) == 2, "the products are summed where they are made"
    with pytest.raises(ValueError, match="expected the shapes"):
        program(np.ones((4, 6)), np.ones((5, 6)))
    first, last = small.main()
    assert last < first / 4
