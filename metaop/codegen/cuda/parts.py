"""Vectorised accesses: several neighbouring elements at once, if a vector loop runs along memory.

A lane then takes `width` neighbouring iterations in turn. It loads a part of each array before them
and stores a part after them, 16 bytes at a time for the widest type.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from metaop.codegen.cuda.hazards import accesses
from metaop.codegen.nest import ir
from metaop.codegen.nest.neighbours import Access, is_group_of_neighbours, loads

_BYTES = 16


@dataclass(frozen=True)
class Parts:
    """`width` neighbours at once; `positions` are the numbers of the vectorised accesses of a nest.

    `numbered` counts accesses in an order that is the same for all nests of one form, so a kernel
    that was compiled for one of them knows what it may assume of the others.
    """

    width: int = 1
    positions: frozenset[int] = frozenset()


NO_PARTS = Parts()


def numbered(body: object, loop: ir.For | None = None) -> Iterator[tuple[Access, ir.For | None]]:
    """All loads and stores in order, each with its innermost straight-line vector loop."""
    if isinstance(body, ir.For) and body.vector and not _has_loops(body.body):
        loop = body
    if isinstance(body, (ir.Load, ir.Store)):
        yield body, loop
    if isinstance(body, tuple):
        for item in body:
            yield from numbered(item, loop)


def parts_of(nest: ir.LoopNest) -> Parts:
    """The parts of a nest with the current values of its arguments."""
    found = list(numbered(nest.body))
    along = [
        (position, access, loop)
        for position, (access, loop) in enumerate(found)
        if loop is not None and access.buffer >= 0 and _is_near(access, loop, nest)
    ]
    sizes = [nest.parameters[access.buffer].dtype.itemsize for _, access, _ in along]
    width = _BYTES // max(sizes, default=_BYTES)
    positions = frozenset(
        position
        for position, access, loop in along
        if _is_whole(loop.extent, width, nest)
        and is_group_of_neighbours(access, loop.axis, width, nest.arguments)
        and _is_alone(access, loop)
    )
    return Parts(width, positions) if width > 1 and positions else NO_PARTS


def _has_loops(body: tuple[ir.Statement, ...]) -> bool:
    return any(isinstance(statement, ir.For) for statement in body)


def _is_near(access: Access, loop: ir.For, nest: ir.LoopNest) -> bool:
    """Whether pairs of iterations access neighbours: the widest type decides about the width."""
    return is_group_of_neighbours(access, loop.axis, 1, nest.arguments)


def _is_whole(integer: ir.Integer | ir.ValueIndex, width: int, nest: ir.LoopNest) -> bool:
    if isinstance(integer, ir.ValueIndex):
        return False
    value = nest.arguments[integer.position] if isinstance(integer, ir.Argument) else integer
    return value % width == 0


def _is_alone(access: Access, loop: ir.For) -> bool:
    """Whether all elements may be read before, or written after, the iterations."""
    reads, writes = accesses(loop.body)
    if isinstance(access, ir.Load):
        same = (x for x in loads(loop.body) if x[:2] == access[:2])
        return (
            access.buffer not in writes
            and not access.fill
            and all(x.conditions == access.conditions for x in same)
        )
    stores = [s for s in loop.body if isinstance(s, ir.Store) and s.buffer == access.buffer]
    return access.buffer not in reads and len(stores) == 1
