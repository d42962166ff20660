"""Whole modules, optimizers and schedulers in checkpoints: the name of the class and the state.

A file names a class by its module and its name, as PyTorch's do. Reading imports that module, so
the caller must trust the file (`weights_only=False`); even then, only objects of the classes below
are created, without calling `__init__`.
"""

from __future__ import annotations

import importlib
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import cache
from types import BuiltinFunctionType, FunctionType
from typing import Any

from metaop.errors import CheckpointError
from metaop.nn.hooks import HookNumbers, HookTable
from metaop.nn.module import Module
from metaop.serialization.damage import Damage

# The module of these functions in files.
HOME = "metaop.serialization"
_TABLES: dict[str, type] = {kind.__name__: kind for kind in (HookTable, HookNumbers)}
# Functions that are wrapped under a public name have another `__name__`.
_PUBLIC = ("metaop.nn.functional", "metaop")


@cache
def _stateful() -> tuple[type, ...]:
    optim = importlib.import_module("metaop.optim")
    return (Module, optim.Optimizer, optim.lr_scheduler.LRScheduler, Namespace)


def described(obj: Any) -> tuple | None:
    """How an object is written, as (function, arguments) or (function, arguments, state).

    None for anything but modules, optimizers, schedulers, namespaces, functions and classes.
    """
    if type(obj) in _TABLES.values():
        content = list(obj.items()) if isinstance(obj, dict) else sorted(obj)
        return "new_table", (type(obj).__name__, content)
    if isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
        return "named", _place_of(obj)
    if isinstance(obj, _stateful()):
        state = obj.__getstate__() if hasattr(obj, "__getstate__") else vars(obj)
        # Modules created from a graph have their own classes, which cannot be imported.
        return "new_object", _place_of(getattr(obj, "_class_in_files", type(obj))), state
    return None


def _place_of(obj: Any) -> tuple[str, str]:
    """The module and the name under which a class or a function can be imported."""
    name = obj.__qualname__
    for module in (obj.__module__, *_PUBLIC):
        if _found(sys.modules.get(module), name) is obj:
            return module, name
    raise CheckpointError(
        f"cannot save {obj.__module__}.{name}: it cannot be imported by this name",
        fix="define it at the top level of a module, or save the state_dict",
    )


def _found(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def named(module: str, name: str) -> Any:
    """The class or function with this name."""
    try:
        found = _found(importlib.import_module(module), name)
    except ImportError as error:
        raise Damage(f"it needs {module}.{name} ({error})") from None
    if not isinstance(found, (type, FunctionType, BuiltinFunctionType)):
        raise Damage(f"it needs {module}.{name}, which is not a class or function")
    return found


def new_object(module: str, name: str) -> Any:
    """An object of this class whose `__init__` has not run."""
    kind = named(module, name)
    if not isinstance(kind, type) or not issubclass(kind, _stateful()):
        raise Damage(f"it makes a {module}.{name}, which is not a module or optimizer")
    return kind.__new__(kind)


def new_table(kind: str, content: Sequence[Any]) -> Any:
    """Creates the hook table of a module."""
    return _TABLES[kind](content)


def is_object(target: Any) -> bool:
    """Whether `fill` may set its state."""
    return isinstance(target, _stateful())


def fill(target: Any, state: dict[str, Any]) -> None:
    """Sets the saved state of a new object."""
    restore = getattr(target, "__setstate__", target.__dict__.update)
    restore(state)
