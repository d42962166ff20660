"""Graph: an ordered list of nodes that can be read, edited, checked, and turned into code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from metaop.errors import ArgumentError
from metaop.fx.naming import Namespace, describe, target_name
from metaop.fx.node import Argument, Node, Target, map_arg
from metaop.fx.python_code import PythonCode, write_code

__all__ = ["Graph"]


class _Nodes:
    """The nodes of a graph in their order; also `len`, `reversed` and membership."""

    def __init__(self, root: Node, backwards: bool = False) -> None:
        self._root = root
        self._backwards = backwards

    def __iter__(self) -> Iterator[Node]:
        node = self._root._prev if self._backwards else self._root._next
        while node is not self._root:
            # A node that was erased still knows where it stood.
            if not node._erased:
                yield node
            node = node._prev if self._backwards else node._next

    def __reversed__(self) -> Iterator[Node]:
        return iter(_Nodes(self._root, not self._backwards))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Graph:
    """What a function computes, as a list of `Node`s from placeholders to the output.

    Example:
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_function(metaop.relu, (x,)))
        module = fx.GraphModule(nn.Module(), graph)
    """

    def __init__(self, owning_module: Any = None, tracer_cls: type | None = None) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._before = self._root
        self._graph_namespace = Namespace()
        self._tracer_cls = tracer_cls
        self.owning_module = owning_module

    @property
    def nodes(self) -> _Nodes:
        """All nodes in their order."""
        return _Nodes(self._root)

    def output_node(self) -> Node:
        """The node of the result, which is the last."""
        last = self._root._prev
        if last.op != "output":
            raise ArgumentError("this graph has no output node", fix="call graph.output(result)")
        return last

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes of an operation, and of a target where one is given, in their order."""
        return [
            node
            for node in self.nodes
            if node.op == op and (target is None or node.target == target)
        ]

    # --- adding -----------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a node at the point of insertion, the end if nothing else was asked for."""
        candidate = target_name(target) if name is None else name
        unique = self._graph_namespace.create_name(candidate, None)
        node = Node(self, unique, op, target, args or (), kwargs or {}, type_expr)
        self._graph_namespace.associate_name_with_obj(unique, node)
        self._before.prepend(node)
        return node

    @contextmanager
    def _inserting(self, before: Node) -> Iterator[None]:
        if before.graph is not self:
            raise ArgumentError("inserting: the node belongs to another graph")
        previous, self._before = self._before, before
        try:
            yield
        finally:
            self._before = previous

    def inserting_before(self, n: Node | None = None) -> Any:
        """A context in which new nodes go before `n`, or to the beginning."""
        return self._inserting(self._root._next if n is None else n)

    def inserting_after(self, n: Node | None = None) -> Any:
        """A context in which new nodes go behind `n`, or to the end."""
        return self._inserting(self._root if n is None else n._next)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """Adds an argument; `*name` and `**name` take several."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Adds a read of a parameter, a buffer or another attribute, `layer.weight` say."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None
    ) -> Node:
        """Adds a call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None
    ) -> Node:
        """Adds a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """Adds a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Adds the result, a node or nested nodes and values."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x
    ) -> Node:
        """Adds a copy of a node of another graph; `arg_transform` says what stands for its inputs.

        Example: `copies[node] = graph.node_copy(node, lambda n: copies[n])`.
        """
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta = dict(node.meta)
        return copied

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Any:
        """Adds copies of the nodes of a graph; returns what stands for its result.

        `val_map` gives nodes of `g` that have a copy already, and learns of all others. With
        `return_output_node` the output node of `g` comes along.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    # --- removing ---------------------------------------------------------------------------

    def erase_node(self, to_erase: Node) -> None:
        """Removes a node that nobody reads; ArgumentError when somebody does."""
        if to_erase.users:
            raise ArgumentError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {to_erase.users}!",
                fix="call replace_all_uses_with first",
            )
        if to_erase.graph is not self:
            raise ArgumentError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            raise ArgumentError(f"erase_node({to_erase}) on an already erased node")
        if self._before is to_erase:
            self._before = to_erase._next
        to_erase._remove_from_list()
        to_erase._erased = True
        to_erase._set_arguments((), {})

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Removes nodes that nobody reads and that do nothing else; tells whether there were any.

        `is_impure_node` says which nodes do something else, instead of `Node.is_impure`. Writes
        in place by methods are removed too if nobody reads what they return, as in PyTorch.
        """
        self.lint()
        changed = False
        for node in reversed(self.nodes):
            impure = node.is_impure() if is_impure_node is None else is_impure_node(node)
            if not node.users and not impure:
                self.erase_node(node)
                changed = True
        return changed

    # --- looking ----------------------------------------------------------------------------

    def lint(self) -> None:
        """Checks the graph; ArgumentError when it is malformed.

        Nodes belong to the graph, have names of their own, and read only what stands before them;
        what they call or read by name is there in the module that owns the graph.
        """
        names: set[str] = set()
        before: set[Node] = set()
        for node in self.nodes:
            for read in node.all_input_nodes:
                if read.graph is not self:
                    raise ArgumentError(
                        f"Argument '{read}' of Node '{node}' does not belong to this Graph, but "
                        "was used as an argument! If you are copying nodes from another graph, "
                        "make sure to use ``arg_transform`` on node_copy() to remap values"
                    )
                if read not in before:
                    raise ArgumentError(
                        f"Argument '{read}' of Node '{node}' was used before it has been defined! "
                        f"Please check that Nodes in the graph are topologically ordered\n{self}"
                    )
            if node.name in names:
                raise ArgumentError(f"Node redefined name {node.name}!")
            names.add(node.name)
            before.add(node)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                _check_target(self.owning_module, node)

    def python_code(self, root_module: str) -> PythonCode:
        """The graph as a function in Python, which calls the module by the name `root_module`."""
        return write_code(self, root_module)

    def print_tabular(self) -> None:
        """Prints a table of operations, names, targets and arguments."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        for node in self.nodes:
            target = describe(node.target)
            rows.append((node.op, node.name, target, str(node.args), str(node.kwargs)))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        rows.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
        for row in rows:
            print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())

    def __str__(self) -> str:
        return "\n    ".join(["graph():", *(node.format_node() for node in self.nodes)])

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        copied = Graph(tracer_cls=self._tracer_cls)
        result = copied.graph_copy(self, {}, return_output_node=True)
        if result is not None:
            value, output = result
            copied.output(value, type_expr=output.type).meta = dict(output.meta)
        if memo is not None:
            memo[id(self)] = copied
        return copied


def _check_target(module: Any, node: Node) -> None:
    """Whether the module has what a node asks for by its name."""
    owner = module
    for name in str(node.target).split("."):
        if not hasattr(owner, name):
            raise ArgumentError(
                f"Node {node} target {node.target} references nonexistent attribute {name} of "
                f"{type(owner).__name__}",
                fix="add it to the module of the graph",
            )
        owner = getattr(owner, name)
    if node.op == "call_module" and not callable(owner):
        raise ArgumentError(f"Node {node} target {node.target} is not a module")
