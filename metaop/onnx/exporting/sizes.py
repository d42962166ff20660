"""Sizes that depend on dynamic axes, found by comparing recordings with different sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

from metaop.errors import UnsupportedError

_FIX = "remove that axis from dynamic_axes, or make the network record the same for all sizes"
# Each doubles the number of recordings.
_MOST_SYMBOLS = 5

# The value of each dynamic axis in a recording.
Binding = dict[str, int]
Symbols = tuple[str, ...]


class Size(NamedTuple):
    """A sum of products of dynamic axes: maps each product to its coefficient in `numerators`.

    The sum is divided by `denominator`. The empty product is the constant term.
    """

    numerators: tuple[tuple[Symbols, int], ...]
    denominator: int = 1

    @property
    def symbol(self) -> str | None:
        """The name of the dynamic axis that equals this size, if any."""
        if self.denominator != 1 or len(self.numerators) != 1:
            return None
        symbols, factor = self.numerators[0]
        return symbols[0] if len(symbols) == 1 and factor == 1 else None

    def plus(self, number: int) -> Size:
        """This size plus a number."""
        sums = dict(self.numerators)
        sums[()] = sums.get((), 0) + number * self.denominator
        return Size(tuple(sorted((k, v) for k, v in sums.items() if v)), self.denominator)

    def value(self, binding: Binding) -> Fraction:
        """The size for some sizes of the dynamic axes."""
        total = sum(
            factor * math.prod(binding[symbol] for symbol in symbols)
            for symbols, factor in self.numerators
        )
        return Fraction(total, self.denominator)


class Varying(NamedTuple):
    """A number that differs between recordings but is not a size."""

    values: tuple[Any, ...]


def bindings_of(values: dict[str, tuple[int, int, int]]) -> list[Binding]:
    """The sizes to record: all combinations of each axis' first two values, then all thirds."""
    if len(values) > _MOST_SYMBOLS:
        raise UnsupportedError(
            f"{len(values)} dynamic axes; metaop exports up to {_MOST_SYMBOLS}",
            fix="give axes that are always equal one name, in the form {axis: name}",
        )
    names = list(values)
    rows = [dict(zip(names, row)) for row in product(*(values[name][:2] for name in names))]
    return [*rows, {name: values[name][2] for name in names}] if names else rows


class Sizes:
    """Expresses numbers in terms of the dynamic axes; the last recording checks them."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self.bindings = list(bindings)
        self.symbols = list(bindings[0])
        self._found: dict[tuple[int, ...], Size] = {}

    def unified(self, values: Sequence[Any]) -> Any:
        """Merges a value of all recordings: itself if they agree, sizes where numbers differ."""
        first = values[0]
        if all(type(one) is type(first) and one == first for one in values):
            return first
        if all(isinstance(one, tuple) and len(one) == len(first) for one in values):
            return tuple(self.unified(part) for part in zip(*values))
        if all(type(one) is int for one in values):
            return self.size(values)
        if all(isinstance(one, (int, float)) for one in values):
            return Varying(tuple(values))
        raise UnsupportedError(
            f"the network records different things for different sizes: {first!r} and "
            f"{next(one for one in values if one != first)!r}",
            fix=_FIX,
        )

    def size(self, values: Sequence[int]) -> int | Size:
        """The number as a size."""
        key = tuple(values)
        if len(set(key)) == 1:
            return key[0]
        if key not in self._found:
            terms = self._polynomial(self.symbols, {}, key)
            denominator = math.lcm(*(one.denominator for one in terms.values()))
            numerators = {symbols: int(one * denominator) for symbols, one in terms.items()}
            found = Size(tuple(sorted((k, v) for k, v in numerators.items() if v)), denominator)
            if any(found.value(b) != value for b, value in zip(self.bindings, key)):
                raise UnsupportedError(
                    f"a size is {', '.join(map(str, key))} where the dynamic axes are "
                    f"{', '.join(str(list(one.values())) for one in self.bindings)}, which is not "
                    "a sum of products of them",
                    fix=_FIX,
                )
            self._found[key] = found
        return self._found[key]

    def _polynomial(
        self, symbols: Sequence[str], fixed: Binding, values: tuple[int, ...]
    ) -> dict[Symbols, Fraction]:
        """The polynomial, linear in every symbol, from values at two points of each."""
        if not symbols:
            return {(): Fraction(values[self.bindings.index(fixed)])}
        symbol, rest = symbols[0], symbols[1:]
        ends = sorted({binding[symbol] for binding in self.bindings[:-1]})
        low, high = (self._polynomial(rest, {**fixed, symbol: end}, values) for end in ends)
        found: dict[Symbols, Fraction] = {}
        for key in {*low, *high}:
            slope = (high.get(key, Fraction(0)) - low.get(key, Fraction(0))) / (ends[1] - ends[0])
            found[key] = low.get(key, Fraction(0)) - ends[0] * slope
            longer = (symbol, *key)
            found[longer] = slope
        return found
