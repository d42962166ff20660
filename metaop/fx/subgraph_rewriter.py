"""Replacing parts of a graph that look like a pattern."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from metaop.errors import ArgumentError
from metaop.fx._symbolic_trace import symbolic_trace
from metaop.fx.graph import Graph
from metaop.fx.graph_module import GraphModule
from metaop.fx.node import Node, attribute_at
from metaop.nn.module import Module
from metaop.tensor.core import Tensor

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class Match(NamedTuple):
    """Where a pattern was found: its last node in the graph, and nodes by those of the pattern."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """Where a pattern was found, and the nodes that stand there now."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node] = field(default_factory=list)


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule,
    replacement: Callable[..., Any] | GraphModule,
) -> list[Match]:
    """Replaces every part of a graph that looks like `pattern` by `replacement`.

    Both are functions or modules of as many arguments. What is found must not be read from
    outside but for its results, and places that overlap an earlier one are left. The module is
    compiled anew.

    Example: `fx.replace_pattern(traced, lambda x: x.relu() + 1, lambda x: x.tanh())`.
    """
    replaced = replace_pattern_with_filters(gm, pattern, replacement)
    return [Match(one.anchor, one.nodes_map) for one in replaced]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Callable[..., Any] | Graph | GraphModule,
    replacement: Callable[..., Any] | Graph | GraphModule | None = None,
    match_filters: list[Callable[[Any, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[Any, Graph, Graph], Graph] | None = None,
) -> list[ReplacedPatterns]:
    """As `replace_pattern`, where all filters agree.

    A filter gets a match, the graph and that of the pattern. `ignore_literals` lets values differ
    from the pattern's. `replacement_callback` makes a graph for each match.
    """
    if (replacement is None) == (replacement_callback is None):
        raise ArgumentError("give either a replacement or replacement_callback")
    wanted = _graph_of(pattern)
    found = [
        match
        for match in _Matcher(wanted, gm.graph, ignore_literals).matches()
        if all(accepts(match, gm.graph, wanted) for accepts in match_filters or ())
    ]
    common = None if replacement is None else _graph_of(replacement)
    moved: dict[Node, Node] = {}
    replaced = []
    for match in found:
        made = common
        if replacement_callback is not None:
            made = replacement_callback(match, gm.graph, wanted)
        assert made is not None
        replaced.append(_replace(gm.graph, match, made, wanted, moved))
    if isinstance(replacement, Module):
        _take_targets(gm, replacement)
    gm.recompile()
    return replaced


def _graph_of(pattern: Any) -> Graph:
    if isinstance(pattern, Graph):
        return pattern
    return pattern.graph if isinstance(pattern, GraphModule) else symbolic_trace(pattern).graph


@dataclass
class InternalMatch:
    """A place of a pattern; filters see it."""

    anchors: list[Node]
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)


