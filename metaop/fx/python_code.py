"""The code of a graph: a function in Python with one line for each node."""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from types import UnionType
from typing import TYPE_CHECKING, Any

from metaop.errors import UnsupportedError
from metaop.fx.naming import KNOWN, Namespace, is_public, qualified_name, type_text
from metaop.fx.node import Node, last_reads
from metaop.tensor.core import Tensor

if TYPE_CHECKING:
    from metaop.fx.graph import Graph

__all__ = ["PythonCode"]

_TWO_SIDED = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "truediv": "/",
    "mod": "%",
    "pow": "**",
    "lshift": "<<",
    "rshift": ">>",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "matmul": "@",
}
# Python's operators that have a reflected form, as `operator` calls them.
REFLECTABLE = {
    **{name: f"{{}} {sign} {{}}" for name, sign in _TWO_SIDED.items()},
    "getitem": "{}[{}]",
}
MAGIC = {
    "eq": "{} == {}",
    "ne": "{} != {}",
    "lt": "{} < {}",
    "gt": "{} > {}",
    "le": "{} <= {}",
    "ge": "{} >= {}",
    "pos": "+{}",
    "neg": "-{}",
    "invert": "~{}",
    **REFLECTABLE,
}
_IN_PLACE = {
    **{f"i{name.strip('_')}": f"{{}} {sign}= {{}}" for name, sign in _TWO_SIDED.items()},
    "setitem": "{}[{}] = {}",
}


@dataclass
class PythonCode:
    """The source of a function, and the global names that it reads."""

    src: str
    globals: dict[str, Any] = field(default_factory=dict)


def write_code(graph: Graph, root_module: str) -> PythonCode:
    """The code of a graph; modules and attributes are those of the name `root_module`."""
    return _Writer(graph, root_module).code()


class _Writer:
    def __init__(self, graph: Graph, root_module: str) -> None:
        self.graph = graph
        self.root = root_module
        self.namespace = Namespace()
        self.globals: dict[str, Any] = {}
        self.wrapped: dict[str, None] = {}
        self.parameters: list[str] = []
        self.returned = ""
        for name, value in KNOWN.items():
            self._global(name, value)

    def code(self) -> PythonCode:
        """The whole text: calls of `wrap`, the head, and the lines of the nodes."""
        self._keep_node_names()
        last = last_reads(self.graph.nodes)
        lines: list[str] = []
        for node in self.graph.nodes:
            text = self._statement(node)
            if text and node.op not in ("placeholder", "output"):
                dead = [*last.get(node, ()), *([] if node.users else [node])]
                if dead:
                    text += f";  {' = '.join([*map(repr, dead), 'None'])}"
            if text:
                lines.append(text)
        parameters = self.parameters
        if parameters[:1] != [self.root]:
            parameters = [self.root, *parameters]
        head = f"def forward({', '.join(parameters)}){self.returned}:"
        wraps = [f'metaop.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped]
        body = "\n".join(f"    {line}" for line in lines or ["pass"])
        before = "\n".join(wraps)
        return PythonCode(f"\n{before}\n\n{head}\n{body}\n    ", self.globals)

    def _keep_node_names(self) -> None:
        """Keeps the names of nodes from being taken for globals."""
        for node in self.graph.nodes:
            self.namespace.create_name(node.name, node)

    def _global(self, hint: str, value: Any) -> str:
        """The name by which the code reaches a value from outside the graph."""
        if is_public(value) and value is not KNOWN["device"]:
            return qualified_name(value)
        name = self.namespace.create_name(hint, value)
        self.globals[name] = value
        return name

    def _statement(self, node: Node) -> str:
        annotation = "" if node.type is None else f" : {self._type(node.type)}"
        if node.op == "placeholder":
            default = f" = {self._value(node.args[0])}" if node.args else ""
            self.parameters.append(f"{node.target}{annotation}{default}")
            raw = str(node.target).replace("*", "")
            return "" if raw == repr(node) else f"{node!r} = {raw}"
        if node.op == "output":
            if node.type is not None:
                self.returned = f" -> {self._type(node.type)}"
            return f"return {self._value(node.args[0])}"
        return self._call(node, f"{node!r}{annotation} = ")

    def _call(self, node: Node, left: str) -> str:
        target: Any = node.target
        if node.op == "get_attr":
            return left + _member(self.root, target)
        if node.op == "call_module":
            return f"{left}{_member(self.root, target)}({self._arguments(node.args, node.kwargs)})"
        if node.op == "call_method":
            owner = _member(self._value(node.args[0]), target)
            return f"{left}{owner}({self._arguments(node.args[1:], node.kwargs)})"
        parts = [self._value(part) for part in node.args]
        if getattr(target, "__module__", "") == "_operator" and not node.kwargs:
            if target.__name__ in MAGIC:
                return left + MAGIC[target.__name__].format(*parts)
            if target.__name__ in _IN_PLACE:
                return f"{_IN_PLACE[target.__name__].format(*parts)};  {left}{parts[0]}"
        if target is getattr and len(parts) == 2 and str(node.args[1]).isidentifier():
            return left + _member(parts[0], str(node.args[1]))
        name = self._global(_hint(target), target)
        if node.meta.get("is_wrapped"):
            self.wrapped.setdefault(name)
        return f"{left}{name}({self._arguments(node.args, node.kwargs)})"

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        named = [f"{name} = {self._value(value)}" for name, value in kwargs.items()]
        return ", ".join([*map(self._value, args), *named])

    def _value(self, value: Any) -> str:
        if isinstance(value, Node):
            return repr(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._global(_hint(type(value)), type(value)) + self._value(tuple(value))
        if isinstance(value, tuple):
            return f"({', '.join(map(self._value, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._value, value))}]"
        if isinstance(value, dict):
            parts = [f"{self._value(key)}: {self._value(part)}" for key, part in value.items()]
            return f"{{{', '.join(parts)}}}"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self._value, (value.start, value.stop, value.step)))})"
        if isinstance(value, enum.Enum):
            return f"{self._global(type(value).__name__, type(value))}.{value.name}"
        if isinstance(value, Tensor):
            raise UnsupportedError(
                "code cannot hold a tensor", fix="keep it on the module and read it with get_attr"
            )
        return self._global(_hint(value), value) if isinstance(value, type) else repr(value)

    def _type(self, annotation: Any) -> str:
        if annotation == ():
            return "()"
        arguments = typing.get_args(annotation)
        if isinstance(annotation, UnionType):
            return "|".join(map(self._type, arguments))
        origin = getattr(annotation, "__origin__", None)
        if origin is None:
            return self._global(type_text(annotation), annotation)
        name = self._global(type_text(origin), origin)
        return f"{name}[{','.join(map(self._type, arguments))}]" if arguments else name


def _hint(target: Callable[..., Any]) -> str:
    return qualified_name(target) if hasattr(target, "__name__") else type(target).__name__


def _member(owner: str, path: str) -> str:
    for name in path.split("."):
        owner = f"{owner}.{name}" if name.isidentifier() else f'getattr({owner}, "{name}")'
    return owner
