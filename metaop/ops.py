"""The operators that the program has registered: `metaop.ops.NAMESPACE.NAME(...)`.

See `metaop.library.custom_op`. PyTorch's own operators (`aten`, …) are functions of `metaop`.
"""

from __future__ import annotations

from typing import Any

from metaop.library import CustomOpDef, operators

# PyTorch's functions here are for libraries that are compiled against it.
_ABSENT = frozenset(("import_module", "load_library", "loaded_libraries"))


class _Namespace:
    """The operators of a namespace, which may be registered later."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> CustomOpDef:
        operator = operators.get(f"{self._name}::{name}")
        if operator is None:
            raise AttributeError(f"there is no operator {self._name}::{name}")
        return operator


def __getattr__(name: str) -> Any:
    if name.startswith("__") or name in _ABSENT:
        raise AttributeError(f"module 'metaop.ops' has no attribute {name!r}")
    return _Namespace(name)
