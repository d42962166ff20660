"""The graph of a step before its sizes are known: composites, and which values each of them reads.

A step whose composites are known can be built again on other sizes, plain or symbolic. So a call
of it has numbers like any other: one program serves them all, and a file can name its axes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from metaop.elementwise.meta_op import apply
from metaop.unified_graph.composite import Composite, Derivation, Signature
from metaop.unified_graph.node import Node
from metaop.unified_graph.rewrite import rebuild
from metaop.unified_graph.symbolic import NotGeneralError, SymFloat, SymInt
from metaop.unified_graph.tensor_type import TensorType


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


@dataclass(frozen=True)
class Again:
    """What was derived from a signature, and the function that derives it from another one."""

    asked: Hashable
    derive: Callable[[Signature], Composite | None] = field(compare=False)

    @classmethod
    def of(cls, derivation: Derivation) -> Again:
        """How a composite was derived."""
        return cls(derivation.asked, derivation.again)


class Origin(NamedTuple):
    """A signature as nested tuples, so that its numbers can be replaced.

    `types` is empty where they are those of the operands. `gradients` are those that were requested
    of the signature, in order, because they decide which further outputs it has.
    """

    composite: Composite | Derived
    types: tuple[TensorType | None, ...]
    attributes: tuple[Any, ...]
    gradients: tuple[Again, ...]

    @classmethod
    def of(cls, signature: Signature, with_types: bool = False) -> Origin:
        """The origin of a signature."""
        derivation = signature.composite.derivation
        made: Composite | Derived = signature.composite
        if derivation is not None:
            made = Derived(Origin.of(derivation.source, True), Again.of(derivation))
        plans = [plan for plan in signature.gradients.values() if plan is not None]
        asked = tuple(Again.of(plan.composite.derivation) for plan in plans)
        return cls(made, signature.input_types if with_types else (), signature.attributes, asked)

    def signature(self, types: tuple[TensorType | None, ...] = ()) -> Signature:
        """The signature, on `types` if its own are those of operands.

        Raises NotGeneralError if what was derived depends on sizes.
        """
        made, types = self.composite, types or self.types
        composite = made.again() if isinstance(made, Derived) else made
        is_plain = not _has_symbols((types, self.attributes))
        make = composite.signature if is_plain else lambda *key: Signature(composite, *key)
        found: Signature = make(types, self.attributes)
        for one in self.gradients:
            one.derive(found)
        return found


class Derived(NamedTuple):
    """A composite that was derived from a signature."""

    source: Origin
    how: Again

    def again(self) -> Composite:
        """The composite, derived from the source with its current numbers."""
        found = self.how.derive(self.source.signature())
        if found is None:
            raise NotGeneralError(f"what was derived from {self.source.composite} depends on sizes")
        return found


@dataclass(frozen=True)
class Outputs:
    """How many values a call makes: a part of the structure, whatever sizes are."""

    count: int


class RecordedCall(NamedTuple):
    """A call with its origin, the values that it reads, and how many it makes."""

    origin: Origin
    operands: Wires
    outputs: Outputs


class RecordedStep(NamedTuple):
    """A step that was recorded call by call, gradients included; no gradient flows through it."""

    calls: tuple[RecordedCall, ...]
    results: Wires

    def nodes(self, inputs: Sequence[Node]) -> list[Node]:
        """The results on nodes for the inputs."""
        values = list(inputs)
        for call in self.calls:
            operands = _taken(values, call.operands)
            types = [None if x is None else TensorType(x.shape, x.dtype) for x in operands]
            signature = call.origin.signature(tuple(types))
            made = signature.instantiate([x for x in operands if x is not None])
            if len(made) < call.outputs.count:
                raise NotGeneralError(f"{signature} has fewer outputs than for other sizes")
            values += made[: call.outputs.count]
        return _taken(values, self.results)


def _has_symbols(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_symbols, value))
    if isinstance(value, TensorType):
        return _has_symbols(value.shape)
    return type(value) in (SymInt, SymFloat)


def stopped(node: Node) -> Node:
    """The node without a gradient."""
    return apply("stop_gradient", node) if node.dtype.is_differentiable else node


def _taken(values: Sequence[Node], wires: Wires) -> list[Any]:
    return [None if position is None else values[position] for position in wires.sources]
