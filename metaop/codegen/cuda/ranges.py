"""Bounds of the indices of a nest, which decide whether 32-bit arithmetic suffices."""

from __future__ import annotations

from metaop.codegen.nest import ir

# Below this, an index may still be added to the stride of a grid without overflow.
_LIMIT = 1 << 30
_UNKNOWN = 1 << 62
_INT32 = range(-(1 << 31), 1 << 31)


def fits_in_32_bits(nest: ir.LoopNest) -> bool:
    """Whether every index of the nest, including partial sums, stays well inside 32 bits.

    Integers among its values must fit too: in a general kernel they are arguments of that type.
    """
    return _Bounds(nest).largest < _LIMIT


class _Bounds:
    """Walks a nest; `largest` is the greatest magnitude that an index can reach."""

    def __init__(self, nest: ir.LoopNest) -> None:
        self.arguments = nest.arguments
        self.known: dict[str, int] = {}
        self.largest = 0
        self._visit(nest.body)

    def _visit(self, item: object) -> None:
        if isinstance(item, ir.For):
            extent = item.extent
            self.known[item.axis] = (
                _UNKNOWN if isinstance(extent, ir.ValueIndex) else self._integer(extent)
            )
            self.largest = max(self.largest, self.known[item.axis])
            self._visit(item.body)
        elif isinstance(item, ir.Sum):
            self.largest = max(self.largest, self._magnitude(item))
        elif isinstance(item, ir.Number):
            if item.dtype.kind == "int" and item.value not in _INT32:
                self.largest = _UNKNOWN
        elif isinstance(item, ir.CheckedIndex):
            self._visit((item.value, item.conditions))
            self.known[item.name] = self._integer(item.bound)
        elif isinstance(item, tuple):
            for part in item:
                self._visit(part)

    def _integer(self, value: ir.Integer) -> int:
        return abs(self.arguments[value.position] if isinstance(value, ir.Argument) else value)

    def _magnitude(self, index: ir.Sum) -> int:
        total = self._integer(index.constant)
        for factor, coefficient in index.terms:
            total += self._factor(factor) * self._integer(coefficient)
        return total

    def _factor(self, factor: ir.Factor) -> int:
        if isinstance(factor, ir.LoopIndex):
            return self.known[factor.axis]
        if isinstance(factor, ir.ValueIndex):
            return self.known.get(factor.name, _UNKNOWN)
        inside = self._magnitude(factor.dividend)
        self.largest = max(self.largest, inside)
        divisor = self._integer(factor.divisor)
        if isinstance(factor, ir.QuotientIndex):
            return inside // max(divisor, 1)
        return min(inside, divisor)
