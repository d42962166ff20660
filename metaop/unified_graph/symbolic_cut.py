"""A subgraph with symbols in place of numbers in which two subgraphs of one structure differ."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import Any

from metaop.errors import MetaopError
from metaop.unified_graph.composite import Composite, Signature
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.node import Node, input_node
from metaop.unified_graph.shape_env import ShapeEnv
from metaop.unified_graph.structure import with_numbers, without_numbers
from metaop.unified_graph.symbolic import NotGeneralError, SymFloat, SymInt, hint_of
from metaop.unified_graph.symbolic_source import value_at
from metaop.unified_graph.tensor_type import TensorType


def structure_key(subgraph: Subgraph) -> Hashable:
    """The key of a subgraph without its numbers."""
    words: list[Hashable] = [without_numbers(leaf.type, []) for leaf in subgraph.leaves]
    for call in subgraph.order:
        signature = call.signature
        # Further outputs are numbered in the order in which gradients asked for them.
        words.append(None if signature is None else (signature.structure, *signature.gradients))
    return (*words, *_wiring(subgraph))


def _wiring(subgraph: Subgraph) -> Iterator[int]:
    """The key with a zero for each signature: that and numbers of calls are told apart by place."""
    numbers = iter(subgraph.key)
    seen = 0
    for call in subgraph.order:
        word = next(numbers)
        yield 0 if call.signature is not None else word
        for _ in subgraph.inputs_of(call):
            word = next(numbers)
            yield word
            if word < 0:
                seen += 1
                yield next(numbers)
    yield from numbers


def numbers_of(subgraph: Subgraph) -> tuple[float, ...]:
    """The numbers of the leaves' types and of all calls, in order."""
    found: list[float] = []
    for leaf in subgraph.leaves:
        without_numbers(leaf.type, found)
    signatures = [call.signature for call in subgraph.order if call.signature is not None]
    return (*found, *chain.from_iterable(signature.numbers for signature in signatures))


