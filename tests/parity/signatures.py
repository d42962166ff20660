"""Parameters of functions: from Python where it can tell, else from PyTorch's documentation."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

UNKNOWN = object()

# Parameters that say where PyTorch keeps things; metaop's tensors are all kept alike.
IGNORED = {"self", "out", "layout", "pin_memory", "memory_format", "generator", "device", "dtype"}


def parameters(function: Callable[..., Any]) -> dict[str, Any] | None:
    """Defaults by parameter name (`UNKNOWN` where none is told), None when nothing can be told."""
    try:
        found = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return documented(function)
    kinds = {parameter.kind for parameter in found}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        return None
    return {parameter.name: parameter.default for parameter in found}


def documented(function: Callable[..., Any]) -> dict[str, Any] | None:
    """The parameters that the first line of a docstring gives."""
    lines = [
        line for line in (getattr(function, "__doc__", None) or "").split("\n") if line.strip()
    ]
    name = getattr(function, "__name__", "")
    match = re.match(rf"\s*{re.escape(name)}\((.*)\)\s*(->.*)?$", lines[0]) if lines else None
    if match is None:
        return None
    try:
        definition = ast.parse(f"def f({match.group(1)}): pass").body[0]
    except SyntaxError:
        return None
    assert isinstance(definition, ast.FunctionDef)
    given = definition.args
    if given.vararg or given.kwarg:
        return None
    result: dict[str, Any] = dict.fromkeys(
        [argument.arg for argument in (*given.args, *given.kwonlyargs)], UNKNOWN
    )
    later = given.args[len(given.args) - len(given.defaults) :]
    for argument, default in [
        *zip(later, given.defaults),
        *zip(given.kwonlyargs, given.kw_defaults),
    ]:
        if default is not None:
            result[argument.arg] = _literal(default)
    return result


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNKNOWN


def differences(ours: Callable[..., Any], theirs: Callable[..., Any]) -> list[str]:
    """What PyTorch's parameters have that metaop's have not: names and defaults."""
    mine, other = parameters(ours), parameters(theirs)
    if mine is None or other is None:
        return []
    found = []
    for name, default in other.items():
        if name in IGNORED or name.startswith("_"):
            continue
        if name not in mine:
            found.append(f"no parameter {name}")
        elif not _same(mine[name], default):
            found.append(f"{name} is {mine[name]!r}, not {default!r}")
    return found


def _same(ours: Any, theirs: Any) -> bool:
    if theirs is UNKNOWN or theirs is inspect.Parameter.empty:
        return True
    if callable(theirs) or type(theirs).__module__.startswith("torch"):
        return True
    if isinstance(theirs, float) and isinstance(ours, (int, float)):
        return abs(ours - theirs) <= 1e-9 * abs(theirs)
    return ours == theirs or str(ours) == str(theirs)
