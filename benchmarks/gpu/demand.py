"""What a launch asks of a GPU, counted from its loop nest and its layout over threads.

Statements are counted as their loops repeat them, guards as if they held. An instruction is
counted for each operation (a multiplication that is added to something is one with the addition),
access and division of an index. As compilers hoist them, loads in loops that are written out count
once for the axes they depend on, 16 bytes of shared memory or of a part at once, and divisions once
for the innermost loop that changes them. Sectors are those that the 32 lanes of the first warp
touch in the first iteration. What a user's own text does is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np

from benchmarks.gpu.model import Demand
from metaop.codegen.cuda.groups import is_shared_by_groups
from metaop.codegen.cuda.kernels import Launch
from metaop.codegen.cuda.nvrtc import Usage
from metaop.codegen.cuda.parts import numbered
from metaop.codegen.nest import ir
from metaop.fusion.inline import function_cost
from metaop.unified_graph import dtype as dtypes

_WARP, _SECTOR = 32, 32
_TOGETHER = 16
# The bytes of a word of shared memory; it has as many banks as a warp has lanes.
_BANK = 4
# Instructions: a division by a number, a test of bounds, a turn of a loop, a sum over a warp.
_DIVISION, _TEST, _TURN, _COMBINED = 3, 2, 2, 10
# Iterations of a loop whose extent data tell: what its layout assumes.
_UNKNOWN = 32
# A thread's registers besides its tile, where no compiler tells them.
_OTHER_REGISTERS = 40


def demand_of(
    nest: ir.LoopNest,
    sizes: Sequence[int],
    operations: int,
    launch: Launch,
    most_blocks: int,
    usage: Usage | None,
) -> Demand:
    """The demand of a nest on buffers of so many bytes; `operations` are those of its graph.

    Without the compiler's `usage`, registers and shared memory are those that it declares.
    """
    layout = launch.layout
    counter = _Counter(nest, launch)
    counter.count()
    each = layout.rows * (layout.parts.width if layout.lanes == 1 else 1)
    if usage is None:
        usage = declared(nest)
    reads = [p.dtype for p in nest.parameters if p.role == "read"]
    is_product = nest.name.startswith("contraction") and bool(reads)
    return Demand(
        name=nest.name,
        pieces=max(-(-nest.tasks // each), 1),
        blocks=layout.blocks(nest, most_blocks),
        threads=layout.threads,
        registers=usage.registers,
        shared=usage.shared,
        nbytes=sum(counter.touched(number, size) for number, size in enumerate(sizes)),
        operations=operations,
        instructions=counter.instructions,
        sectors=counter.sectors,
        products=reads[0].name if is_product else "",
        is_double=any(p.dtype is dtypes.float64 for p in nest.parameters),
        tensor_operations=counter.tensor_operations,
    )


def declared(nest: ir.LoopNest) -> Usage:
    """Registers and shared memory by what the nest allocates."""
    found = {"shared": 0, "register": 0}
    for alloc in _allocations(nest.body):
        found[alloc.space] += _plain(alloc.elements, nest) * alloc.dtype.itemsize
    return Usage(_OTHER_REGISTERS + found["register"] // 4, 0, 0, found["shared"])


def _allocations(body: Iterable[ir.Statement]) -> Iterable[ir.Alloc]:
    for statement in body:
        if isinstance(statement, ir.Alloc):
            yield statement
        elif isinstance(statement, ir.For):
            yield from _allocations(statement.body)


def _plain(integer: ir.Integer | ir.ValueIndex, nest: ir.LoopNest) -> int:
    if isinstance(integer, ir.ValueIndex):
        return _UNKNOWN
    return nest.arguments[integer.position] if isinstance(integer, ir.Argument) else integer


class _Counter:
    """Walks a nest; `instructions` and `sectors` are those of all warps together."""

    def __init__(self, nest: ir.LoopNest, launch: Launch) -> None:
        self.nest, self.layout = nest, launch.layout
        self.instructions = self.sectors = self.tensor_operations = 0.0
        self._requested: dict[int, float] = {}
        widths = dict(self.layout.parts.widths)
        # The loop of each access that comes in parts, and how many neighbours it takes.
        self._in_parts = {
            id(access): (loop.axis, widths[position])
            for position, (access, loop) in enumerate(numbered(nest.body))
            if position in widths and loop is not None
        }
        self._registers = {
            alloc.buffer for alloc in _allocations(nest.body) if alloc.space == "register"
        }
        self._sizes = {a.buffer: a.dtype.itemsize for a in _allocations(nest.body)}
        self._sizes.update((k, p.dtype.itemsize) for k, p in enumerate(nest.parameters))
        # The axis along which lanes lie, in how many groups, and the extents of loops that are
        # written out.
        self._lanes = ""
        self._groups = 1
        self._written_out: dict[str, int] = {}
        # The loops around a statement and how often a warp repeats each, the outermost first.
        self._loops: list[tuple[str, float]] = []

    def count(self) -> None:
        """Counts the whole nest."""
        *before, last = self.nest.body
        layout = self.layout
        warps = -(-layout.lanes // _WARP)
        if not (isinstance(last, ir.For) and last.kind == "parallel"):
            self._loops.append(("", warps))
            self._body(self.nest.body, warps)
            return
        self._body(before, warps)
        if layout.lanes == 1:
            self._lanes = last.axis
            warps = -(-min(layout.rows, _WARP) // _WARP)
            warps *= -(-self.nest.tasks // min(layout.rows, _WARP))
        else:
            warps *= self.nest.tasks
        self._loops.append((last.axis, warps))
        self._body(last.body, warps)

    def touched(self, buffer: int, size: int) -> int:
        """The bytes of a buffer that are read or written: at most what is asked for."""
        return min(size, int(self._requested.get(buffer, size / _SECTOR) * _SECTOR))

    def _body(self, body: Iterable[ir.Statement], times: float) -> None:
        seen: set[int] = set()
        for statement in body:
            if isinstance(statement, ir.For):
                self._loop(statement, times)
            else:
                self._statement(statement, times, seen)

    def _loop(self, loop: ir.For, times: float) -> None:
        extent = _plain(loop.extent, self.nest)
        outer = self._lanes
        if loop.kind == "unroll":
            self._written_out[loop.axis] = extent
            self._loops.append((loop.axis, extent))
            self._body(loop.body, times * extent)
            self._loops.pop()
            del self._written_out[loop.axis]
            return
        groups, lanes = self._groups, self.layout.lanes
        if loop.vector and lanes > 1 and not outer:
            self._lanes = loop.axis
            extent = -(-extent // (lanes // groups))
            # What groups of lanes have is combined behind the loop around.
            self.instructions += times * _COMBINED * len(loop.accumulators) * (groups == 1)
        elif lanes > 1 and not outer and is_shared_by_groups(loop):
            self._groups = self.layout.groups
            extent = -(-extent // self._groups)
            self.instructions += times * _COMBINED * len(loop.accumulators)
        times *= extent
        self.instructions += times * _TURN
        self._loops.append((loop.axis, extent))
        self._body(loop.body, times)
        self._loops.pop()
        self._lanes, self._groups = outer, groups

    def _statement(self, statement: ir.Statement, times: float, seen: set[int]) -> None:
        if isinstance(statement, (ir.Let, ir.CheckedIndex)):
            self._value(statement.value, times, seen)
            if isinstance(statement, ir.CheckedIndex):
                self.instructions += times * _TEST
        elif isinstance(statement, ir.WarpProduct):
            self._warp_product(statement, times)
        elif isinstance(statement, ir.Accumulate):
            self._sum(statement.value, times, seen)
        elif isinstance(statement, ir.Store):
            self._value(statement.value, times, seen)
            self._access(statement, times)
        elif isinstance(statement, ir.Update):
            self._sum(statement.value, times, seen)
            if statement.buffer not in self._registers:
                self._access(statement, 2 * times)

    def _warp_product(self, product: ir.WarpProduct, times: float) -> None:
        """Each instruction loads a square of a panel, or multiplies half of one."""
        down, across = product.rows // ir.WARP_ROWS, product.columns // ir.WARP_COLUMNS
        self.instructions += times * (down + across / 2 + down * across)
        elements = (product.rows + product.columns) * ir.WARP_STEPS
        self.sectors += times * elements * product.dtype.itemsize / _SECTOR
        self.tensor_operations += times * 2 * product.rows * product.columns * ir.WARP_STEPS

    def _sum(self, value: ir.Expr, times: float, seen: set[int]) -> None:
        """A value that is combined with what is there."""
        is_product = isinstance(value, ir.Apply) and value.function == "mul"
        self._value(value, times, seen)
        self.instructions += 0 if is_product else times

    def _value(self, value: ir.Expr, times: float, seen: set[int]) -> None:
        for part in ir.parts_of(value, seen):
            if isinstance(part, ir.Apply):
                factors = [x for x in part.operands if isinstance(x, ir.Apply)]
                fused = part.function in ("add", "sub") and any(
                    factor.function == "mul" for factor in factors
                )
                self.instructions += times * (function_cost(part.function) - fused)
            elif isinstance(part, ir.Load):
                self._access(part, times)
            elif isinstance(part, ir.Choose):
                self.instructions += times * (1 + _TEST * len(part.conditions))
            elif isinstance(part, ir.IndexValue):
                self.instructions += times
                self._divisions(part.index)

    # --- memory -----------------------------------------------------------------------------

    def _access(self, access: ir.Load | ir.Store | ir.Update, times: float) -> None:
        if access.buffer in self._registers:
            return
        free = {
            axis: extent
            for axis, extent in self._written_out.items()
            if _depends(access.offset, axis)
        }
        # Hoisted out of the loops on which it does not depend.
        times /= prod(extent for axis, extent in self._written_out.items() if axis not in free)
        size = self._sizes[access.buffer]
        places = self._places(access.offset, free) * size
        groups = np.arange(places.shape[1])
        along, width = self._in_parts.get(id(access), ("", 1))
        if access.buffer < 0 or along in free:
            groups = np.unique(places[0] // _TOGETHER, return_inverse=True)[1]
        count = int(groups.max()) + 1
        times /= places.shape[1]
        lanes = [places[:, groups == k] for k in range(count)]
        touched = sum(_sectors(one, size, access.buffer < 0) for one in lanes)
        width = 1 if along in free else width
        own = 1 + _TEST * len(access.conditions)
        self.instructions += times * count * own / width
        self._divisions(access.offset)
        self.sectors += times * touched
        asked = self._requested.get(access.buffer, 0.0)
        self._requested[access.buffer] = asked + times * touched

    def _places(self, offset: ir.Sum, free: Mapping[str, int]) -> np.ndarray:
        """The elements of the lanes of a warp (rows) in all iterations of the free axes (columns).

        What depends on data lies far apart from lane to lane.
        """
        number = np.arange(prod(free.values()), dtype=np.int64)[None]
        lanes = np.arange(_WARP if self._lanes else 1, dtype=np.int64)[:, None]
        values, spread = {self._lanes: lanes}, 0 * (lanes + number)
        for axis, extent in free.items():
            values[axis], number = number % extent, number // extent
        return self._index(offset, values) + spread

    def _index(self, index: ir.Sum, values: Mapping[str, np.ndarray]) -> np.ndarray:
        total = np.full((1, 1), _plain(index.constant, self.nest), np.int64)
        for factor, coefficient in index.terms:
            total = total + self._factor(factor, values) * _plain(coefficient, self.nest)
        return total

    def _factor(self, factor: ir.Factor, values: Mapping[str, np.ndarray]) -> np.ndarray:
        if isinstance(factor, ir.LoopIndex):
            return values.get(factor.axis, np.zeros((1, 1), np.int64))
        if isinstance(factor, ir.ValueIndex):
            return values[self._lanes] * _SECTOR
        inner, divisor = self._index(factor.dividend, values), _plain(factor.divisor, self.nest)
        return inner // divisor if isinstance(factor, ir.QuotientIndex) else inner % divisor

    def _divisions(self, index: ir.Sum) -> None:
        """Counts the divisions of an index that are left when loops have been written out."""
        for factor, _ in index.terms:
            if isinstance(factor, (ir.QuotientIndex, ir.RemainderIndex)):
                axes = _axes(factor.dividend)
                if not axes <= self._written_out.keys():
                    divisor = _plain(factor.divisor, self.nest)
                    cost = _DIVISION if divisor & (divisor - 1) else 1
                    self.instructions += cost * self._repeated(axes)
                    self._divisions(factor.dividend)

    def _repeated(self, axes: set[str]) -> float:
        """How often the innermost loop runs that changes what depends on some axes."""
        changing = [k for k, (axis, _) in enumerate(self._loops) if axis in axes]
        # A bound name changes with whatever binds it.
        known = {axis for axis, _ in self._loops}
        last = changing[-1] if changing and axes <= known else len(self._loops) - 1
        return prod(times for _, times in self._loops[: last + 1])


def _sectors(places: np.ndarray, size: int, is_shared: bool) -> int:
    """The sectors that lanes touch at some bytes.

    Shared memory gives a word of each bank at a time, which takes as long as four sectors.
    """
    count = len(np.unique(places // _SECTOR))
    if not is_shared:
        return count
    words = np.unique([places // _BANK + k for k in range(-(-size // _BANK))])
    turns = int(np.bincount(words % _WARP).max())
    return min(count, turns * _WARP * _BANK // _SECTOR)


def _depends(index: ir.Sum, axis: str) -> bool:
    return axis in _axes(index)


def _axes(index: ir.Sum) -> set[str]:
    """The loops on which an index depends; a bound name stands for itself."""
    found: set[str] = set()
    for factor, _ in index.terms:
        if isinstance(factor, ir.LoopIndex):
            found.add(factor.axis)
        elif isinstance(factor, ir.ValueIndex):
            found.add(factor.name)
        else:
            found |= _axes(factor.dividend)
    return found
