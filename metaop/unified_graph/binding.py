"""Numbers derived from others, for all values that the guards of the symbols admit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from metaop.unified_graph.shape_env import ShapeEnv
from metaop.unified_graph.symbolic import SymInt, is_symbolic
from metaop.unified_graph.symbolic_source import function_of, source_of


class Binding:
    """A function from the numbers of a structure to other numbers derived from them.

    `source` is a Python function of the symbols that computes those, or returns None if a guard
    does not hold; after them it returns the required values of further numbers of the structure,
    whose positions are `rest`. `fixed` are numbers that must keep their values. `symbols` are the
    positions of numbers, with signs.
    """

    def __init__(
        self,
        source: str,
        fixed: Sequence[tuple[int, float]],
        symbols: Sequence[tuple[int, int]],
        rest: Sequence[int],
    ) -> None:
        self.state = source, fixed, symbols, rest
        self._symbols, self._rest = [tuple(one) for one in symbols], list(rest)
        self._fixed_at = [int(place) for place, _ in fixed]
        self._fixed_to = [number for _, number in fixed]
        self._compute: Callable[..., tuple[int, ...] | None] = function_of(source)

    @staticmethod
    def of(env: ShapeEnv, expected: Sequence[Any], values: Sequence[SymInt | int]) -> Binding:
        """The binding that computes `values`.

        `expected` has, for each number of the structure, the value that it must have.
        """
        first = {one: k for k, one in reversed(list(enumerate(expected)))}
        symbols = [(first[s], 1) if s in first else (first[-s], -1) for s in env.symbols]
        named = {place for place, _ in symbols}
        fixed = [(k, one) for k, one in enumerate(expected) if not is_symbolic(one)]
        rest = [k for k, one in enumerate(expected) if is_symbolic(one) and k not in named]
        source = source_of(env, [*values, *(expected[k] for k in rest)])
        return Binding(source, fixed, symbols, rest)

    def values_for(self, numbers: Sequence[float]) -> Sequence[int] | None:
        """Computes the values from the numbers of a structure; None if they are not admitted."""
        if [numbers[k] for k in self._fixed_at] != self._fixed_to:
            return None
        try:
            values = self._compute(*self.symbols_of(numbers))
        except ZeroDivisionError:
            return None
        if values is None or not self._rest:
            return values
        count = len(values) - len(self._rest)
        if [numbers[k] for k in self._rest] != list(values[count:]):
            return None
        return values[:count]

    def symbols_of(self, numbers: Sequence[float]) -> list[float]:
        """The values of the symbols for the numbers of a structure."""
        return [sign * numbers[place] for place, sign in self._symbols]

    @property
    def conditions(self) -> list[str]:
        """The guards, and the definitions that they use, as text."""
        found: list[str] = []
        for line in reversed(self.state[0].splitlines()[1:-1]):
            text = line.strip()
            name, is_definition, _ = text.partition(" = ")
            if text.startswith("if not "):
                found.append(text.removeprefix("if not ").removesuffix(": return None"))
            elif is_definition and any(re.search(rf"\b{name}\b", other) for other in found):
                found.append(text)
        return found[::-1]
