"""Whole modules, optimizers and schedulers in checkpoints: the place of the class and its state.

A file names a class by its module and its name, as PyTorch's do. Reading imports that module, so
it is done only for a caller who trusts the file (`weights_only=False`); and only the classes below
are made, without calling them.
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

# The name of these functions in files.
HOME = "metaop.serialization"
_TABLES: dict[str, type] = {kind.__name__: kind for kind in (HookTable, HookNumbers)}
# Functions that are wrapped under a public name do not know it.
_PUBLIC = ("metaop.nn.functional", "metaop")


@cache
def _stateful() -> tuple[type, ...]:
    optim = importlib.import_module("metaop.optim")
    return (Module, optim.Optimizer, optim.lr_scheduler.LRScheduler, Namespace)


def described(obj: Any) -> tuple | None:
    """How an object is written, as (function, arguments) or (function, arguments, state).

    None for what is no module, optimizer, scheduler, namespace, function or class.
    """
    if type(obj) in _TABLES.values():
        content = list(obj.items()) if isinstance(obj, dict) else sorted(obj)
        return "new_table", (type(obj).__name__, content)
    if isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
        return "named", _place_of(obj)
    if isinstance(obj, _stateful()):
        state = obj.__getstate__() if hasattr(obj, "__getstate__") else vars(obj)
        # Modules that are made of a graph have classes of their own, which no import finds.
        return "new_object", _place_of(getattr(obj, "_class_in_files", type(obj))), state
    return None


def _place_of(obj: Any) -> tuple[str, str]:
    """The module and the name under which an import finds a class or a function again."""
    name = obj.__qualname__
    for module in (obj.__module__, *_PUBLIC):
        if _found(sys.modules.get(module), name) is obj:
            return module, name
    raise CheckpointError(
        f"cannot save {obj.__module__}.{name}: no import finds it under this name",
        fix="define it at the top level of a module, or save the state_dict",
    )


def _found(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def named(module: str, name: str) -> Any:
    """The class or the function of this name."""
    try:
        found = _found(importlib.import_module(module), name)
    except ImportError as error:
        raise Damage(f"it needs {module}.{name} ({error})") from None
    if not isinstance(found, (type, FunctionType, BuiltinFunctionType)):
        raise Damage(f"it needs {module}.{name}, which is no class or function")
    return found


def new_object(module: str, name: str) -> Any:
    """An object of this class whose `__init__` has not run."""
    kind = named(module, name)
    if not isinstance(kind, type) or not issubclass(kind, _stateful()):
        raise Damage(f"it makes a {module}.{name}, which is no module or optimizer")
    return kind.__new__(kind)


def new_table(kind: str, content: Sequence[Any]) -> Any:
    """The hooks of a module."""
    return _TABLES[kind](content)


def is_object(target: Any) -> bool:
    """Whether `fill` may give it a state."""
    return isinstance(target, _stateful())


def fill(target: Any, state: dict[str, Any]) -> None:
    """Gives a new object the state that it was saved with."""
    restore = getattr(target, "__setstate__", target.__dict__.update)
    restore(state)
