"""The examples run and find what they look for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
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
