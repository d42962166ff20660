"""Questions about packages, for programs that ask with names known only when they run.

The converter calls these in place of `importlib`'s: `find_spec("torch")` tells of metaop, and so
on for every package that is converted. Other names are answered as Python answers them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from importlib.machinery import ModuleSpec
from types import ModuleType

from metaop import version as _version
from metaop.convert.catalogue import is_foreign, lookup
from metaop.convert.tables import FOLLOWED, NEEDED


def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
    """`importlib.util.find_spec` of what a name is in metaop; None where metaop lacks it."""
    if name.startswith(".") or not is_foreign(name):
        return importlib.util.find_spec(name, package)
    module = _module(name)
    return None if module is None else importlib.util.find_spec(module.__name__)


def import_module(name: str, package: str | None = None) -> ModuleType:
    """`importlib.import_module` of what a name is in metaop.

    Raises `ModuleNotFoundError` where metaop lacks it.
    """
    if name.startswith(".") or not is_foreign(name):
        return importlib.import_module(name, package)
    module = _module(name)
    if module is None:
        raise ModuleNotFoundError(f"metaop has no {name}", name=name)
    return module


def _module(name: str) -> ModuleType | None:
    """The module of metaop that a foreign name is, if there is one that can be used."""
    module = lookup(name).value
    if not isinstance(module, ModuleType):
        return None
    needed = NEEDED.get(module.__name__)
    return module if needed is None or importlib.util.find_spec(needed) else None


def version(distribution_name: str) -> str:
    """`importlib.metadata.version`; of PyTorch and its kin the release that metaop follows."""
    if distribution_name == "torch":
        return _version.torch
    return FOLLOWED.get(distribution_name) or importlib.metadata.version(distribution_name)
