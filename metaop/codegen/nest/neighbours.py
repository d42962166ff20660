"""Whether an iteration of a loop accesses the neighbour of what the one before it accesses.

Iterations come in groups of `width`, of which the first has a multiple of `width` as its number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metaop.codegen.nest import ir

Access = ir.Load | ir.Store


def loads(item: object) -> Iterator[ir.Load]:
    """All loads in statements or expressions."""
    if isinstance(item, ir.Load):
        yield item
    if isinstance(item, tuple):
        for part in item:
            yield from loads(part)


def is_group_of_neighbours(
    access: Access, axis: str, width: int, arguments: Sequence[int] = ()
) -> bool:
    """Whether each group accesses neighbours, the first of which is at a multiple of `width`.

    Conditions hold for all of a group or for none. The arguments are those of the nest.
    """
    group = _Group(axis, width, arguments)
    return (
        group.step(access.offset) == 1
        and group.starts_whole(access.offset)
        and all(group.decides(condition) for condition in access.conditions)
    )


class _Group:
    """The iterations of a group."""

    def __init__(self, axis: str, width: int, arguments: Sequence[int]) -> None:
        self.own = ir.LoopIndex(axis)
        self.width = width
        self.arguments = arguments

    def decides(self, condition: ir.Condition) -> bool:
        """Whether a condition is the same for a group."""
        step = self.step(condition.index)
        if step == 0:
            return True
        is_bound = isinstance(condition, ir.InBounds) and self._is_whole(condition.extent)
        return is_bound and step == 1 and self.starts_whole(condition.index)

    def step(self, index: ir.Sum) -> int | None:
        """How much an index grows from one iteration of a group to the next; None if it varies."""
        total = 0
        for factor, coefficient in index.terms:
            step = self._step_of(factor)
            if step is None:
                return None
            if step:
                value = self._value(coefficient)
                if value is None:
                    return None
                total += step * value
        return total

    def starts_whole(self, index: ir.Sum) -> bool:
        """Whether an index is a multiple of the width in the first iteration of a group."""
        return self._is_whole(index.constant) and all(
            factor == self.own or self._is_whole(coefficient) or self._is_multiple(factor)
            for factor, coefficient in index.terms
        )

    def _step_of(self, factor: ir.Factor) -> int | None:
        if isinstance(factor, ir.LoopIndex):
            return int(factor == self.own)
        if isinstance(factor, ir.ValueIndex):
            # A value bound inside the loop may differ from one iteration to the next.
            return None
        step = self.step(factor.dividend)
        if step == 0:
            return 0
        # Within a group, the dividend does not reach the next multiple of the divisor.
        if step != 1 or not self._is_whole(factor.divisor):
            return None
        if not self.starts_whole(factor.dividend):
            return None
        return int(isinstance(factor, ir.RemainderIndex))

    def _is_multiple(self, factor: ir.Factor) -> bool:
        """Whether a factor is a multiple of the width in the first iteration of a group."""
        return (
            isinstance(factor, ir.RemainderIndex)
            and self._is_whole(factor.divisor)
            and self.starts_whole(factor.dividend)
        )

    def _is_whole(self, integer: ir.Integer | ir.ValueIndex) -> bool:
        value = self._value(integer)
        return value is not None and value % self.width == 0

    def _value(self, integer: ir.Integer | ir.ValueIndex) -> int | None:
        if isinstance(integer, ir.Argument):
            return self.arguments[integer.position] if self.arguments else None
        return None if isinstance(integer, ir.ValueIndex) else integer
