"""Which nodes have buffers, and where in them the elements of a node are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from metaop.fusion.kernel import Indices
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.index_expr import Axis
from metaop.unified_graph.node import Input, Node, topological


class Part(NamedTuple):
    """A node's place within another one: the index there of each of its elements."""

    whole: Node
    place: IndexMap


@dataclass(frozen=True)
class Storage:
    """The `stored` nodes, and the nodes of which they are `parts`.

    A part is in the buffers of its wholes. It has a buffer of its own only if it is among the
    `outputs`, of the program or for custom kernels, which read whole buffers. A node in `views` has
    the elements of a stored one in the same order. That one is written to the buffer of the view,
    and kernels read that one, so that they know when the elements have been computed.
    """

    stored: Set[Node]
    outputs: Set[Node] = frozenset()
    parts: Mapping[Node, list[Part]] = field(default_factory=dict)
    views: Set[Node] = frozenset()

    def has_buffer(self, node: Node) -> bool:
        """Whether the value of a node can be read from memory."""
        return isinstance(node.op, Input) or node in self.stored

    def computed(self, roots: Iterable[Node]) -> list[Node]:
        """The nodes that a kernel computes, each after its inputs: roots, and what they inline."""
        own = frozenset(roots)
        return topological(own, _Read(self, own))

    def places(self, node: Node, at: Indices) -> list[tuple[Node, Indices]]:
        """Every buffer that has the element of a node at `at`, and its indices there."""
        parts = self.parts.get(node)
        if parts is None:
            return [(node, at)]
        found = [(node, at)] if node in self.outputs else []
        for whole, place in parts:
            indices = tuple(
                index.substitute(lambda atom: at[atom.name] if isinstance(atom, Axis) else None)  # type: ignore
                for index in place.indices
            )
            found += self.places(whole, indices)
        return found


@dataclass(frozen=True)
class _Read:
    """The elements that a kernel with some roots reads from memory."""

    storage: Storage
    roots: frozenset[Node]

    def __contains__(self, node: object) -> bool:
        assert isinstance(node, Node)
        return node not in self.roots and self.storage.has_buffer(node)
