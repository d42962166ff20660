"""Classes and functions in checkpoints: how a file names them, and how the name finds them.

They are named as pickles do it, by module and name. What a file names is imported, and may be
called, so it has to be on the list of safe classes, or the caller has to trust the file
(`weights_only=False`).
"""

from __future__ import annotations

import importlib
import re
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from metaop.errors import CheckpointError
from metaop.serialization.damage import Damage
from metaop.serialization.safe_names import is_listed

# Functions that are wrapped under a public name have another `__name__`.
_PUBLIC = ("metaop.nn.functional", "metaop")
_NUMPY_CORE = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"


def place_of(obj: type | FunctionType | BuiltinFunctionType) -> tuple[str, str] | None:
    """The module and the name under which a class or a function can be imported.

    None for a part of another object, as a nested class, which is written as such. Raises
    CheckpointError for one that no import finds.
    """
    name, owner = obj.__qualname__, getattr(obj, "__self__", None)
    if obj is type(None) or not isinstance(owner, (ModuleType, type(None))):
        return None
    for module in (obj.__module__, *_PUBLIC):
        if _found(sys.modules.get(module), name) is obj:
            return None if "." in name else (module, name)
    raise CheckpointError(
        f"cannot save {obj.__module__}.{name}: it cannot be imported by this name",
        fix="define it at the top level of a module, or save the state_dict",
    )


def _found(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def check_allowed(module: str, name: str, trusted: bool) -> None:
    """Raises Damage if a file may not name this class or function."""
    if module.partition(".")[0] == "torch":
        raise Damage(
            f"it names {module}.{name}, which is not on the list of things that may be loaded",
            fix="save its state_dict (tensors, numbers, strings, plain containers) instead of the "
            "whole object",
        )
    if not trusted and not is_listed(module, name):
        raise Damage(
            f"it names {module}.{name}, which is not on the list of things that may be loaded",
            fix="save state_dicts (tensors, numbers, strings, plain containers); or if you trust "
            "the file, which may run any code, pass weights_only=False",
        )


def imported(module: str, name: str) -> Any:
    """The class or function with this name."""
    module = re.sub(r"^numpy\._?core\b", _NUMPY_CORE, module)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise Damage(f"it needs {module}.{name} ({error})") from None
    return found
