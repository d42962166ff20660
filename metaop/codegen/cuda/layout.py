"""How a loop nest is mapped to the threads of a GPU, derived from the nest alone.

Each iteration of the parallel loop runs on one thread, or it is a *row*: a group of lanes shares
the iterations of the vector loops inside it and combines their accumulators.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from metaop.codegen.cuda.groups import is_shared_by_groups, vector_loop_of
from metaop.codegen.cuda.parts import NO_PARTS, Parts, parts_of
from metaop.codegen.cuda.ranges import fits_in_32_bits
from metaop.codegen.cuda.warp_product import max_sums
from metaop.codegen.nest import ir

_WARP = 32
BLOCK = 256
_LARGEST_ROW = 512
# The iterations of a lane before another warp is added, and with how many in all each is a lane's.
_OF_LANE, _FEW_ELEMENTS = 4, 1 << 17
# The loops that all lanes of a block may take at once.
_BLOCKS = {64, 128, 256, 512}
# One thread computes shorter rows, because most lanes of a warp would be idle.
_SHORT_ROW = 8
# The threads that a multiprocessor holds if each has a tile in registers, and the fewest blocks.
# NVRTC takes too many registers for one thread otherwise, or spills some to hold more threads.
_WITH_TILES, _FEWEST = 384, 2
# The registers of a multiprocessor; those of a lane that has many sums of a warp's product, or few.
_REGISTERS, _MANY, _FEW, _FEW_SUMS = 1 << 16, 256, 128, 64
# Smaller maps need every thread that they can get.
_LARGE_MAP = 1 << 16
# The tasks of a block of a large launch.
_TURNS = 4
# The fewest scans that fill a GPU with a warp for each.
_MANY_SCANS = 1 << 12


@dataclass(frozen=True)
class Layout:
    """`lanes` threads (1, or a power of two from 32) for a row, `rows` rows in a block.

    `index_type` is the C++ type of loop variables and offsets, `parts` the accesses to several
    elements at a time, `resident` the blocks that a multiprocessor has to hold at least (0: as many
    as the compiler likes). Where iterations of a loop around a vector loop do not depend on each
    other, `groups` of lanes take them in turn.
    """

    lanes: int
    rows: int
    index_type: str
    parts: Parts = NO_PARTS
    resident: int = 0
    groups: int = 1

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.lanes * self.rows

    def blocks(self, nest: ir.LoopNest, most: int) -> int:
        """The blocks of a launch: enough for all tasks, but at most `most`.

        Of a large launch, a block does only a few tasks in turn, however many blocks that takes: so
        multiprocessors end at about the same time.
        """
        each = self.rows * (self.parts.width if self.lanes == 1 else 1)
        pieces = -(-nest.tasks // each)
        return max(min(pieces, max(most, pieces // _TURNS)), 1)


def layout_of(nest: ir.LoopNest) -> Layout:
    """The layout of a nest with the current values of its arguments."""
    index_type = "int" if fits_in_32_bits(nest) else "long long"
    task_body, has_tasks = task_of(nest)
    together = [s.threads for s in task_body if isinstance(s, ir.ForeignCall) and s.threads > 1]
    if together:
        return Layout(together[0], 1, index_type)
    loops = list(vector_loops(task_body))
    extents = [_value(loop.extent, nest) for loop in loops]
    shared = list(_shared_by_groups(task_body, nest))
    longest = max([*extents, *map(math.prod, shared)], default=0)
    if not extents or (has_tasks and longest < _SHORT_ROW):
        parts = parts_of(nest) if not extents and nest.tasks >= _LARGE_MAP else NO_PARTS
        return Layout(1, BLOCK if has_tasks else 1, index_type, parts)
    spaces = {s.space for s in task_body if isinstance(s, ir.Alloc)}
    if "register" in spaces or (spaces and set(extents) <= {longest} & _BLOCKS):
        # The lanes of a block share memory, and keep values in registers from one loop to the next,
        # so each takes one iteration.
        resident = max(_WITH_TILES // longest, _FEWEST) if "register" in spaces else 0
        sums = max_sums(task_body)
        if sums:
            resident = _REGISTERS // (longest * (_MANY if sums > _FEW_SUMS else _FEW))
        return Layout(longest, 1, index_type, parts_of(nest), resident)
    if spaces:
        return Layout(lanes_for(longest), 1, index_type, parts_of(nest))
    if nest.tasks >= _MANY_SCANS and any(map(_runs, loops)):
        # A warp carries its result on without waiting for others.
        longest = _WARP
    combines = any(loop.accumulators for loop in loops)
    few = not combines and nest.tasks * longest < _FEW_ELEMENTS
    # Few elements need every lane that they can get, if lanes combine nothing.
    parts = NO_PARTS if few else parts_of(nest)
    lanes = lanes_for(longest, 1 if few else _OF_LANE)
    rows = BLOCK // lanes if has_tasks and lanes == _WARP else 1
    return Layout(lanes, rows, index_type, parts, groups=_groups(shared, lanes, parts.width))


def _shared_by_groups(
    body: tuple[ir.Statement, ...], nest: ir.LoopNest
) -> Iterator[tuple[int, int]]:
    """The iterations of the loops that groups of lanes share, and of the vector loops inside."""
    for loop in body:
        if not isinstance(loop, ir.For) or loop.vector:
            continue
        inner = vector_loop_of(loop)
        if inner is not None and is_shared_by_groups(loop):
            yield _value(loop.extent, nest), _value(inner.extent, nest)
        else:
            yield from _shared_by_groups(loop.body, nest)


def _groups(shared: list[tuple[int, int]], lanes: int, width: int) -> int:
    """The groups of lanes that need the fewest turns for the longest loop that they share."""
    outer, inner = max(shared, key=math.prod, default=(1, 1))
    parts = -(-inner // width)
    # Lanes of a warp read neighbours, if there are so many.
    least = min(1 << (parts - 1).bit_length(), _WARP)

    def turns(groups: int) -> int:
        return -(-outer // groups) * -(-parts // (lanes // groups))

    # Of equal ones the largest number: each lane then has more reads at once.
    most = lanes // least
    return min((most >> k for k in range(most.bit_length())), key=turns) if shared else 1


def _runs(loop: ir.For) -> bool:
    """Whether each lane of a loop needs what is accumulated up to it."""
    return any(one.running for one in loop.accumulators)


def lanes_for(longest: int, each: int = _OF_LANE) -> int:
    """The lanes of a row, given the iterations of its longest vector loop.

    A lane has at least `each` before another warp is added.
    """
    lanes = _WARP
    while lanes < _LARGEST_ROW and lanes * each < longest:
        lanes *= 2
    return lanes


def rows_for(longest: int) -> int:
    """The rows of a block, given the iterations of the longest vector loop."""
    if longest < _SHORT_ROW:
        return BLOCK
    lanes = lanes_for(longest)
    return BLOCK // lanes if lanes == _WARP else 1


def vector_loops(body: tuple[ir.Statement, ...]) -> Iterator[ir.For]:
    """The vector loops inside a task, outermost only."""
    for statement in body:
        if isinstance(statement, ir.For):
            if statement.vector:
                yield statement
            else:
                yield from vector_loops(statement.body)


def task_of(nest: ir.LoopNest) -> tuple[tuple[ir.Statement, ...], bool]:
    """The body of a task, and whether there are several tasks."""
    last = nest.body[-1]
    if isinstance(last, ir.For) and last.kind == "parallel":
        return ((), True) if last.vector else (last.body, True)
    return nest.body, False


def _value(extent: ir.Integer | ir.ValueIndex, nest: ir.LoopNest) -> int:
    if isinstance(extent, ir.ValueIndex):
        return _WARP
    return nest.arguments[extent.position] if isinstance(extent, ir.Argument) else extent
