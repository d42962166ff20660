"""GraphModule: a module whose forward is made of a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
from collections.abc import Mapping
from typing import Any

from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.fx.graph import Graph
from metaop.fx.written import read_graph, write_graph
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor

__all__ = ["GraphModule"]

_numbers = itertools.count()
# What follows from the graph.
_OWN = ("_graph", "_code")


class GraphModule(Module):
    """A module that runs the code of a graph.

    `root` is a module, whose submodules and attributes that the graph names are taken over, or a
    mapping of such names to objects. After changes of `graph` call `recompile`.

    Example:
        traced = fx.symbolic_trace(module)
        for node in traced.graph.find_nodes(op="call_function", target=metaop.relu):
            node.target = metaop.tanh
        traced.recompile()
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # Each has a class of its own, because forward belongs to the class.
        base = next(one for one in cls.__mro__ if not one.__dict__.get("_generated", False))
        own = type(base.__name__, (base,), {"_generated": True, "__module__": base.__module__})
        return object.__new__(own)

    def __init__(
        self, root: Module | Mapping[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, Module):
            self.training = root.training
        elif not isinstance(root, Mapping):
            raise ArgumentTypeError(
                f"Unsupported type {type(root).__name__} passed for root!",
                fix="pass a module or a mapping of names to objects",
            )
        named = {
            str(node.target): None for node in graph.nodes if node.op in ("get_attr", "call_module")
        }
        # Shorter names first, so that a module is there before what belongs to it.
        for target in sorted(named, key=lambda name: name.count(".")):
            _take(root, self, target)
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph; another one that is assigned is copied if a module has it already."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise ArgumentTypeError(f"Expected a Graph instance, but got {type(graph).__name__}")
        own = copy.deepcopy(graph) if graph.owning_module not in (None, self) else graph
        object.__setattr__(self, "_graph", own)
        own.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The function that the graph was made into last."""
        return self._code

    def recompile(self) -> Any:
        """Makes the code of the graph anew; call it whenever the graph was changed."""
        written = self._graph.python_code(root_module="self")
        object.__setattr__(self, "_code", written.src)
        file = f"<metaop.fx.{next(_numbers)}>"
        lines = written.src.splitlines(keepends=True)
        linecache.cache[file] = (len(written.src), None, lines, file)
        values = {**written.globals, "__name__": file}
        exec(compile(written.src, file, "exec", dont_inherit=True), values)
        type(self).forward = values["forward"]  # type: ignore[method-assign]
        return written

    def add_submodule(self, target: str, m: Module) -> bool:
        """Adds a module under a dotted name, empty ones on the way; False where that fails."""
        *path, name = target.split(".")
        owner: Module = self
        for part in path:
            if not hasattr(owner, part):
                setattr(owner, part, Module())
            following = getattr(owner, part)
            if not isinstance(following, Module):
                return False
            owner = following
        owner.add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Removes the module of a dotted name; False where there is none."""
        *path, name = target.split(".")
        owner: Any = self
        for part in path:
            owner = getattr(owner, part, None)
        if not isinstance(getattr(owner, name, None), Module):
            return False
        delattr(owner, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Removes the modules that no node calls and nothing of which a node reads."""
        used: set[str] = set()
        modules = dict(self.named_modules())
        for node in self._graph.nodes:
            if node.op in ("call_module", "get_attr"):
                path = str(node.target).split(".")
                used.update(".".join(path[:end]) for end in range(1, len(path) + 1))
                inner = modules.get(str(node.target))
                if inner is not None:
                    used.update(f"{node.target}.{name}" for name, _ in inner.named_modules())
        for name in [name for name, _ in self.named_modules() if name]:
            if name not in used:
                self.delete_submodule(name)

    def print_readable(self, print_output: bool = True) -> str:
        """Prints the code within a class, that of graph modules inside it too, and returns it."""
        code = self._code.strip("\n").rstrip()
        body = "\n".join(f"    {line}" if line.strip() else line for line in code.split("\n"))
        text = f"class {type(self).__name__}(metaop.nn.Module):\n{body}\n"
        inner = [m.print_readable(False) for m in self.children() if isinstance(m, GraphModule)]
        for one in inner:
            text += "\n" + "".join(f"    {line}\n" for line in one.rstrip().split("\n"))
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return f"{super().__repr__()}\n{self._code}\n{hint}"

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        copied = GraphModule.__new__(type(self))
        memo[id(self)] = copied
        state = {key: value for key, value in vars(self).items() if key not in _OWN}
        copied.__dict__.update(copy.deepcopy(state, memo))
        type(copied).__name__ = type(self).__name__
        copied.graph = copy.deepcopy(self._graph)
        return copied

    def __copy__(self) -> GraphModule:
        return GraphModule(self, copy.deepcopy(self._graph), type(self).__name__)

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in vars(self).items() if key not in _OWN}
        return {**state, "_graph": write_graph(self._graph), "_name": type(self).__name__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        type(self).__name__ = state.pop("_name")
        rows = state.pop("_graph")
        self.__dict__.update(state)
        self.graph = read_graph(rows)

    def __reduce__(self) -> Any:
        return (GraphModule.__new__, (self._class_in_files,), self.__getstate__())

    @property
    def _class_in_files(self) -> type:
        """The class that an import finds, from which its own is derived."""
        return next(one for one in type(self).__mro__ if not one.__dict__.get("_generated", False))


def _take(root: Any, to: Module, target: str) -> None:
    """Gives a module the attribute of a dotted name, and its owners on the way."""
    if isinstance(root, Mapping):
        if target not in root:
            raise ArgumentError(
                f"Node referenced target {target} but that target was not provided in ``root``!",
                fix="add it to the mapping",
            )
        found = root[target]
    else:
        found = root
        for part in target.split("."):
            found = getattr(found, part, None)
    *path, name = target.split(".")
    owner = to
    for part in path:
        following = getattr(owner, part, None)
        if following is None:
            following = Module()
            setattr(owner, part, following)
        owner = following
    if name in owner.__dict__ or (found is not None and getattr(owner, name, None) is found):
        return
    if isinstance(found, Tensor) and not isinstance(found, Parameter):
        owner.register_buffer(name, found)
    elif isinstance(found, Module):
        owner.add_module(name, found)
    else:
        setattr(owner, name, found)
