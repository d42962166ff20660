"""Conditions on indices as booleans, uniform or as masks."""

from __future__ import annotations

from metaop.codegen.llvm.emission.lanes import SMALL, LaneArithmetic, Resolved
from metaop.codegen.llvm.emission.scalars import Coefficient
from metaop.codegen.nest.ir import Condition, InBounds, Integer, Sum


class Conditions(LaneArithmetic):
    """The part of `IndexWriter` that decides where conditions hold."""

    def integer(self, value: Integer) -> Coefficient:
        """A literal or the name of an argument."""
        raise NotImplementedError

    def resolve(self, index: Sum, copy: int = 0) -> Resolved:
        """The sum as a uniform part and a part that varies between lanes."""
        raise NotImplementedError

    def conditions(
        self, conditions: tuple[Condition, ...], copy: int
    ) -> tuple[str | None, str | None]:
        """The conjunction as (an i1, a vector of i1); None stands for true."""
        scalar: str | None = None
        lanes: str | None = None
        for condition in conditions:
            if condition in self.assumed:
                continue
            index = self.resolve(condition.index, copy)
            if index.varies:
                mask = self._lanes_hold(condition, index)
                lanes = mask if lanes is None else self.both(lanes, mask, self.lanes.count)
            else:
                holds = self._holds(condition, self.total(index))
                scalar = holds if scalar is None else self.both(scalar, holds, 1)
        return scalar, lanes

    def _holds(self, condition: Condition, index: Coefficient) -> str:
        code = self.code
        if isinstance(condition, InBounds):
            extent = self.integer(condition.extent)
            if isinstance(index, int) and isinstance(extent, int):
                return "true" if 0 <= index < extent else "false"
            limit = self.limit(index)
            if limit is not None and isinstance(extent, int) and limit < extent:
                return "true"
            return code.pure(f"icmp ult i64 {index}, {extent}", str(index), str(extent))
        divisor = self.integer(condition.divisor)
        rest = self.binary("srem", index, divisor)
        if isinstance(rest, int):
            return "true" if rest == 0 else "false"
        return code.pure(f"icmp eq i64 {rest}, 0", rest)

    def _lanes_hold(self, condition: Condition, index: Resolved) -> str:
        bound = self.bound(index)
        if isinstance(condition, InBounds):
            extent = self.integer(condition.extent)
            if bound is not None:
                return self._lanes_inside(index, bound, extent)
            return self.compare("ult", self.vector(index), self.splat(extent))
        divisor = self.integer(condition.divisor)
        rest = self.binary("srem", self.total(index.uniform), divisor)
        if bound is not None and isinstance(divisor, int) and divisor + bound < SMALL:
            return self.small_multiples(index, rest, divisor)
        # The floor q of the quotient has q * divisor == index.
        quotients = self.wide_quotients(index, rest, divisor)
        product = self.vector_binary("mul", quotients, self.splat(divisor))
        return self.compare("eq", product, self.vector(index, rest))

    def _lanes_inside(self, index: Resolved, bound: int, extent: Coefficient) -> str:
        """`0 <= start + part < extent`, or `-start <= part < extent - start`, in 32 bits.

        A start or a limit beyond the reach of all parts may be clamped.
        """
        start = self.total(index.uniform)
        if isinstance(extent, int) and extent + bound < SMALL and isinstance(start, str):
            near = self.splat(self.clamped(start, -bound - 1, extent + bound), "i32")
            moved = self.vector_binary("add", near, self.small_part(index), "i32")
            return self.compare("ult", moved, self.splat(extent, "i32"), "i32")
        first = self.clamped(self.binary("sub", 0, start), -bound - 1, bound + 1)
        last = self.clamped(self.binary("sub", extent, start), -bound - 1, bound + 1)
        width = self.narrow_difference(last, first)
        moved = self.small_part(index)
        if first != 0:
            moved = self.vector_binary("sub", moved, self.splat(first, "i32"), "i32")
        return self.compare("ult", moved, self.splat(width, "i32"), "i32")
