"""The calls of a subgraph, with what they read as results of other calls."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from metaop.codegen.memory.buffers import PartOfBuffer
from metaop.operators.view_write import view_write
from metaop.rerolling.elements import (
    Element,
    Placed,
    Value,
    Whole,
    differentiated,
    element_at,
    element_of,
    parts_of,
    placed_by,
    targets_of,
    written_by,
)
from metaop.rerolling.periods import FEWEST_COPIES
from metaop.unified_graph.composite import Signature
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.recording import Call, leaf
from metaop.unified_graph.tensor_type import TensorType


class Recorded:
    """A subgraph as calls with operands; `elements` are the values that are taken from tensors.

    `takes` has the number of the output of calls that take one. `placed` are the calls that put an
    element into zeros, `written` those that put one into a tensor, and `tokens` are equal for calls
    that differ at most in a position.
    """

    def __init__(self, subgraph: Subgraph) -> None:
        self.subgraph = subgraph
        self._leaves = set(subgraph.leaves)
        self.calls = [call for call, _ in subgraph.operators]
        self.operands: dict[Call, tuple[Value, ...]] = {}
        self.users: dict[Value, list[Call | None]] = defaultdict(list)
        self.elements: dict[Value, Element] = {}
        self.takes: dict[Call, int] = {}
        self.placed: dict[Call, Placed] = {}
        self.written: dict[Call, Placed] = {}
        # Leaves that stand for stacks of earlier programs, and the leaves that are parts of them.
        self.stacks: dict[Call, list[tuple[Call, int]]] = {}
        self._rests: dict[Value, _Rest] = {}
        self._find_stacks(subgraph.leaves)
        self.tokens: list[int] = []
        known: dict[Hashable, int] = {}
        for call in self.calls:
            operands = tuple(map(self.value, subgraph.inputs_of(call)))
            self.operands[call] = operands
            for value in operands:
                self.users[value].append(call)
            token = self._describe(call, operands)
            self.tokens.append(known.setdefault(token, len(known)))
        self.outputs = [self.value(call) for call in subgraph.outputs]
        for value in self.outputs:
            self.users[value].append(None)

    def _find_stacks(self, leaves: Sequence[Call]) -> None:
        groups: dict[Hashable, list[Call]] = defaultdict(list)
        for one in leaves:
            buffer, kind = one.buffer, one.type
            if isinstance(buffer, PartOfBuffer):
                if buffer.nbytes == math.prod(kind.shape) * kind.dtype.itemsize:
                    groups[id(buffer.whole), kind].append(one)
        for parts in groups.values():
            if len(parts) < FEWEST_COPIES - 1:
                continue
            buffer, kind = parts[0].buffer, parts[0].type
            count = buffer.whole.nbytes // buffer.nbytes
            stack = leaf(TensorType((count, *kind.shape), kind.dtype), None)
            self._leaves.add(stack)
            self.stacks[stack] = [(part, part.buffer.position) for part in parts]
            for part, position in self.stacks[stack]:
                self.elements[part, 0] = Element(Whole((stack, 0)), 0, position)

    def value(self, call: Call) -> Value:
        """A call of the subgraph as a result."""
        return (call, 0) if call in self._leaves else (call.maker, call.index)

    def is_leaf(self, value: Value) -> bool:
        """Whether a value exists before the subgraph runs."""
        return value[0] in self._leaves

    def kind(self, value: Value) -> TensorType:
        """The type of a value."""
        call, number = value
        return call.type if self.is_leaf(value) else call.signature.types[number]  # type: ignore

    def _describe(self, call: Call, operands: tuple[Value, ...]) -> Hashable:
        """Notes whether a call takes or places elements; what calls of one token have in common."""
        signature = call.signature
        assert signature is not None
        written = written_by(signature)
        if written is not None:
            self.written[call] = written
            return "write", written._replace(at=0), signature.input_types
        source = differentiated(signature)
        if source is not None and source.composite is view_write:
            return self._describe_gradient(call, source, operands[-1])
        if len(operands) != 1:
            return signature.id
        found = element_of(signature, operands[0])
        if found is not None:
            self._take(call, 0, found)
            whole = found.whole
            return signature.composite, whole.items, whole.shape, found.dim, signature.types[0]
        placed = placed_by(signature)
        if placed is not None:
            self.placed[call] = placed
            return "placed", placed._replace(at=0), signature.input_types
        for number, part in enumerate(parts_of(call, operands[0]) or ()):
            self.elements[call, number] = part
        return signature.id

    def _take(self, call: Call, output: int, element: Element) -> None:
        self.elements[call, output] = element
        self.takes[call] = output

    def _describe_gradient(self, call: Call, write: Signature, cotangent: Value) -> Hashable:
        """Notes that the gradient of a write takes the element that was written.

        The rest, in which zeros replace the element, mostly goes to the write before. Elements that
        no gradient has taken from it are those of the first cotangent.
        """
        signature, placed = call.signature, written_by(write)
        assert signature is not None
        if placed is None:
            return signature.id
        targets = targets_of(signature)
        rest = self._rests.get(cotangent)
        place = placed._replace(at=0)
        if rest is None or rest.place != place or placed.at in rest.taken:
            rest = _Rest(cotangent, place, set())
        rest.taken.add(placed.at)
        if 0 in targets:
            self._rests[call, targets.index(0)] = rest
        if 1 in targets:
            self._take(call, targets.index(1), element_at(placed, rest.source))
        return "gradient of a write", place, signature.input_types, targets


class _Rest(NamedTuple):
    """A cotangent without the elements that gradients of writes have taken, by index."""

    source: Value
    place: Placed
    taken: set[int]
