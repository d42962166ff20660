"""Names: of nodes, unique in their graph, and of functions and types in the code of a graph."""

from __future__ import annotations

import builtins
import keyword
import re
import types
from collections.abc import Callable
from functools import cache
from typing import Any

import metaop

__all__ = ["Namespace"]

_ILLEGAL = re.compile("[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"^([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?$")
_HUMP = re.compile(r"(?<=[a-z])([A-Z])")
# Names that the code of every graph may use.
KNOWN: dict[str, Any] = {
    "inf": float("inf"),
    "nan": float("nan"),
    "NoneType": type(None),
    "metaop": metaop,
    "device": metaop.device,
}
_TAKEN = {**dict.fromkeys(keyword.kwlist, object()), **vars(builtins), **KNOWN}


class Namespace:
    """Gives names that no other object has, and that hide no builtin."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any) -> str:
        """A new name like the candidate, or the one that `obj` (if it is not None) has already."""
        if obj is not None and obj in self._names:
            return self._names[obj]
        candidate = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        found = _NUMBERED.match(candidate)
        assert found is not None
        base, number = found.group(1), found.group(2)
        if number is None or candidate in self._used:
            count = self._counts.get(base, 0)
            if _TAKEN.get(candidate, obj) is not obj:
                count += 1
                candidate = f"{base}_{count}"
        else:
            count = int(number)
        while candidate in self._used:
            count += 1
            candidate = f"{base}_{count}"
        self._used.add(candidate)
        self._counts[base] = count
        if obj is not None:
            self._names[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Gives an object a name that has been made."""
        self._names.setdefault(obj, name)


def snake_case(text: str) -> str:
    """`LayerNorm` as `layer_norm`."""
    return _HUMP.sub(r"_\1", text).lower()


@cache
def public_functions() -> dict[types.FunctionType, str]:
    """The functions of tensors that metaop has, with the path by which users know them."""
    found: dict[types.FunctionType, str] = {}
    homes = {
        "metaop": metaop,
        "metaop.nn.functional": metaop.nn.functional,
        **{f"metaop.{name}": getattr(metaop, name) for name in ("linalg", "fft", "special")},
    }
    for path, module in homes.items():
        for name, value in vars(module).items():
            if isinstance(value, types.FunctionType) and not name.startswith("_"):
                found.setdefault(value, f"{path}.{name}")
    found[metaop._assert] = "metaop._assert"
    for name, home in metaop._ELSEWHERE.items():
        if home == "nn.functional":
            # In PyTorch these are `torch.conv2d` and the like from wherever they are taken.
            function = getattr(metaop, name)
            if function not in found or found[function].startswith("metaop.nn"):
                found[function] = f"metaop.{name}"
    return found


def target_name(target: Any) -> str:
    """What a node is called after: `special_erf` for `metaop.special.erf`, `add` for `__add__`."""
    if not callable(target):
        text = str(target)
    else:
        path = _path(target)
        text = path.removeprefix("metaop.").removeprefix("nn.functional.").replace(".", "_")
        text = text if path else str(getattr(target, "__name__", type(target).__name__))
    if text.startswith("__") and text.endswith("__"):
        text = text[2:-2]
    return snake_case(text)


def _path(target: Any) -> str:
    """The path below metaop of a function, a type or a number type; else an empty text."""
    if isinstance(target, types.FunctionType):
        return public_functions().get(target, "")
    name = getattr(target, "__name__", None)
    if isinstance(name, str) and getattr(metaop, name, None) is target:
        return f"metaop.{name}"
    return ""


def qualified_name(target: Any) -> str:
    """How code calls a function or a type: by a builtin's name, a path, or module and name."""
    name = target.__name__
    if getattr(builtins, name, None) is target:
        return name
    path = _path(target)
    if path:
        return path
    return f"{target.__module__}.{name}"


def is_public(target: Any) -> bool:
    """Whether code can call it by its path below metaop."""
    return bool(_path(target))


def type_text(annotation: Any) -> str:
    """An annotation as code writes it."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if annotation.__module__ == "builtins":
            return annotation.__qualname__
        return _path(annotation) or f"{annotation.__module__}.{annotation.__qualname__}"
    if annotation is ...:
        return "..."
    return annotation.__name__ if isinstance(annotation, types.FunctionType) else repr(annotation)


def describe(target: str | Callable[..., Any]) -> str:
    """The target of a node in the text of a graph."""
    if isinstance(target, str):
        return target
    if not hasattr(target, "__name__"):
        return repr(target)
    name = _path(target) or f"{target.__module__}.{target.__name__}"
    return name.replace("_operator.", "operator.")
