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

# The values of one number: here, and in other objects of the same structure.
Elsewhere = tuple[Any, ...]


class Symbols:
    """Replaces numbers, in order, by symbols or expressions of them, and makes signatures on these.

    `others` are the numbers of other objects with the same structure: what relates numbers in all
    of them is taken to hold always. `expected` is the required value of every number so far. With
    `fixed`, real numbers must not differ.
    """

    def __init__(self, *others: Sequence[float], fixed: bool = False) -> None:
        self.env = ShapeEnv()
        self._fixed = fixed
        self.expected: list[Any] = []
        self._others = others
        self._place = 0  # the number of these that have been used
        # The values of the symbols in each of the others, and of what was made of them.
        self._other_symbols: list[list[float]] = [[] for _ in others]
        self._other_values: dict[SymInt, Elsewhere | None] = {}
        self._known: dict[Elsewhere, Any] = {}
        self._reals: dict[Elsewhere, SymFloat] = {}
        # Keys are pairs of the signature here and in the other subgraphs, because signatures that
        # are equal in one may differ in another: for example the transpositions of two views.
        self._signatures: dict[Hashable, Signature] = {}

    def number(self, here: Any) -> Any:
        """The replacement of a number: itself if it never differs, or a known or new symbol."""
        there = self._take()
        both = (here, *there)
        is_same = all(one == here for one in there)
        if type(here) is float and not is_same:
            if self._fixed:
                raise NotGeneralError(f"{here} was {there[0]}")
            real = self._reals.get(both)
            if real is None:
                real = self._reals[both] = self.env.real_symbol(here)
                self._note(there)
            self.expected.append(real)
            return real
        found = here if is_same else self._known.get(both)
        if found is None:
            found = self._product(both) or self._shifted(both)
        if found is None:
            found = self.env.symbol(here) if here > 0 else -self.env.symbol(-here)
            self._note([abs(one) for one in there])
        if not is_same:
            self._known[both] = found
        self.expected.append(found)
        return found

    def _note(self, there: Sequence[float]) -> None:
        """Notes the values of a new symbol in the others."""
        for values, value in zip(self._other_symbols, there):
            values.append(value)

    def _product(self, both: Elsewhere) -> Any:
        """A known expression times a number or another known one, like the extents of a view."""
        known = list(self._known.items())
        for position, (one, expr) in enumerate(known):
            rest = _quotients(both, one)
            if rest is None:
                continue
            if len(set(rest)) == 1:
                return expr * rest[0]
            for other, factor in known[position:]:
                last = _quotients(rest, other)
                if last is not None and len(set(last)) == 1:
                    return expr * factor * last[0]
        return None

    def _shifted(self, both: Elsewhere) -> Any:
        """A symbol plus a distance that is the same everywhere, as for slices."""
        for one, expr in self._known.items():
            distances = {value - known for value, known in zip(both, one)}
            if len(distances) == 1:
                return expr + distances.pop()
        return None

    def on(self, concrete: Signature, arguments: Sequence[Node]) -> Signature:
        """The signature of a call on these arguments.

        Raises NotGeneralError if it depends on its numbers.
        """
        composite = self._composite(concrete)
        start = self._place
        attributes = with_attribute_numbers(concrete, self.number)
        numbers = [others[start : self._place] for others in self._others]
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
        numbers = [others[start : self._place] for others in self._others]
        types = with_numbers(concrete.input_types, self.number)
        key = self._both(concrete, numbers, types)
        known = self._signatures.get(key)
        if known is None:
            known = self._signatures[key] = Signature(composite, types, attributes)
            _derive_alike(concrete, known)
            for symbolic in known.types:
                self._learn(symbolic)
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
                both = (concrete, *there)
                if both not in self._known and self._elsewhere(symbolic) == both:
                    self._known[both] = symbolic
        return TensorType(node.shape, kind.dtype, kind.device)

    def _take(self) -> list[float]:
        """The next number of each of the other subgraphs."""
        self._place += 1
        return [others[self._place - 1] for others in self._others]

    def _both(
        self,
        concrete: Signature,
        numbers: Sequence[Sequence[float]],
        types: Sequence[TensorType | None],
    ) -> Hashable:
        """A signature, with the numbers and extents of its counterparts in the other subgraphs."""
        extents = [n for kind in types if kind is not None for n in kind.shape]
        there = [self._elsewhere(n) if type(n) is SymInt else n for n in extents]
        return concrete, tuple(map(tuple, numbers)), tuple(there)

    def _learn(self, symbolic: TensorType) -> None:
        """Records the expressions of a result's extents, because later types have them again."""
        for extent in symbolic.shape:
            both = self._elsewhere(extent) if type(extent) is SymInt else None
            if both is not None:
                self._known.setdefault(both, extent)

    def _elsewhere(self, symbolic: SymInt) -> Elsewhere | None:
        """The values of a number here and in the other subgraphs, if it is a number there."""
        if symbolic not in self._other_values:
            try:
                there = [value_at(symbolic, symbols) for symbols in self._other_symbols]
                self._other_values[symbolic] = (symbolic.hint, *there)
            except ZeroDivisionError:
                self._other_values[symbolic] = None
        return self._other_values[symbolic]


def _quotients(values: Elsewhere, divisors: Elsewhere) -> Elsewhere | None:
    """What is left of values by dividing each by a divisor, if nothing remains of any."""
    if 0 in divisors or any(value % divisor for value, divisor in zip(values, divisors)):
        return None
    return tuple(value // divisor for value, divisor in zip(values, divisors))


def _derive_alike(concrete: Signature, symbolic: Signature) -> None:
    """Requests the gradients that were requested, so that further outputs have the same numbers."""
    for plan in tuple(concrete.gradients.values()):
        if plan is not None:
            plan.composite.derivation.again(symbolic)
    if [kind.dtype for kind in symbolic.types] != [kind.dtype for kind in concrete.types]:
        raise NotGeneralError(f"the gradient of {concrete} depends on sizes")
