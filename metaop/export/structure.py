"""Nested tensors as plain data: the structure of arguments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metaop.errors import ArgumentError, ArgumentTypeError, ExportError
from metaop.serialization.damage import Damage
from metaop.tensor.core import Tensor

_PLAIN = (bool, int, float, str, type(None))
_DEEPEST = 32


def taken_apart(value: Any, tensors: list[Tensor], names: list[str], name: str) -> Any:
    """The structure of a value. Its tensors are appended with a name for each.

    Raises ExportError for anything but nested tensors, plain values, lists, tuples and dicts.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        names.append(name)
        return {"tensor": len(tensors) - 1}
    if type(value) in _PLAIN:
        if isinstance(value, float) and not abs(value) < float("inf"):
            raise ExportError(f"{name} is {value}, which is not a plain number")
        return {"value": value}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        items = enumerate(value)
        return {kind: [taken_apart(one, tensors, names, f"{name}.{k}") for k, one in items]}
    if isinstance(value, Mapping):
        if not all(type(key) in (str, int) for key in value):
            raise ExportError(f"{name} has keys that are neither strings nor integers")
        parts = value.items()
        return {"dict": [[k, taken_apart(one, tensors, names, f"{name}.{k}")] for k, one in parts]}
    raise ExportError(
        f"{name} is a {type(value).__name__}, which programs do not support",
        fix="pass and return tensors, numbers, strings, and lists, tuples and dicts of them",
    )


def checked(structure: Any, count: int, depth: int = 0) -> None:
    """Raises Damage unless `taken_apart` could return the structure for `count` tensors."""
    if not isinstance(structure, dict) or len(structure) != 1 or depth > _DEEPEST:
        raise Damage("its arguments or results have no legal structure")
    ((kind, content),) = structure.items()
    if kind == "tensor" and type(content) is int and 0 <= content < count:
        return
    if kind == "value" and type(content) in _PLAIN:
        return
    if kind in ("list", "tuple") and isinstance(content, list):
        for one in content:
            checked(one, count, depth + 1)
        return
    if kind == "dict" and isinstance(content, list):
        for pair in content:
            if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) not in (str, int):
                raise Damage("a dict among its arguments or results is damaged")
            checked(pair[1], count, depth + 1)
        return
    raise Damage("its arguments or results have no legal structure")


def put_together(structure: Any, tensors: Sequence[Tensor]) -> Any:
    """Rebuilds a value from its structure."""
    ((kind, content),) = structure.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "value":
        return content
    if kind == "dict":
        return {key: put_together(one, tensors) for key, one in content}
    items = [put_together(one, tensors) for one in content]
    return items if kind == "list" else tuple(items)


def matched(structure: Any, value: Any, tensors: dict[int, Tensor], name: str) -> None:
    """Finds the tensors of a structure in a value. Raises ArgumentTypeError if they differ."""
    ((kind, content),) = structure.items()
    if kind == "tensor":
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(f"{name} is a {type(value).__name__}, not a tensor")
        tensors[content] = value
        return
    if kind == "value":
        if type(value) is not type(content) or value != content:
            raise ArgumentTypeError(
                f"{name} is {value!r}, but the program was exported for {content!r}",
                fix="export it again for this value",
            )
        return
    if kind == "dict":
        if not isinstance(value, Mapping) or set(value) != {key for key, _ in content}:
            raise ArgumentTypeError(f"{name} needs the keys {[key for key, _ in content]}")
        for key, one in content:
            matched(one, value[key], tensors, f"{name}.{key}")
        return
    if not isinstance(value, (list, tuple)) or len(value) != len(content):
        raise ArgumentTypeError(f"{name} has to be a {kind} of {len(content)}")
    for position, (one, item) in enumerate(zip(content, value)):
        matched(one, item, tensors, f"{name}.{position}")


def matched_axes(structure: Any, axes: Any, found: dict[int, Any]) -> None:
    """Finds the axes of each tensor in a value of the same structure; None is for no axes.

    Raises ArgumentError if the structures differ.
    """
    ((kind, content),) = structure.items()
    if kind == "tensor":
        found[content] = axes
    elif axes is None or kind == "value":
        return
    elif kind == "dict" and isinstance(axes, Mapping):
        parts = dict(content)
        unknown = [key for key in axes if key not in parts]
        if unknown:
            raise ArgumentError(
                f"dynamic_shapes names {unknown[0]!r}, which is no argument",
                fix=f"they are {', '.join(map(str, parts))}",
            )
        for key, one in axes.items():
            matched_axes(parts[key], one, found)
    elif kind != "dict" and isinstance(axes, (list, tuple)) and len(axes) == len(content):
        for part, one in zip(content, axes):
            matched_axes(part, one, found)
    else:
        raise ArgumentError(
            f"dynamic_shapes has {axes!r} for a {kind} of {len(content)}",
            fix="give it the structure of the arguments, with None for what is fixed",
        )
