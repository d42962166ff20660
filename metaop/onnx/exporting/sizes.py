"""Sizes that depend on dynamic axes, found by comparing recordings with different sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from metaop.errors import UnsupportedError

_FIX = "leave that axis out of dynamic_axes, or make the network record the same for all sizes"


class Size(NamedTuple):
    """`constant + sum(factor * symbol)`, or with `is_product` the constant times all symbols."""

    constant: int
    terms: tuple[tuple[str, Fraction], ...]
    is_product: bool = False

    @property
    def symbol(self) -> str | None:
        """The name of a dynamic axis that this size is."""
        if self.constant == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None


class Varying(NamedTuple):
    """A number that is no size and differs between recordings."""

    values: tuple[Any, ...]


# The value of each dynamic axis in a recording.
Binding = dict[str, int]


class Sizes:
    """Finds what numbers are in terms of the dynamic axes.

    The first recording is the base; one more for each axis changes it alone, the last changes all
    and checks what was found.
    """

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self.bindings = list(bindings)
        self.symbols = list(bindings[0])

    def unified(self, values: Sequence[Any]) -> Any:
        """What recordings say of one thing: itself if they agree, sizes where numbers differ."""
        first = values[0]
        if all(type(one) is type(first) and one == first for one in values):
            return first
        if all(isinstance(one, tuple) and len(one) == len(first) for one in values):
            parts = [self.unified(part) for part in zip(*values)]
            return tuple(parts)
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
        if all(one == values[0] for one in values):
            return values[0]
        found = self._sum(values) or self._product(values)
        if found is None:
            raise UnsupportedError(
                f"a size is {', '.join(map(str, values))} where the dynamic axes are "
                f"{', '.join(str(list(one.values())) for one in self.bindings)}, which is neither "
                "a sum nor a product of them",
                fix=_FIX,
            )
        return found

    def _sum(self, values: Sequence[int]) -> Size | None:
        base = self.bindings[0]
        terms = []
        for symbol, binding, value in zip(self.symbols, self.bindings[1:], values[1:]):
            factor = Fraction(value - values[0], binding[symbol] - base[symbol])
            if factor:
                terms.append((symbol, factor))
        constant = values[0] - sum(factor * base[symbol] for symbol, factor in terms)
        if constant.denominator != 1 if isinstance(constant, Fraction) else False:
            return None
        found = Size(int(constant), tuple(terms))
        return found if self._holds(found, values) else None

    def _product(self, values: Sequence[int]) -> Size | None:
        base = self.bindings[0]
        terms = []
        for symbol, binding, value in zip(self.symbols, self.bindings[1:], values[1:]):
            if value == values[0]:
                continue
            if value * base[symbol] != values[0] * binding[symbol]:
                return None
            terms.append((symbol, Fraction(1)))
        whole = math.prod(base[symbol] for symbol, _ in terms)
        if values[0] % whole:
            return None
        found = Size(values[0] // whole, tuple(terms), True)
        return found if self._holds(found, values) else None

    def _holds(self, size: Size, values: Sequence[int]) -> bool:
        return all(evaluated(size, b) == value for b, value in zip(self.bindings, values))


def evaluated(size: int | Size, binding: Binding) -> int | Fraction:
    """The value of a size for some sizes of the dynamic axes."""
    if isinstance(size, int):
        return size
    if size.is_product:
        return size.constant * math.prod(binding[symbol] for symbol, _ in size.terms)
    return size.constant + sum(factor * binding[symbol] for symbol, factor in size.terms)
