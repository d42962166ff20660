"""Vectorised accesses: several neighbouring elements at once, if a vector loop runs along memory.

A lane then takes some neighbouring iterations in turn. It loads a part of each array before them
and stores a part after them, 16 bytes at a time for the widest type. Loops that are written out are
those of one lane; a shorter one takes all its iterations at once, and may use shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from metaop.codegen.cuda.hazards import accesses
from metaop.codegen.cuda.types import is_narrow_float
from metaop.codegen.nest import ir
from metaop.codegen.nest.neighbours import Access, is_group_of_neighbours, loads
from metaop.unified_graph.dtype import DType

_BYTES = 16


@dataclass(frozen=True)
class Parts:
    """The vectorised accesses of a nest, as pairs of a number and how many neighbours it takes.

    `numbered` counts accesses in an order that is the same for all nests of one form, so a kernel
    that was compiled for one of them knows what it may assume of the others. Lanes that share the
    iterations of vector loops take `width` at once.
    """

    width: int = 1
    widths: frozenset[tuple[int, int]] = frozenset()


NO_PARTS = Parts()


class _Place(NamedTuple):
    """An access, its number, and the vector loop around it."""

    number: int
    access: Access
    loop: ir.For


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
    dtypes = {number: p.dtype for number, p in enumerate(nest.parameters)}
    found = [
        _Place(number, access, loop)
        for number, (access, loop) in enumerate(numbered(nest.body))
        if loop is not None
    ]
    shared = [place for place in found if place.loop.kind != "unroll"]
    width, widths = _widths(nest, shared, dtypes)
    own: dict[int, list[_Place]] = {}
    for place in found:
        if place.loop.kind == "unroll":
            own.setdefault(id(place.loop), []).append(place)
    for one in ir.simple_statements(nest.body):
        if isinstance(one, ir.Alloc):
            dtypes[one.buffer] = one.dtype
    for places in own.values():
        widths |= _widths(nest, places, dtypes)[1]
    return Parts(width, frozenset(widths)) if widths else NO_PARTS


def is_copy(loop: ir.For, dtypes: Mapping[int, DType]) -> bool:
    """Whether a loop only copies 16-bit floats from one place to another."""
    store = loop.body[0]
    if len(loop.body) > 1 or not isinstance(store, ir.Store):
        return False
    load, dtype = store.value, dtypes[store.buffer]
    return isinstance(load, ir.Load) and load.dtype is dtype and is_narrow_float(dtype)


def _widths(
    nest: ir.LoopNest, places: Sequence[_Place], dtypes: Mapping[int, DType]
) -> tuple[int, set[tuple[int, int]]]:
    """How many neighbours the accesses of some loops take at once, and of which this is true."""
    near = [
        place
        for place in places
        if place.access.buffer in dtypes
        and (place.access.buffer >= 0 or is_copy(place.loop, dtypes))
        and _is_near(place, nest)
    ]
    sizes = [dtypes[place.access.buffer].itemsize for place in near]
    width = _BYTES // max(sizes, default=_BYTES)
    extents = [place.loop.extent for place in near if place.loop.kind == "unroll"]
    width = min([width, *(extent for extent in extents if isinstance(extent, int))])
    found = {
        (place.number, width)
        for place in near
        if _is_whole(place.loop.extent, width, nest)
        and is_group_of_neighbours(place.access, place.loop.axis, width, nest.arguments)
        and _is_alone(place.access, place.loop)
    }
    if len(found) < len(near) and any(place.access.buffer < 0 for place in near):
        # Only whole copies take parts of registers and of shared memory.
        return _widths(nest, [place for place in near if place.access.buffer >= 0], dtypes)
    return (width, found) if width > 1 and found else (1, set())


def _has_loops(body: tuple[ir.Statement, ...]) -> bool:
    return any(isinstance(statement, ir.For) for statement in body)


def _is_near(place: _Place, nest: ir.LoopNest) -> bool:
    """Whether pairs of iterations access neighbours: the widest type decides about the width."""
    return is_group_of_neighbours(place.access, place.loop.axis, 1, nest.arguments)


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
