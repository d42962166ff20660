"""How many public functions and classes say what they do, with shapes or errors, and an example.

The count of each module may only go up. Examples are run; they find `metaop`, `nn` and `F`.
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

# Those that are complete. Raise a number when you complete more; it never goes down.
COMPLETE = {
    "metaop.data": 18,
    "metaop.nn": 93,
    "metaop.optim": 12,
    "metaop.optim.lr_scheduler": 10,
}
# A word about shapes, units or errors.
LIMITS = re.compile(
    r"\bshapes?\b|\bsizes?\b|\bdimensions?\b|\blength\b|\bRaises\b|\braises\b|Error\b|"
    r"\bseconds?\b|\bbytes\b|\([A-Z*](?:, [\w'*]+|, …)+\)"
)


def members(module: ModuleType) -> dict[str, Any]:
    """The functions and classes that a module offers."""
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    found = {name: getattr(module, name) for name in names}
    return {
        name: value
        for name, value in found.items()
        if (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith(module.__name__)
    }


def is_complete(value: Any) -> bool:
    text = value.__doc__ or ""
    return bool(">>>" in text and LIMITS.search(text) and text.split("\n")[0].endswith("."))


@pytest.mark.parametrize("name", COMPLETE)
def test_complete_docstrings_only_become_more(name: str) -> None:
    found = members(importlib.import_module(name))
    complete = sorted(key for key, value in found.items() if is_complete(value))
    assert len(complete) == COMPLETE[name], (
        f"{name} has {len(complete)} complete docstrings of {len(found)}, not {COMPLETE[name]}: "
        "complete what was lost, or raise the number"
    )


@pytest.mark.parametrize("name", COMPLETE)
def test_examples_in_docstrings_say_what_they_print(name: str) -> None:
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    names = {"metaop": metaop, "nn": nn, "F": nn.functional}
    tried = 0
    wrong: list[str] = []
    for key, value in members(importlib.import_module(name)).items():
        for test in finder.find(value, key, globs=dict(names)):
            tried += runner.run(test, out=wrong.append).attempted
    assert not wrong, "".join(wrong)
    assert tried >= COMPLETE[name]
