"""Tracer: runs a function on proxies, so that what it does becomes a graph."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from metaop.errors import ArgumentTypeError
from metaop.fx.arguments import PH, arguments_for
from metaop.fx.graph import Graph
from metaop.fx.graph_module import GraphModule
from metaop.fx.interception import find, watching
from metaop.fx.node import Argument, Node, Target
from metaop.fx.patching import Patcher, patch_wrapped, wrap
from metaop.fx.proxy import ParameterProxy, Proxy, Scope, TracerBase
from metaop.nn.containers import Sequential
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor

__all__ = ["PH", "ProxyableClassMeta", "Tracer", "is_fx_tracing", "symbolic_trace", "wrap"]

_proxyable: set[type] = set()
_depth = 0


def is_fx_tracing() -> bool:
    """Whether a function is being traced."""
    return _depth > 0


class ProxyableClassMeta(type):
    """A metaclass: while a function is traced, making an object of proxies becomes a node."""

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        _proxyable.add(cls)
        super().__init__(name, bases, attributes)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxy = find(args, kwargs) if is_fx_tracing() else None
        if isinstance(proxy, Proxy):
            return proxy.tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


class Tracer(TracerBase):
    """Makes graphs of modules and functions; methods are there to be overridden.

    `autowrap_modules` and `autowrap_functions` name Python functions whose calls are recorded
    whole. With `param_shapes_constant`, sizes of parameters are known numbers.

    Example:
        class Leaves(fx.Tracer):
            def is_leaf_module(self, m, qualified_name):
                return isinstance(m, Block) or super().is_leaf_module(m, qualified_name)

        graph = Leaves().trace(net)
        module = fx.GraphModule(net, graph)
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._search = list(autowrap_modules)
        self._autowrapped = {id(function) for function in autowrap_functions} | {
            id(value)
            for module in autowrap_modules
            for name, value in vars(module).items()
            if not name.startswith("_") and callable(value)
        }
        self.param_shapes_constant = param_shapes_constant
        self.scope = Scope("", None)
        self.module_stack: dict[str, tuple[str, Any]] = {}
        self.node_name_to_scope: dict[str, tuple[str, Any]] = {}
        self.num_calls: dict[str, int] = {}
        self._paths: dict[Module, str] | None = None

    # --- what to override -------------------------------------------------------------------

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of a module is one node: for the layers of metaop, but for Sequential."""
        home = type(m).__module__
        own = home.startswith(("metaop.nn", "metaop.ao.nn"))
        return own and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The dotted name of a module below the root; NameError when it is not there."""
        if self._paths is not None:
            paths = self._paths
        else:
            paths = {module: name for name, module in self.root.named_modules()}
        if mod not in paths:
            raise NameError("module is not installed as a submodule")
        return paths[mod]

    def call_module(
        self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a call of a module gives: a node for a leaf, else what its forward does."""
        path = self.path_of_module(m)
        before, self.scope = self.scope, Scope(path, type(m))
        calls = self.num_calls.get(path, 0)
        self.num_calls[path] = calls + 1
        key = f"{path}@{calls}" if calls else path
        self.module_stack[key] = (path, type(m))
        try:
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            del self.module_stack[key]
            self.scope = before

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What reading an attribute of a module gives: a proxy for a parameter."""
        named: Iterator[tuple[str, Any]]
        if isinstance(attr_val, Parameter):
            named = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            named = self.root.named_buffers()
        else:
            return attr_val
        name = next((name for name, value in named if value is attr_val), None)
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            parameter_proxy_cache[name] = self._parameter_proxy(name, attr_val)
        return parameter_proxy_cache[name]

    def _parameter_proxy(self, name: str, value: Any) -> Proxy:
        node = self.create_node("get_attr", name, (), {})
        if self.param_shapes_constant:
            return ParameterProxy(self, node, name, value)
        return self.proxy(node)

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
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if self.module_stack:
            node.meta["nn_module_stack"] = dict(self.module_stack)
        return node

    def create_arg(self, a: Any) -> Argument:
        """A value as nodes hold it; tensors become attributes of the root that a node reads."""
        if isinstance(a, Parameter):
            return self._read(a, self.root.named_parameters(), "parameter is not a member")
        if isinstance(a, Tensor):
            name = next((n for n, value in self.root.named_buffers() if value is a), None)
            return self.create_node("get_attr", name or self._constant_name(a), (), {})
        if isinstance(a, Module):
            return self._read(a, self.root.named_modules(), "module is not a part")
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            args = tuple(self.create_arg(part) for part in a)
            return self.create_node("call_function", type(a), args, {})
        if type(a) in _proxyable:
            name = self.get_fresh_qualname(f"_{type(a).__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def _read(self, value: Any, named: Any, complaint: str) -> Node:
        for name, one in named:
            if one is value:
                return self.create_node("get_attr", name, (), {})
        raise NameError(f"{complaint} of this module")

    def _constant_name(self, value: Tensor) -> str:
        """Where the root keeps a tensor that is neither a parameter nor a buffer."""
        if value not in self.tensor_attrs:
            name = self.get_fresh_qualname("_tensor_constant")
            self.tensor_attrs[value] = name
            setattr(self.root, name, value)
        return self.tensor_attrs[value]

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name like the prefix that the root has not yet."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    # --- tracing ----------------------------------------------------------------------------

    def trace(
        self,
        root: Module | Callable[..., Any],
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> Graph:
        """The graph of a module or a function.

        `concrete_args` gives arguments a value for good, so that conditions may ask for it; the
        graph then asserts that it is called with this value. Raises TraceError where the function
        needs another value.
        """
        global _depth
        function = self._start(root)
        _depth += 1
        try:
            with watching, Patcher() as patcher:
                function, args = arguments_for(self, function, concrete_args)
                self._patch(patcher, function)
                result = self.create_arg(function(*args))
                returned = inspect.get_annotations(inspect.unwrap(function)).get("return")
                self.create_node("output", "output", (result,), {}, type_expr=returned)
        finally:
            _depth -= 1
            self._paths = None
        return self.graph

    def _start(self, root: Any) -> FunctionType:
        """Sets the root, and returns the function that is to run."""
        self.graph = Graph(tracer_cls=type(self))
        if isinstance(root, Module):
            self.root = root
            function = getattr(type(root), self.traced_func_name)
            self._paths = {module: name for name, module in root.named_modules()}
        else:
            self.root, function = Module(), root
        if not isinstance(function, FunctionType):
            raise ArgumentTypeError(
                f"symbolic_trace takes a module or a function, not {type(root).__name__}",
                fix="pass a function that calls it",
            )
        self.traces_module = isinstance(root, Module)
        self.tensor_attrs: dict[Tensor, str] = {
            value: f"{path}.{name}" if path else name
            for path, module in self.root.named_modules()
            for name, value in vars(module).items()
            if isinstance(value, Tensor)
        }
        return function

    def _patch(self, patcher: Patcher, function: FunctionType) -> None:
        """Has modules and wrapped functions come here while the function runs."""
        proxies: dict[str, Any] = {}
        call, read = Module.__call__, Module.__getattr__

        @functools.wraps(read)
        def read_attribute(module: Module, name: str) -> Any:
            return self.getattr(name, read(module, name), proxies)

        @functools.wraps(call)
        def call_module(module: Module, *args: Any, **kwargs: Any) -> Any:
            names = getattr(type(module).forward, "__globals__", {})
            patcher.globals_of(names, self._autowrapped)
            return self.call_module(module, functools.partial(call, module), args, kwargs)

        patcher.attribute(Module, "__getattr__", read_attribute)
        patcher.attribute(Module, "__call__", call_module)
        patch_wrapped(patcher)
        patcher.globals_of(inspect.unwrap(function).__globals__, self._autowrapped)
        for module in self._search:
            patcher.globals_of(vars(module), self._autowrapped)


def symbolic_trace(
    root: Module | Callable[..., Any],
    concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
) -> GraphModule:
    """A module that does what another module or a function does, made of the graph of its steps.

    The function runs once, on proxies: conditions on values raise TraceError. `concrete_args` gives
    arguments a value for good.

    Example:
        traced = fx.symbolic_trace(net)
        print(traced.code)
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
