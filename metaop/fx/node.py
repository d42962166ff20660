"""Node: one step of a graph, with links to its neighbours, what it reads and who reads it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Reversible
from typing import TYPE_CHECKING, Any, TypeVar

import metaop
from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.fx.immutable_collections import map_aggregate
from metaop.fx.naming import describe, type_text

if TYPE_CHECKING:
    from metaop.fx.graph import Graph

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_arg"]

Argument = Any
Target = Callable[..., Any] | str
_Function = TypeVar("_Function", bound=Callable[..., Any])

OPERATIONS = ("placeholder", "get_attr", "call_function", "call_module", "call_method", "output")
_side_effectful_functions: set[Callable[..., Any]] = {operator.setitem}


def has_side_effect(fn: _Function) -> _Function:
    """Registers a function whose calls stay, even if nobody reads their results."""
    _side_effectful_functions.add(fn)
    return fn


def last_reads(nodes: Reversible[Node]) -> dict[Node, list[Node]]:
    """For each node in order the values that no node after it reads."""
    last: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(nodes):
        for read in node.all_input_nodes:
            if read not in seen:
                seen.add(read)
                last.setdefault(node, []).append(read)
    return last


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """Applies a function to each node in nested arguments."""
    if not callable(fn):
        raise ArgumentTypeError("map_arg: fn must be callable", fix="pass a function of a node")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


class Node:
    """A step of a `Graph`.

    `op` is one of placeholder, get_attr, call_function, call_module, call_method and output.
    `target` is what is called or read: a function, or the name of an attribute, module, method or
    argument. `args` and `kwargs` hold nodes wherever results of other steps go. `users` has the
    nodes that read this one as its keys, `meta` whatever passes want to keep.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:
        if op not in (*OPERATIONS, "root"):
            raise ArgumentError(f"Node: op {op!r} is none", fix=f"use one of {OPERATIONS}")
        if op == "call_function" and not callable(target):
            raise ArgumentError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{type(target).__name__} but a Callable is expected",
                fix="pass the function itself",
            )
        if op != "call_function" and not isinstance(target, str):
            raise ArgumentError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{type(target).__name__} but a str is expected",
                fix="pass a name",
            )
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.type = return_type
        self.meta: dict[str, Any] = {}
        self.users: dict[Node, None] = {}
        self._input_nodes: dict[Node, None] = {}
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._prev = self._next = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self._set_arguments(args, kwargs)

    # --- what it reads ----------------------------------------------------------------------

    @property
    def args(self) -> tuple[Argument, ...]:
        """The positional arguments, nested tuples and lists of nodes and values."""
        return self._args

    @args.setter
    def args(self, args: tuple[Argument, ...]) -> None:
        self._set_arguments(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The arguments by name."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Argument]) -> None:
        self._set_arguments(self._args, kwargs)

    def _set_arguments(self, args: Any, kwargs: Any) -> None:
        for read in self._input_nodes:
            read.users.pop(self, None)
        self._input_nodes = {}

        def keep(value: Any) -> Any:
            if isinstance(value, Node):
                self._input_nodes.setdefault(value)
                value.users.setdefault(self)
            return value

        self._args = map_aggregate(tuple(args), keep)
        self._kwargs = map_aggregate(dict(kwargs), keep)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes that this one reads, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replaces the positional argument `idx`."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Inserts a positional argument before `idx`; ArgumentError when there is no such place."""
        if not 0 <= idx <= len(self._args):
            raise ArgumentError(
                f"insert_arg: index must be between 0 and {len(self._args)}, got {idx}"
            )
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replaces the argument of a name."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Reads `new_input` wherever it reads `old_input`."""

        def exchange(read: Node) -> Node:
            return new_input if read is old_input else read

        self._set_arguments(map_arg(self._args, exchange), map_arg(self._kwargs, exchange))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Has all users read another node instead; returns those users.

        `delete_user_cb` tells of a user whether it is to change. With `propagate_meta` the other
        node, which must have no `meta` of its own, takes this node's.
        """
        if propagate_meta:
            if replace_with.meta:
                raise ArgumentError(
                    "replace_all_uses_with: propagate_meta needs a node without meta",
                    fix="clear replace_with.meta first",
                )
            replace_with.meta.update(self.meta)
        users = [user for user in self.users if delete_user_cb(user)]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    # --- where it stands --------------------------------------------------------------------

    @property
    def next(self) -> Node:
        """The node after it in the list of the graph."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before it in the list of the graph."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Moves `x` before this node."""
        if self.graph is not x.graph:
            raise ArgumentError("prepend: attempting to move a Node into a different Graph")
        if self is not x:
            x._remove_from_list()
            x._prev, x._next = self._prev, self
            self._prev._next = self._prev = x

    def append(self, x: Node) -> None:
        """Moves `x` behind this node."""
        if self._next is not x:
            self._next.prepend(x)

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    # --- what it is -------------------------------------------------------------------------

    @property
    def stack_trace(self) -> str | None:
        """Where it was recorded, if the tracer keeps that."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it has to stay although nobody reads it: arguments, results, writes, asserts."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in _side_effectful_functions or self.target is metaop._assert
        if self.op == "call_module":
            module = attribute_at(self.graph.owning_module, str(self.target))
            return bool(getattr(module, "_is_impure", False))
        return False

    def format_node(self) -> str:
        """A line that describes the node, as the text of a graph has it."""
        if self.op == "output":
            return f"return {self.args[0]}"
        annotation = "" if self.type is None else f"{type_text(self.type)} "
        head = f"%{self.name} : {annotation}[num_users={len(self.users)}] = {self.op}"
        head += f"[target={describe(self.target)}]"
        if self.op == "placeholder":
            return f"{head}(default={self.args[0]})" if self.args else head
        if self.op == "get_attr":
            return head
        arguments = f"args = {format_argument(self.args)}, kwargs = {format_argument(self.kwargs)}"
        return f"{head}({arguments})"

    def _rename(self, candidate: str) -> None:
        """Takes another name, made unique in the graph."""
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)

    def __repr__(self) -> str:
        return self.name if self._repr_fn is None else self._repr_fn(self)

    def __getstate__(self) -> dict[str, Any]:
        raise ArgumentTypeError("a Node alone is not copied", fix="copy its Graph or GraphModule")


def attribute_at(owner: Any, path: str) -> Any:
    """The attribute at a dotted path; None if there is none."""
    for name in path.split("."):
        owner = getattr(owner, name, None)
    return owner


def format_argument(value: Any) -> str:
    """Nested arguments as texts of graphs have them, nodes with a percent sign."""
    if isinstance(value, (list, tuple)):
        parts = ", ".join(format_argument(part) for part in value)
        if isinstance(value, list):
            return f"[{parts}]"
        return f"({parts}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {format_argument(part)}' for key, part in value.items())}}}"
    return f"%{value}" if isinstance(value, Node) else str(value)
