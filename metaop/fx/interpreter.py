"""Interpreter and Transformer: running a graph node by node, and making another of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from metaop.errors import ArgumentError
from metaop.fx._symbolic_trace import Tracer
from metaop.fx.graph import Graph
from metaop.fx.graph_module import GraphModule
from metaop.fx.interception import watching
from metaop.fx.node import Argument, Node, Target, last_reads, map_arg
from metaop.fx.proxy import Proxy
from metaop.nn.module import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph module node by node; each kind of node has a method to be overridden.

    With `garbage_collect_values`, values go when their last reader has run.

    Example:
        class Tanh(fx.Interpreter):
            def call_function(self, target, args, kwargs):
                target = metaop.tanh if target is metaop.relu else target
                return super().call_function(target, args, kwargs)

        y = Tanh(fx.symbolic_trace(net)).run(x)
    """

    def __init__(
        self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.graph: Graph = module.graph if graph is None else graph  # type: ignore[assignment]
        self.submodules = dict(module.named_modules())
        self.env: dict[Node, Any] = {}
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Any] = iter(())

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """The result of the graph for some arguments; `initial_env` gives values of nodes."""
        self.env = {} if initial_env is None else dict(initial_env)
        self.args_iter = iter(args)
        last = last_reads(self.graph.nodes) if self.garbage_collect_values else {}
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self._run(node)
            for read in last.get(node, ()):
                self.env.pop(read, None)
            if node.op == "output":
                return self.env[node]
        return None

    def _run(self, node: Node) -> Any:
        try:
            return self.run_node(node)
        except Exception as error:
            if self.extra_traceback and hasattr(error, "add_note"):
                error.add_note(f"While executing {node.format_node()}")
            raise

    def run_node(self, n: Node) -> Any:
        """The value of a node; the values that it reads are in `env`."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict) -> Any:
        """The next argument, all that are left for `*args`, or the default."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise ArgumentError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict) -> Any:
        """The attribute of a name."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict) -> Any:
        """The result of a function."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple[Argument, ...], kwargs: dict) -> Any:
        """The result of a method of the first argument."""
        owner, *rest = args
        return getattr(owner, target)(*rest, **kwargs)

    def call_module(self, target: Any, args: tuple[Argument, ...], kwargs: dict) -> Any:
        """The result of a submodule."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict) -> Any:
        """The result of the graph."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """What the module has under a dotted name."""
        found: Any = self.module
        parts = target.split(".")
        for position, name in enumerate(parts):
            if not hasattr(found, name):
                raise ArgumentError(
                    "Node referenced nonexistent target " + ".".join(parts[: position + 1])
                )
            found = getattr(found, name)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values of the arguments of a node."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """Nested arguments with values in place of nodes."""

        def value(read: Node) -> Any:
            if read not in self.env:
                raise ArgumentError(
                    f"Node {n} referenced nonexistent value {read}! Run Graph.lint()"
                )
            return self.env[read]

        return map_arg(args, value)


class Transformer(Interpreter):
    """Runs a graph on proxies, so that overridden methods make a new graph module.

    Example:
        class NegTanh(fx.Transformer):
            def call_function(self, target, args, kwargs):
                result = super().call_function(target, args, kwargs)
                return -result if target is metaop.tanh else result

        changed = NegTanh(fx.symbolic_trace(net)).transform()
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph(tracer_cls=module.graph._tracer_cls)

        class TransformerTracer(Tracer):
            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph = graph
                self.tensor_attrs = {}
                self.root = module

            def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
                return True

        self.tracer = TransformerTracer(self.new_graph)

    def placeholder(self, target: Any, args: tuple[Argument, ...], kwargs: dict) -> Proxy:
        """A placeholder of the new graph."""
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target: Any, args: tuple[Argument, ...], kwargs: dict) -> Proxy:
        """A read of the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: tuple[Argument, ...], kwargs: dict) -> Any:
        """A call of the new graph."""
        return self.tracer.call_module(
            self.fetch_attr(target), self.fetch_attr(target).forward, args, kwargs
        )

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict) -> Any:
        """A call of the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Argument, ...], kwargs: dict) -> Any:
        """A call of the new graph."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module of the new graph."""
        with watching:
            result = super().run(enable_io_processing=False)
        if result is not None:
            new = self.new_graph.output(self.tracer.create_arg(result))
            new.meta = dict(self.graph.output_node().meta)
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
