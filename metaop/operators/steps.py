"""The graph of a step before its sizes are known: composites, and which values each of them reads.

A step whose composites are known can be built again on other sizes, plain or symbolic. So a call
of it has numbers like any other: one program serves them all, and a file can name its axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from metaop.elementwise.meta_op import apply
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.node import Node
from metaop.unified_graph.rewrite import rebuild


@dataclass(frozen=True)
class Wires:
    """The positions of values among all values of a step: its inputs, then what its calls make.

    They are no numbers, whatever sizes are. None stands for an operand that is absent.
    """

    sources: tuple[int | None, ...]


class StepCall(NamedTuple):
    """A composite with its attributes; no gradient flows through one that `ends_history`."""

    composite: Composite
    attributes: tuple[Any, ...]
    operands: Wires
    ends_history: bool


class GeneralStep(NamedTuple):
    """A step of which every composite can be expanded for other sizes."""

    calls: tuple[StepCall, ...]
    results: Wires

    @property
    def result_count(self) -> int:
        """The number of results."""
        return len(self.results.sources)

    def nodes(self, inputs: Sequence[Node]) -> list[Node]:
        """The results on nodes for the inputs."""
        values = list(inputs)
        for call in self.calls:
            operands = _taken(values, call.operands)
            arguments = (tuple(operands),) if call.composite.variadic else operands
            made = call.composite(*arguments, *call.attributes)
            found = [made] if isinstance(made, Node) else list(made)
            values += map(stopped, found) if call.ends_history else found
        return _taken(values, self.results)


@dataclass(frozen=True)
class FixedStep:
    """A step for the sizes of its inputs alone, as composites are that were derived for some."""

    inputs: tuple[Node, ...]
    results: tuple[Node, ...]

    @property
    def result_count(self) -> int:
        """The number of results."""
        return len(self.results)

    def nodes(self, inputs: Sequence[Node]) -> list[Node]:
        """The results on nodes for the inputs."""
        return rebuild(self.results, dict(zip(self.inputs, inputs)))


def stopped(node: Node) -> Node:
    """The node without a gradient."""
    return apply("stop_gradient", node) if node.dtype.is_differentiable else node


def _taken(values: Sequence[Node], wires: Wires) -> list[Any]:
    return [None if position is None else values[position] for position in wires.sources]
