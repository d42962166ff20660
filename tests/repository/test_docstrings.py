"""Public functions and classes say what they do, with shapes or errors, and an example.

Examples are run; they find `metaop`, `nn` and `F`.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import metaop
from metaop import nn

MODULES = (
    "metaop",
    "metaop.amp",
    "metaop.autograd",
    "metaop.control_flow",
    "metaop.data",
    "metaop.distributed",
    "metaop.distributed.device_mesh",
    "metaop.distributed.nn.functional",
    "metaop.distributed.tensor",
    "metaop.distributed.tensor.parallel",
    "metaop.distributions",
    "metaop.fft",
    "metaop.func",
    "metaop.futures",
    "metaop.graph",
    "metaop.graph.nn",
    "metaop.linalg",
    "metaop.masked",
    "metaop.nn",
    "metaop.nn.attention.flex_attention",
    "metaop.nn.functional",
    "metaop.nn.grad",
    "metaop.nn.init",
    "metaop.nn.utils",
    "metaop.nn.utils.parametrizations",
    "metaop.nn.utils.parametrize",
    "metaop.nn.utils.prune",
    "metaop.nn.utils.rnn",
    "metaop.optim",
    "metaop.optim.lr_scheduler",
    "metaop.special",
    "metaop.signal.windows",
    "metaop.sparse",
    "metaop.testing",
    "metaop.utils.checkpoint",
    "metaop.utils.dlpack",
    "metaop.vision",
    "metaop.vision.io",
    "metaop.vision.ops",
    "metaop.vision.transforms",
    "metaop.vision.transforms.functional",
    "metaop.vision.utils",
)
# What gives texts, where no words about shapes are due.
TEXTS = ("metaop.inspect",)
# What `metaop` has and PyTorch has not, so that `from metaop import *` leaves it out.
OWN = (
    *("code", "fetch", "iterate", "jit", "kernel", "load_program", "mark_dynamic", "mark_static"),
    *("memory_budget", "placement", "profile"),
)
# A word about shapes, units or errors.
LIMITS = re.compile(
    r"\b[Ss]hapes?\b|\bsizes?\b|\bdimensions?\b|\bextents?\b|\blengths?\b|\bRaises\b|\braises\b|Error\b|"
    r"\b(?:milli)?seconds?\b|\bbytes\b|\b[Rr]adians\b|\((?:[A-Z*…]|\w+(?=, …))(?:, [\w'* ]+|, …)+\)"
)


# What a function gives that has no shape.
FACTS = ("None", "bool", "int", "str", "DType", "Device", "Generator", "Graph", "type")
# What examples take besides metaop.
NEEDS = {
    "metaop.distributed": "mpi4py",
    "metaop.distributed.device_mesh": "mpi4py",
    "metaop.distributed.nn.functional": "mpi4py",
    "metaop.distributed.tensor": "mpi4py",
    "metaop.distributed.tensor.parallel": "mpi4py",
    "metaop.graph": "networkx",
    "metaop.vision.io": "PIL",
    "metaop.vision.transforms": "PIL",
    "metaop.vision.transforms.functional": "PIL",
    "metaop.vision.utils": "PIL",
}


def members(module: ModuleType) -> dict[str, Any]:
    """The functions and classes that a module lists, else those that it defines."""
    names = getattr(module, "__all__", [])
    place = "metaop" if names else module.__name__
    names = [*names, *OWN] if module is metaop else names or dir(module)
    found = {name: getattr(module, name) for name in names if name[0] != "_"}
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
    """Whether a function gives a setting, a truth value, a number, a name: what has no shape."""
    given = getattr(value, "__annotations__", {}).get("return", "Any")
    return not inspect.isclass(value) and str(given).rpartition(".")[2] in FACTS


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_are_complete(name: str) -> None:
    found = members(importlib.import_module(name))
    assert not sorted(key for key, value in found.items() if not is_complete(value))


def faults(name: str) -> list[str]:
    """What examples of a module print otherwise than they say, and which names have none."""
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    names = {"metaop": metaop, "nn": nn, "F": nn.functional}
    found: list[str] = []
    for key, value in members(importlib.import_module(name)).items():
        tests = finder.find(value, key, globs=dict(names))
        if not sum(runner.run(test, out=found.append).attempted for test in tests):
            found.append(f"{key} has no example\n")
    return found


@pytest.mark.parametrize("name", [*MODULES, *TEXTS])
def test_examples_in_docstrings_say_what_they_print(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    if not name.startswith("metaop.distributed"):
        found = "".join(faults(name))
    else:
        # MPI begins in a process of its own: other tests start jobs from this one.
        code = f"from {__name__} import faults; print(*faults({name!r}), sep='')"
        command = [sys.executable, "-c", code]
        process = subprocess.run(command, capture_output=True, text=True, timeout=300)
        found = process.stdout.strip() + (process.stderr if process.returncode else "")
    assert not found, found
