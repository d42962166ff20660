"""Replacements of `importlib` functions, for names that are known only at run time.

The converter writes them into programs: `find_spec("torch")` finds metaop, and likewise for every
package that is converted. Other names are looked up as by `importlib`.
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
    """`importlib.util.find_spec` of a name's counterpart in metaop; None if metaop lacks it."""
    if name.startswith(".") or not is_foreign(name):
        return importlib.util.find_spec(name, package)
    module = _module(name)
    return None if module is None else importlib.util.find_spec(module.__name__)


def import_module(name: str, package: str | None = None) -> ModuleType:
    """`importlib.import_module` of a name's counterpart in metaop.

    Raises `ModuleNotFoundError` if metaop lacks it.
    """
    if name.startswith(".") or not is_foreign(name):
        return importlib.import_module(name, package)
    module = _module(name)
    if module is None:
        raise ModuleNotFoundError(f"metaop has no {name}", name=name)
    return module


def _module(name: str) -> ModuleType | None:
    """The counterpart of a foreign module in metaop, if there is one that can be used."""
    module = lookup(name).value
    if not isinstance(module, ModuleType):
        return None
    needed = NEEDED.get(module.__name__)
    return module if needed is None or importlib.util.find_spec(needed) else None


def version(distribution_name: str) -> str:
    """`importlib.metadata.version`; for converted packages, the release that metaop follows."""
    if distribution_name == "torch":
        return _version.torch
    return FOLLOWED.get(distribution_name) or importlib.metadata.version(distribution_name)