class _Matcher:
    def __init__(self, pattern: Graph, graph: Graph, ignore_literals: bool) -> None:
        self.pattern = pattern
        self.graph = graph
        self.ignore_literals = ignore_literals
        self.returning = pattern.output_node().all_input_nodes
        self.anchors = [node for node in self.returning if len(node.users) == 1]
        if any(not n.users and n.op != "output" and not n.is_impure() for n in pattern.nodes):
            raise ArgumentError("replace_pattern: the pattern computes what it does not return")

    def matches(self) -> list[InternalMatch]:
        """All places, in the order of the graph, none of which overlap."""
        if not self.anchors:
            return []
        taken: set[Node] = set()
        chosen = []
        for nodes in self._placements(0, {}):
            computed = {g for p, g in nodes.items() if p.op != "placeholder"}
            if computed & taken or not self._is_closed(nodes, computed):
                continue
            taken |= computed
            arguments = [nodes[p] for p in self.pattern.nodes if p.op == "placeholder"]
            results = [nodes[p] for p in self.returning]
            chosen.append(InternalMatch(self.anchors, nodes, arguments, results))
        return chosen

    def _placements(self, number: int, nodes: dict[Node, Any]) -> Any:
        if number == len(self.anchors):
            yield nodes
            return
        for candidate in self.graph.nodes:
            extended = self._match(self.anchors[number], candidate, nodes)
            if extended is not None:
                yield from self._placements(number + 1, extended)

    def _match(self, wanted: Any, given: Any, nodes: dict[Node, Any]) -> dict[Node, Any] | None:
        """The nodes, extended by those that make two arguments agree; None if nothing does."""
        if isinstance(wanted, Node):
            return self._match_node(wanted, given, nodes)
        if isinstance(wanted, (list, tuple)) and isinstance(given, (list, tuple)):
            return self._match_all(wanted, given, nodes)
        if isinstance(wanted, slice) and isinstance(given, slice):
            ends, others = [(one.start, one.stop, one.step) for one in (wanted, given)]
            return self._match_all(ends, others, nodes)
        if isinstance(given, Node):
            return None
        agree = self.ignore_literals or (type(wanted) is type(given) and wanted == given)
        return nodes if agree else None

    def _match_all(self, wanted: Any, given: Any, nodes: Any) -> dict[Node, Any] | None:
        if len(wanted) != len(given):
            return None
        for one, other in zip(wanted, given):
            nodes = self._match(one, other, nodes)
            if nodes is None:
                return None
        return nodes

    def _match_node(self, wanted: Node, given: Any, nodes: Any) -> dict[Node, Any] | None:
        if wanted in nodes:
            known = nodes[wanted]
            same = known is given if isinstance(known, Node) else known == given
            return nodes if same else None
        if isinstance(given, Node) and any(given is known for known in nodes.values()):
            return None
        if wanted.op == "placeholder":
            return {**nodes, wanted: given}
        if not isinstance(given, Node):
            return None
        if not self._alike(wanted, given) or list(wanted.kwargs) != list(given.kwargs):
            return None
        nodes = self._match_all(wanted.args, given.args, {**nodes, wanted: given})
        if nodes is None:
            return None
        return self._match_all([*wanted.kwargs.values()], [*given.kwargs.values()], nodes)

    def _alike(self, wanted: Node, given: Node) -> bool:
        if wanted.op != given.op or wanted.op == "output":
            return False
        if wanted.op != "get_attr":
            return wanted.target == given.target
        values = [
            attribute_at(node.graph.owning_module, str(node.target)) for node in (wanted, given)
        ]
        return type(values[0]) is type(values[1]) and isinstance(values[0], Tensor)

    def _is_closed(self, nodes: dict[Node, Any], computed: set[Node]) -> bool:
        """Whether others read results only, and no way out of the place leads back into it."""
        results = {nodes[one] for one in self.returning}
        if any(user not in computed for g in computed - results for user in g.users):
            return False
        outside = [user for g in results if isinstance(g, Node) for user in g.users]
        seen: set[Node] = set()
        while outside:
            node = outside.pop()
            if node in computed or node in seen:
                continue
            seen.add(node)
            if any(user in computed for user in node.users):
                return False
            outside += node.users
        return True


def _replace(
    graph: Graph, match: InternalMatch, made: Graph, pattern: Graph, moved: dict[Node, Node]
) -> ReplacedPatterns:
    arguments = [node for node in made.nodes if node.op == "placeholder"]
    if len(arguments) != len(match.placeholder_nodes):
        raise ArgumentError(
            f"replace_pattern: the pattern has {len(match.placeholder_nodes)} arguments, the "
            f"replacement {len(arguments)}"
        )
    # An argument may have been replaced together with an earlier place.
    for wanted, given in list(match.nodes_map.items()):
        if wanted.op == "placeholder" and isinstance(given, Node):
            match.nodes_map[wanted] = moved.get(given, given)
    given = [match.nodes_map[node] for node in pattern.nodes if node.op == "placeholder"]
    match.placeholder_nodes = given
    copies: dict[Node, Any] = dict(zip(arguments, given))
    before = set(graph.nodes)
    with graph.inserting_before(_insertion_point(graph, match)):
        result = graph.graph_copy(made, copies)
    results = [result] if isinstance(result, Node) else list(result)
    if len(results) != len(match.returning_nodes):
        raise ArgumentError(
            f"replace_pattern: the pattern returns {len(match.returning_nodes)} values, the "
            f"replacement {len(results)}"
        )
    for old, new in zip(match.returning_nodes, results):
        old.replace_all_uses_with(new)
        moved[old] = new
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output"):
            graph.erase_node(match.nodes_map[node])
    added = [node for node in graph.nodes if node not in before]
    return ReplacedPatterns(match.anchors[0], match.nodes_map, added)


def _insertion_point(graph: Graph, match: InternalMatch) -> Node:
    """The first reader of a result, or what follows the last result if nobody reads it."""
    readers = {user for node in match.returning_nodes for user in node.users}
    for node in graph.nodes:
        if node in readers:
            return node
    last = [node for node in graph.nodes if node in match.returning_nodes][-1]
    return last.next


def _take_targets(gm: GraphModule, replacement: Module) -> None:
    """Gives the module copies of what the replacement calls and reads by name."""
    gm.delete_all_unused_submodules()
    for node in gm.graph.nodes:
        if node.op in ("call_module", "get_attr") and attribute_at(gm, str(node.target)) is None:
            found = copy.deepcopy(attribute_at(replacement, str(node.target)))
            if isinstance(found, Module):
                gm.add_submodule(str(node.target), found)
            elif found is not None:
                setattr(gm, str(node.target), found)
