"""Graphs as plain tuples, lists and texts, which files of modules hold."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import metaop
from metaop.fx.graph import Graph
from metaop.fx.naming import public_functions
from metaop.fx.node import Node

__all__ = ["read_graph", "write_graph"]


def write_graph(graph: Graph) -> list[tuple[Any, ...]]:
    """A row for each node: operation, name, target, arguments and annotation."""
    return [
        (n.op, n.name, _target(n.target), _written(n.args), _written(n.kwargs), n.type)
        for n in graph.nodes
    ]


def read_graph(rows: list[tuple[Any, ...]]) -> Graph:
    """The graph of rows."""
    graph = Graph()
    nodes: dict[str, Node] = {}
    for op, name, (kind, target), args, kwargs, annotation in rows:
        found = _function(target) if kind == "path" else target
        nodes[name] = graph.create_node(
            op, found, _read(args, nodes), _read(kwargs, nodes), name, annotation
        )
    return graph


def _target(target: Any) -> tuple[str, Any]:
    # Functions of metaop are often made within others: only their public path finds them again.
    if isinstance(target, FunctionType) and target in public_functions():
        return "path", public_functions()[target]
    return "itself", target


def _function(path: str) -> Any:
    found: Any = metaop
    for name in path.split(".")[1:]:
        found = getattr(found, name)
    return found


def _written(value: Any) -> tuple[str, Any]:
    if isinstance(value, Node):
        return "node", value.name
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return kind, [_written(part) for part in value]
    if isinstance(value, dict):
        return "dict", [(key, _written(part)) for key, part in value.items()]
    if isinstance(value, slice):
        return "slice", [_written(part) for part in (value.start, value.stop, value.step)]
    return ("ellipsis", None) if value is ... else ("value", value)


def _read(written: tuple[str, Any], nodes: dict[str, Node]) -> Any:
    kind, content = written
    if kind == "node":
        return nodes[content]
    if kind == "dict":
        return {key: _read(part, nodes) for key, part in content}
    if kind in ("tuple", "list", "slice"):
        parts = [_read(part, nodes) for part in content]
        return slice(*parts) if kind == "slice" else parts if kind == "list" else tuple(parts)
    return ... if kind == "ellipsis" else content
