"""Signatures with symbols for the numbers in which they differ from others of one structure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from metaop.errors import MetaopError
from metaop.unified_graph.composite import Composite, Signature
from metaop.unified_graph.node import Node
from metaop.unified_graph.shape_env import ShapeEnv
from metaop.unified_graph.structure import with_attribute_numbers, with_numbers
from metaop.unified_graph.symbolic import NotGeneralError, SymFloat, SymInt, hint_of
from metaop.unified_graph.symbolic_source import value_at
from metaop.unified_graph.tensor_type import TensorType


class Symbols:
    """Replaces numbers, in order, by symbols or expressions of them, and makes signatures on these.

    `others` are the numbers of another object with the same structure. `expected` is the required
    value of every number so far. With `fixed`, real numbers must not differ.
    """

    def __init__(self, others: Sequence[float], fixed: bool = False) -> None:
        self.env = ShapeEnv()
        self._fixed = fixed
        self.expected: list[Any] = []
        self._others = others
        self._place = 0  # the number of these that have been used
        self._other_symbols: list[float] = []
        self._other_values: dict[SymInt, float | None] = {}
        self._known: dict[tuple[float, float], Any] = {}
        self._reals: dict[tuple[float, float], SymFloat] = {}
        # Keys are pairs of the signature here and in the other subgraph, because signatures that
        # are equal in one may differ in the other: for example the transpositions of two views.
        self._signatures: dict[Hashable, Signature] = {}

    def number(self, here: Any) -> Any:
        """The replacement of a number: itself if it never differs, or a known or new symbol."""
        there = self._take()
        if type(here) is float and here != there:
            if self._fixed:
                raise NotGeneralError(f"{here} was {there}")
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
        """A known expression times a number or another known one, like the extents of a view."""
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
        """A symbol plus a distance that is the same in both subgraphs, as for slices."""
        for (one, other), expr in self._known.items():
            if one - here == other - there:
                return expr + (here - one)
        return None

    def on(self, concrete: Signature, arguments: Sequence[Node]) -> Signature:
        """The signature of a call on these arguments.

        Raises NotGeneralError if it depends on its numbers.
        """
        composite = self._composite(concrete)
        start = self._place
        attributes = with_attribute_numbers(concrete, self.number)
        numbers = self._others[start : self._place]
        supply = iter(arguments)
        types = tuple(
            None if kind is None else self._matched(kind, next(supply))
            for kind in concrete.input_types
        )
        try:
            signature = Signature(composite, types, attributes)
        except MetaopError as error:
            # For example from users' kernels, which take plain integers.
            raise NotGeneralError(f"{composite}: {error}") from error
        _derive_alike(concrete, signature)
        self._signatures.setdefault(self._both(concrete, numbers, types), signature)
        for kind, symbolic in zip(concrete.types, signature.types):
            if kind.shape != tuple(map(hint_of, symbolic.shape)):
                raise AssertionError(f"{signature} is not {concrete}")
        return signature

    def _composite(self, concrete: Signature) -> Composite:
        """The composite of a signature; a derived one is derived again, on symbolic sizes."""
        derivation = concrete.composite.derivation
        if derivation is None:
            return concrete.composite
        found = derivation.again(self.alone(derivation.source))
        if found is None:
            raise NotGeneralError(f"{concrete.composite} depends on sizes")
        return found

    def alone(self, concrete: Signature) -> Signature:
        """A signature on its own numbers, such as one from which a composite was derived."""
        composite = self._composite(concrete)
        start = self._place
        attributes = with_attribute_numbers(concrete, self.number)
        numbers = self._others[start : self._place]
        types = with_numbers(concrete.input_types, self.number)
        key = self._both(concrete, numbers, types)
        known = self._signatures.get(key)
        if known is None:
            known = self._signatures[key] = Signature(composite, types, attributes)
            _derive_alike(concrete, known)
            for kind, symbolic in zip(concrete.types, known.types):
                self._learn(kind, symbolic)
        return known

    def _matched(self, kind: TensorType, node: Node) -> TensorType:
        """The type of an argument; from now on its extents are known by their values."""
        for concrete, symbolic in zip(kind.shape, node.shape):
            if concrete in (0, 1):
                if symbolic != concrete:
                    raise AssertionError(f"{node} is not {kind}")
                continue
            there = self._take()
            self.expected.append(symbolic)
            if type(symbolic) is SymInt:
                # Extents of 0 and 1 belong to other structures.
                self.env.assume_at_least(symbolic, 2)
                if (concrete, there) not in self._known and self._other(symbolic) == there:
                    self._known[concrete, there] = symbolic
        return TensorType(node.shape, kind.dtype, kind.device)

    def _take(self) -> float:
        """The next number of the other subgraph."""
        self._place += 1
        return self._others[self._place - 1]

    def _both(
        self,
        concrete: Signature,
        numbers: Sequence[float],
        types: Sequence[TensorType | None],
    ) -> Hashable:
        """A signature, with the numbers and extents of its counterpart in the other subgraph."""
        extents = [n for kind in types if kind is not None for n in kind.shape]
        there = [self._other(n) if type(n) is SymInt else n for n in extents]
        return concrete, tuple(numbers), tuple(there)

    def _learn(self, kind: TensorType, symbolic: TensorType) -> None:
        """Records the expressions of a result's extents, because later types have them again."""
        for concrete, extent in zip(kind.shape, symbolic.shape):
            there = self._other(extent) if type(extent) is SymInt else None
            if there is not None:
                self._known.setdefault((concrete, there), extent)

    def _other(self, symbolic: SymInt) -> float | None:
        """The value of a number in the other subgraph, if it is a number there."""
        if symbolic not in self._other_values:
            try:
                found = value_at(symbolic, self._other_symbols)
            except ZeroDivisionError:
                found = None
            self._other_values[symbolic] = found
        return self._other_values[symbolic]


def _derive_alike(concrete: Signature, symbolic: Signature) -> None:
    """Requests the gradients that were requested, so that further outputs have the same numbers."""
    for plan in tuple(concrete.gradients.values()):
        if plan is not None:
            plan.composite.derivation.again(symbolic)
    if [kind.dtype for kind in symbolic.types] != [kind.dtype for kind in concrete.types]:
        raise NotGeneralError(f"the gradient of {concrete} depends on sizes")
