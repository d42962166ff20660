"""Public functions and classes say what they do, with shapes or errors, and an example.

Examples are run; they find `metaop`, `nn` and `F`.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from types import ModuleType
from typing import Any

import pytest

import metaop
from metaop import nn

MODULES = (
    "metaop",
    "metaop.amp",
    "metaop.data",
    "metaop.fft",
    "metaop.func",
    "metaop.linalg",
    "metaop.nn",
    "metaop.nn.functional",
    "metaop.nn.init",
    "metaop.optim",
    "metaop.optim.lr_scheduler",
)
# A word about shapes, units or errors.
LIMITS = re.compile(
    r"\bshapes?\b|\bsizes?\b|\bdimensions?\b|\bextents?\b|\blength\b|\bRaises\b|\braises\b|Error\b|"
    r"\bseconds?\b|\bbytes\b|\b[Rr]adians\b|\([A-Z*…](?:, [\w'* ]+|, …)+\)"
)


FACTS = ("None", "bool", "int", "str", "DType", "Device", "Generator")


def members(module: ModuleType) -> dict[str, Any]:
    """The functions and classes that a module lists, else those that it defines."""
    names = getattr(module, "__all__", None)
    place = "metaop" if names else module.__name__
    found = {name: getattr(module, name) for name in names or dir(module) if name[0] != "_"}
    return {
        name: value
        for name, value in found.items()
        if (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith(place)
    }


def is_complete(value: Any) -> bool:
    text = value.__doc__ or ""
    has_limits = LIMITS.search(text) or tells_a_fact(value)
    return bool(">>>" in text and has_limits and text.split("\n")[0].endswith("."))


def tells_a_fact(value: Any) -> bool:
    """Whether a function gives what has no shape: a setting, a truth value, a number, a name."""
    given = getattr(value, "__annotations__", {}).get("return", "Any")
    return not inspect.isclass(value) and str(given).rpartition(".")[2] in FACTS


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_are_complete(name: str) -> None:
    found = members(importlib.import_module(name))
    assert not sorted(key for key, value in found.items() if not is_complete(value))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_say_what_they_print(name: str) -> None:
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    names = {"metaop": metaop, "nn": nn, "F": nn.functional}
    without = []
    wrong: list[str] = []
    for key, value in members(importlib.import_module(name)).items():
        tests = finder.find(value, key, globs=dict(names))
        if not sum(runner.run(test, out=wrong.append).attempted for test in tests):
            without.append(key)
    assert not wrong, "".join(wrong)
    assert not without
