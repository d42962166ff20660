"""Finding names of PyTorch in metaop and in PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any


def resolve(root: ModuleType, path: Sequence[str]) -> Any:
    """What the dotted `path` below a package is, None when there is nothing."""
    found: Any = root
    for position, part in enumerate(path):
        try:
            found = getattr(found, part)
        except AttributeError:
            if not isinstance(found, ModuleType):
                return None
            try:
                found = importlib.import_module(".".join([root.__name__, *path[: position + 1]]))
            except ImportError:
                return None
    return found
