"""Proxy: stands for the value of a node, and records what is done with it."""

from __future__ import annotations

import dataclasses
import dis
import enum
import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from metaop.errors import TraceError, UnsupportedError
from metaop.fx.graph import Graph
from metaop.fx.interception import Watched
from metaop.fx.node import Argument, Node, Target, map_arg
from metaop.fx.python_code import MAGIC, REFLECTABLE
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tensor_type import Device

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "ParameterProxy",
    "Proxy",
    "TraceError",
    "TracerBase",
]

_PLAIN = (str, int, float, bool, complex, bytes, type, enum.Enum, DType, Device)


class Scope(NamedTuple):
    """The module in whose forward a node was recorded: its path and its class."""

    module_path: str
    module_type: Any


class TracerBase:
    """What proxies ask to record; subclasses say what their arguments and answers are."""

    graph: Graph
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a node to the graph; may be overridden to check or change it."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """What stands for the value of a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Adds a node whose arguments may hold proxies; returns what stands for its value."""
        node = self.create_node(
            kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr
        )
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Argument:
        """A value as nodes hold it; UnsupportedError for what they cannot hold."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            parts = [self.create_arg(part) for part in a]
            return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
        if isinstance(a, list):
            return [self.create_arg(part) for part in a]
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, (slice, range)):
            return type(a)(*(self.create_arg(part) for part in (a.start, a.stop, a.step)))
        if isinstance(a, (Node, *_PLAIN)) or a is None or a is ...:
            return a
        if dataclasses.is_dataclass(a):
            fields = {f.name: self.create_arg(getattr(a, f.name)) for f in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), fields)
        raise UnsupportedError(
            f"argument of type: {type(a)}",
            fix="pass numbers, texts, tensors, or containers of these; or wrap the function that "
            "makes it with fx.wrap",
        )

    def _key(self, key: Any) -> Any:
        def refuse(node: Node) -> Any:
            raise TraceError(
                f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {node}"
            )

        if not isinstance(key, str):
            key = self.create_arg(key)
            map_arg(key, refuse)
        return key

    def to_bool(self, obj: Proxy) -> bool:
        """What a proxy is in a condition: an error, unless a subclass knows better."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """What a loop over a proxy gives: an error, unless a subclass knows better."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument",
            fix="loop over a range that is known, or put the loop into a function under fx.wrap",
        )

    def keys(self, obj: Proxy) -> Any:
        """What `**` of a proxy asks for."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Records at the end of a graph that exists: what `Proxy(node)` uses."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


class Proxy(Watched):
    """Stands for the value of a node; whatever is done with it becomes a node.

    `Proxy(node)` adds to the graph of the node. Conditions and loops need a value and raise
    TraceError; unpacking into several names is fine.
    """

    node: Node

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def record_call(self, function: Callable[..., Any] | str, args: Any, kwargs: Any) -> Proxy:
        """Records a call of a function, or of the method of a name."""
        kind = "call_method" if isinstance(function, str) else "call_function"
        return self.tracer.create_proxy(kind, function, args, kwargs)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        # A field that a copy has not got yet.
        if name in ("node", "tracer"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        instruction = _instruction_of_caller()
        if instruction is not None and instruction.opname == "UNPACK_SEQUENCE":
            return (self[index] for index in range(instruction.argval))  # type: ignore[index]
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """What `**` of a proxy asks for."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise TraceError(
            "'len' is not supported in symbolic tracing by default",
            fix="call fx.wrap('len') at module scope to have it recorded",
        )


def _instruction_of_caller() -> Any:
    """The instruction that asked a proxy for an iterator."""
    frame = inspect.currentframe()
    caller = frame.f_back.f_back if frame is not None and frame.f_back is not None else None
    if caller is None:
        return None
    listed = dis.get_instructions(caller.f_code)
    return next((one for one in listed if one.offset == caller.f_lasti), None)


class Attribute(Proxy):
    """An attribute of a proxy: its node is added when its value is used, unless it is called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute."""
        if self._node is None:
            read = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = read.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter, whose sizes are known while a function is traced."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The parameter's shape."""
        return self.param.shape

    @property
    def ndim(self) -> int:
        """How many dimensions the parameter has."""
        return self.param.ndim

    def size(self) -> Any:
        """The parameter's shape."""
        return self.param.size()

    def dim(self) -> int:
        """How many dimensions the parameter has."""
        return self.param.dim()

    def numel(self) -> int:
        """How many elements the parameter has."""
        return self.param.numel()

    nelement = numel


def _operator(name: str) -> Callable[..., Proxy]:
    def recorded(self: Proxy, *args: Any) -> Proxy:
        target = getattr(operator, name)
        return self.tracer.create_proxy("call_function", target, (self, *args), {})

    return recorded


def _reflected(name: str) -> Callable[[Proxy, Any], Proxy]:
    def recorded(self: Proxy, other: Any) -> Proxy:
        target = getattr(operator, name)
        return self.tracer.create_proxy("call_function", target, (other, self), {})

    return recorded


for _name in MAGIC:
    setattr(Proxy, f"__{_name.strip('_')}__", _operator(_name))
for _name in REFLECTABLE:
    setattr(Proxy, f"__r{_name.strip('_')}__", _reflected(_name))
# Two proxies are the same value only if they are the same proxy.
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