class SymbolicCut:
    """A subgraph in meta-operators on symbolic sizes.

    `inputs` and `outputs` are its nodes. `expected` has for every number of the subgraph, in the
    order of `numbers`, what it has to be.
    """

    def __init__(self, subgraph: Subgraph, others: Sequence[float]) -> None:
        """Symbols stand for the numbers in which the subgraph differs from `others`.

        Raises NotGeneralError where the structure of the subgraph depends on its numbers.
        """
        self.env = ShapeEnv()
        self.numbers = numbers_of(subgraph)
        self.expected: list[Any] = []
        self._others = iter(others)
        self._other_symbols: list[float] = []
        self._known: dict[tuple[float, float], Any] = {}
        self._reals: dict[tuple[float, float], SymFloat] = {}
        self._signatures: dict[Signature, Signature] = {}
        self.inputs: list[Node] = []
        nodes: dict[Any, list[Node]] = {}
        for slot, leaf in enumerate(subgraph.leaves):
            shape = with_numbers(leaf.type.shape, self._number)
            node = input_node(slot, shape, leaf.type.dtype)
            self.inputs.append(node)
            nodes[leaf] = [node]
        for call in subgraph.order:
            if call.signature is None:
                nodes[call] = nodes[call.inputs[0]][call.index :]
                continue
            arguments = [nodes[source][0] for source in subgraph.inputs_of(call)]
            signature = self._signature(call.signature, arguments)
            nodes[call] = signature.instantiate(arguments)
            if len(nodes[call]) != len(call.signature.outputs):
                raise NotGeneralError(f"{signature} has other outputs than {call.signature}")
        self.outputs = [nodes[call][0] for call in subgraph.outputs]

    def _number(self, here: Any) -> Any:
        """What stands for a number: itself if it never differed, what was equal, or a symbol."""
        there = next(self._others)
        if type(here) is float and here != there:
            real = self._reals.get((here, there))
            if real is None:
                real = self._reals[here, there] = self.env.real_symbol(here)
                self._other_symbols.append(there)
            self.expected.append(real)
            return real
        found = here if here == there else self._known.get((here, there))
        if found is None:
            found = self._product(here, there) or self._shifted(here, there)
        if found is None:
            found = self.env.symbol(here) if here > 0 else -self.env.symbol(-here)
            self._other_symbols.append(abs(there))
        if here != there:
            self._known[here, there] = found
        self.expected.append(found)
        return found

    def _product(self, here: Any, there: float) -> Any:
        """What is known times a plain number or something known, as the extents of a view are."""
        known = list(self._known.items())
        for position, ((one, other), expr) in enumerate(known):
            if here % one or there % other:
                continue
            rest, other_rest = here // one, there // other
            if rest == other_rest:
                return expr * rest
            for (second, other_second), factor in known[position:]:
                if rest % second == 0 and rest // second * other_second == other_rest:
                    return expr * factor * (rest // second)
        return None

    def _shifted(self, here: Any, there: float) -> Any:
        """A symbol and a distance that are as far apart in both subgraphs, as slices are."""
        for (one, other), expr in self._known.items():
            if one - here == other - there:
                return expr + (here - one)
        return None

    def _signature(self, concrete: Signature, arguments: Sequence[Node]) -> Signature:
        """The signature of a call on these arguments."""
        composite = self._composite(concrete)
        attributes = with_numbers(concrete.attributes, self._number)
        supply = iter(arguments)
        types = tuple(
            None if kind is None else self._matched(kind, next(supply))
            for kind in concrete.input_types
        )
        try:
            signature = Signature(composite, types, attributes)
        except MetaopError as error:
            # Of users' kernels, say, which take plain integers.
            raise NotGeneralError(f"{composite}: {error}") from error
        _derive_alike(concrete, signature)
        self._signatures.setdefault(concrete, signature)
        for kind, symbolic in zip(concrete.types, signature.types):
            if kind.shape != tuple(map(hint_of, symbolic.shape)):
                raise AssertionError(f"{signature} is not {concrete}")
        return signature

    def _composite(self, concrete: Signature) -> Composite:
        """The composite of a signature; one that was derived is derived from symbolic sizes."""
        derivation = concrete.composite.derivation
        if derivation is None:
            return concrete.composite
        found = derivation.again(self._source(derivation.source))
        if found is None:
            raise NotGeneralError(f"{concrete.composite} depends on sizes")
        return found

    def _source(self, concrete: Signature) -> Signature:
        """The signature from which a composite was derived, perhaps in an earlier program."""
        composite = self._composite(concrete)
        attributes = with_numbers(concrete.attributes, self._number)
        types = with_numbers(concrete.input_types, self._number)
        known = self._signatures.get(concrete)
        if known is None:
            known = self._signatures[concrete] = Signature(composite, types, attributes)
            _derive_alike(concrete, known)
        return known

    def _matched(self, kind: TensorType, node: Node) -> TensorType:
        """The type of an argument; its extents are known by their values from now on."""
        for concrete, symbolic in zip(kind.shape, node.shape):
            if concrete in (0, 1):
                if symbolic != concrete:
                    raise AssertionError(f"{node} is not {kind}")
                continue
            there = next(self._others)
            self.expected.append(symbolic)
            if type(symbolic) is SymInt:
                # Extents of 0 and 1 are of other structures.
                self.env.assume_at_least(symbolic, 2)
                if (concrete, there) not in self._known and self._other(symbolic) == there:
                    self._known[concrete, there] = symbolic
        return TensorType(node.shape, kind.dtype, kind.device)

    def _other(self, symbolic: SymInt) -> float | None:
        """What a number is in the other subgraph, if it is a number there."""
        try:
            return value_at(symbolic, self._other_symbols)
        except ZeroDivisionError:
            return None


def _derive_alike(concrete: Signature, symbolic: Signature) -> None:
    """Asks for the gradients that were asked for, so that further outputs have the same numbers."""
    for plan in tuple(concrete.gradients.values()):
        if plan is not None:
            plan.composite.derivation.again(symbolic)
    if len(symbolic.outputs) != len(concrete.outputs):
        raise NotGeneralError(f"the gradient of {concrete} depends on sizes")
