"""Looks foreign names up among the real objects and signatures of the installed metaop."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from metaop.convert.tables import (
    ABSENT_HINTS,
    FUNCTIONALS_IN_C,
    FUNCTIONS_IN_PYTHON,
    MEANINGS,
    PACKAGES_IN_C,
    PUBLIC_PACKAGES,
    PYTORCHS_OPERATORS,
    REGISTRY,
    RENAMED,
    ROOTS,
    THIRD_PARTY_HINTS,
)
from metaop.tensor.operands import from_other_overload

_NOTHING = object()


@dataclass(frozen=True)
class Target:
    """The counterpart of a foreign name in metaop.

    `path` is the dotted name to write, or None if there is none; `meaning` explains a difference.
    """

    name: str
    path: str | None
    meaning: str = ""
    value: Any = None

    @property
    def renamed(self) -> bool:
        """Whether more than the root differs."""
        return self.path != root_path(self.name)


def is_foreign(name: str) -> bool:
    """Whether a dotted name belongs to a package that is converted, or to metaop itself."""
    return name.partition(".")[0] in ("metaop", *ROOTS)


def root_path(name: str) -> str:
    """The name with its longest known root replaced by metaop's."""
    best = max((root for root in ROOTS if _starts_with(name, root)), key=len, default=None)
    if best is None:
        return name
    return ROOTS[best] + name[len(best) :]


@cache
def lookup(name: str) -> Target:
    """The target of a dotted foreign name, such as `torch.nn.init.xavier_uniform`."""
    meaning = _longest(MEANINGS, name)
    for path in _candidates(name):
        value = find(path)
        if value is not _NOTHING:
            return Target(name, path, meaning, value)
    if _is_registered(name):
        return Target(name, root_path(name), meaning)
    return Target(name, None, hint_for(name))


def _candidates(name: str) -> list[str]:
    if name.startswith("metaop.absent."):
        return []
    paths = [root_path(name)]
    for old in _prefixes(name):
        if old in RENAMED:
            paths.insert(0, RENAMED[old] + name[len(old) :])
            break
    for package, public in PUBLIC_PACKAGES.items():
        if _starts_with(name, package):
            inner = name[len(package) + 1 :].split(".")
            paths += [".".join([public, *inner[count:]]) for count in range(len(inner))]
    return paths


def _is_registered(name: str) -> bool:
    """Whether a name is one of an operator that the program registers when it runs."""
    namespace = name.removeprefix(f"{REGISTRY}.").partition(".")[0]
    return name.startswith(f"{REGISTRY}.") and namespace not in PYTORCHS_OPERATORS


def find(path: str) -> Any:
    """The object at a dotted path below metaop, or a marker that `exists` knows."""
    parts = path.split(".")
    value: Any = importlib.import_module(parts[0])
    for count, part in enumerate(parts[1:], start=2):
        parent, value = value, getattr(value, part, _NOTHING)
        if value is _NOTHING and isinstance(parent, ModuleType):
            value = _import(".".join(parts[:count]))
        if value is _NOTHING:
            return _NOTHING
    return value


def exists(path: str) -> bool:
    """Whether a dotted path below metaop names anything."""
    return find(path) is not _NOTHING


def _import(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ImportError:
        return _NOTHING


def becomes_a_method(name: str) -> bool:
    """Whether a function is written in C by PyTorch and in Python here.

    A class that has the one as an attribute does not pass `self` to it; with the other it would.
    """
    package, _, function = name.rpartition(".")
    if package == "torch.nn.functional":
        in_c = function in FUNCTIONALS_IN_C
    else:
        in_c = package in PACKAGES_IN_C and name not in FUNCTIONS_IN_PYTHON
    return in_c and inspect.isfunction(lookup(name).value)


def hint_for(name: str) -> str:
    """Advice for a name that metaop lacks."""
    foreign = name.removeprefix("metaop.absent.")
    return _longest(ABSENT_HINTS, foreign) or _longest(THIRD_PARTY_HINTS, foreign)


def _longest(table: dict[str, str], name: str) -> str:
    return next((table[prefix] for prefix in _prefixes(name) if prefix in table), "")


def _prefixes(name: str) -> list[str]:
    """The name and its parents, longest first."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _starts_with(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


@cache
def signature_of(path: str) -> inspect.Signature | None:
    """The signature of the object at a path, if Python knows it."""
    value = find(path)
    if not callable(value):
        return None
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):
        return None


def argument_problem(
    path: str, positional: int, keywords: tuple[str, ...], *, complete: bool
) -> str:
    """Why a call does not fit the signature, or an empty string.

    `complete` says that the call has no `*arguments`, so missing ones can be reported too.
    """
    signature = signature_of(path)
    if signature is None:
        return ""
    args, kwargs = (None,) * positional, dict.fromkeys(keywords)
    try:
        bind = signature.bind if complete else signature.bind_partial
        bind(*args, **kwargs)
    except TypeError as error:
        return "" if from_other_overload(signature, args, kwargs) else str(error)
    return ""
