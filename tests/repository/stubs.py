"""What type checkers see of the functions of `metaop` and of the methods of Tensor.

Both are made at run time, as declarations say (`metaop/tensor/surface.py`); these texts stand
beside the modules that make them.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any

import metaop
from metaop.tensor import core, exports
from metaop.tensor.core import Tensor
from metaop.tensor.sharded import placing
from metaop.tensor.surface import DECLARED, IN_PLACE_FUNCTIONS

HEAD = '''"""{} Written by ./test tests/repository --update-golden."""

# ruff: noqa
# fmt: off
'''
# Parameters that wrappers add, and what their types mean.
ADDED = {
    **{"out": "Tensor | Sequence[Tensor] | None", "axis": "Any", "keepdims": "bool"},
    **{"placement": "Placement | None", "sbp": "SbpLike | None"},
    **{"layout": "layout | None", "pin_memory": "bool"},
}
COMMON = {"Any": Any, "Sequence": Sequence, "Tensor": Tensor}
# What the class `object` says of these is right.
AS_OBJECTS = ("__repr__", "__str__", "__hash__", "__format__", "__reduce_ex__")


class Names:
    """The names in the annotations of a stub, which itself defines the names `own`."""

    def __init__(self, own: Iterable[str]) -> None:
        self.own = frozenset(own)
        self.values: dict[str, Any] = {}
        self.imported: dict[str, set[str]] = {}
        self.modules: set[str] = set()

    def written(self, annotation: str, scope: dict[str, Any]) -> str:
        """An annotation of a function with the globals `scope`, as the stub has it."""
        tree = ast.parse(annotation, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = self._shown(node.id, scope)
        return ast.unparse(tree)

    def _shown(self, name: str, scope: dict[str, Any]) -> str:
        scopes = (scope, COMMON, vars(placing), vars(builtins))
        scope = next(one for one in scopes if name in one)
        value = scope[name]
        if vars(builtins).get(name, self) is value:
            return self._module("builtins", f"builtins.{name}") if name in self.own else name
        if isinstance(value, ModuleType):
            own = value.__name__ == name
            return self._module(name if own else f"{value.__name__} as {name}", name)
        if name not in self.values:
            self.values[name] = value
            # An alias of types has no home of its own: where it was seen first is one.
            home = value.__module__ if _is_at_home(name, value) else scope["__name__"]
            text = f"{name} as _{name}" if name in self.own else name
            self.imported.setdefault(home, set()).add(text)
        elif self.values[name] != value:
            raise ValueError(f"{name} means {value} and {self.values[name]}")
        return f"_{name}" if name in self.own else name

    def _module(self, imported: str, shown: str) -> str:
        self.modules.add(imported)
        return shown

    def imports(self) -> str:
        """The lines that import what the annotations name."""
        lines = [f"import {module}\n" for module in sorted(self.modules)]
        for home, names in sorted(self.imported.items()):
            lines.append(f"from {home} import {', '.join(sorted(names))}\n")
        return "".join(lines)


def _is_at_home(name: str, value: Any) -> bool:
    module = sys.modules.get(getattr(value, "__module__", ""))
    return getattr(module, name, None) is value


def methods() -> str:
    """The class that Tensor has as a base while types are checked."""
    tree = ast.parse(inspect.getsource(core.Tensor)).body[0]
    assert isinstance(tree, ast.ClassDef)
    here = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    found = {
        name: value
        for name, value in sorted(vars(Tensor).items())
        if name not in here and name not in AS_OBJECTS
        if _is_ours(value.fget if isinstance(value, property) else value)
    }
    names, body = Names(found), ""
    for name, value in found.items():
        if isinstance(value, property):
            body += f"    @property\n    {_definition(name, value.fget, names, 'self')}\n"
            if value.fset is not None:
                setter = f"def {name}(self, value: Any) -> None: ..."
                body += f"    @{name}.setter\n    {setter}\n"
        else:
            body += f"    {_definition(name, value, names, 'self')}\n"
    text = "What declarations bind to Tensor."
    title = f'class BoundMethods:\n    """{text}"""\n\n'
    return f"{HEAD.format(text)}{names.imports()}\n{title}{body}"


def _is_ours(value: Any) -> bool:
    """Whether a function is metaop's: tests and documents declare others."""
    return inspect.isfunction(value) and inspect.unwrap(value).__module__.startswith("metaop.")


def functions() -> str:
    """The module of the functions of `metaop`."""
    found = sorted(name for name in (*DECLARED, *IN_PLACE_FUNCTIONS) if hasattr(exports, name))
    names = Names(found)
    body = "".join(f"{_definition(name, getattr(exports, name), names)}\n" for name in found)
    return f"{HEAD.format('The functions of `metaop`.')}{names.imports()}\n{body}"


def _definition(
    name: str, function: Callable[..., Any] | None, names: Names, first: str = ""
) -> str:
    """`def name(…) -> …: ...`; a method calls its first parameter `first`."""
    assert function is not None
    signature, scope = inspect.signature(function), inspect.unwrap(function).__globals__
    listed = list(signature.parameters.values())
    if first:
        listed = [Parameter(first, Parameter.POSITIONAL_OR_KEYWORD), *listed[1:]]
        listed = _with_words(listed)
    parts: list[str] = []
    for place, one in enumerate(listed):
        before = {other.kind for other in listed[:place]}
        if one.kind is Parameter.KEYWORD_ONLY:
            if not before & {Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL}:
                parts.append("*")
        parts.append(_parameter(one, names, scope, first))
    result = signature.return_annotation
    if result is Signature.empty:
        kind = type(function(metaop.zeros(())))
        result = names.written(kind.__name__, {kind.__name__: kind, **vars(builtins)})
    else:
        result = names.written(result, scope)
    ignored = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
    return f"def {name}({', '.join(parts)}) -> {result}: ...{ignored}"


def _with_words(listed: list[Parameter]) -> list[Parameter]:
    """The parameters of a method, with NumPy's words where it takes PyTorch's."""
    given = {one.name: one for one in listed}
    place = len(listed) - (listed[-1].kind is Parameter.VAR_KEYWORD)
    for word, name in (("axis", "dim"), ("keepdims", "keepdim")):
        if "dim" in given and name in given and word not in given:
            if given[name].default is not Parameter.empty:
                listed.insert(place, Parameter(word, Parameter.KEYWORD_ONLY, default=None))
                place += 1
    return listed


def _parameter(one: Parameter, names: Names, scope: dict[str, Any], first: str) -> str:
    text = ADDED.get(one.name, "") if one.annotation is Parameter.empty else one.annotation
    if not text and one.name != first:
        raise ValueError(f"a parameter {one.name} without a type in {scope['__name__']}")
    star = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}.get(one.kind, "")
    given = f": {names.written(text, scope)}" if text else ""
    return f"{star}{one.name}{given}" + (" = ..." if one.default is not Parameter.empty else "")
