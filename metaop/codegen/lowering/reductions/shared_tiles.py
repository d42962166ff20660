"""The schedule of transposing maps on a GPU: tiles of shared memory, which lanes cross both ways.

Lanes store along one axis of a map, and some operands are contiguous along another one. A thread
block first copies a tile of each such operand with its lanes along that other axis, so that
neighbouring lanes read neighbours in memory. Then lanes turn: they compute the map along the axis
of the results, and read those elements from shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.base.loops import Loop, split_index
from metaop.codegen.lowering.base.values import Element
from metaop.codegen.lowering.reductions.rows import RowReduction
from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import Guards
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Within
from metaop.unified_graph.index_expr import IndexExpr, Symbol
from metaop.unified_graph.symbolic import hint_of, is_symbolic

# The sides of tiles. Longer ones read and write longer runs of memory, but give fewer blocks.
_SIDES = (64, 32)
_FEWEST_BLOCKS = 512
# The fewest points of a tile for each thread, if possible, and the most threads of a block.
_TURNS, _MOST_LANES, _WARP = 4, 512, 32
# The bytes of a thread block's tiles: what it may have, and what leaves room for enough blocks.
_MOST_BYTES, _FITTING_BYTES = 48 << 10, 24 << 10
# Shared memory gives a word of each of its banks at a time.
_BANKS, _WORD = 32, 4


class _Side(NamedTuple):
    """A loop that is cut into tiles of `length` iterations: its index is a coordinate `name`."""

    loop: Loop
    name: str
    length: int

    @property
    def blocks(self) -> int:
        """The tiles along the loop; the last one may reach past its end."""
        return -(-self.loop.extent // self.length)

    @property
    def place(self) -> IndexExpr:
        """The index of the loop, which may be past its end."""
        return index_expr.axis(self.name, self.blocks * self.length)

    @property
    def inside(self) -> IndexExpr:
        """The index within a tile."""
        return index_expr.axis(f"{self.name}t", self.length)


class _Tiles(NamedTuple):
    """How a map is cut into tiles: along the axis of its results, and along that of operands.

    Tiles of `outer` loops are separate. `elements` are those that come through shared memory.
    """

    along: _Side
    across: _Side
    outer: tuple[Loop, ...]
    elements: tuple[Element, ...] = ()

    @property
    def blocks(self) -> int:
        """The number of tiles."""
        outer = math.prod(loop.extent for loop in self.outer)
        return outer * self.along.blocks * self.across.blocks

    @property
    def size(self) -> int:
        """The elements of a tile."""
        return self.along.length * self.across.length

    @property
    def lanes(self) -> int:
        """The threads of a block: they take whole rows or whole columns of a tile at a time."""
        fitting = max(self.along.length, self.across.length, _WARP)
        return max(min(self.size // _TURNS, _MOST_LANES), fitting)

    def padded(self, element: Element) -> int:
        """The elements from one row of a tile to the next: a column spreads over all banks."""
        words = max(_BANKS // self.along.length, 1)
        return self.across.length + max(words * _WORD // element.node.dtype.itemsize, 1)

    def nbytes(self, element: Element) -> int:
        """The bytes of shared memory that an element of each point of a tile takes."""
        return self.along.length * self.padded(element) * element.node.dtype.itemsize


class SharedTiles(RowReduction):
    """Rows and maps of a GPU, whose lanes transpose through shared memory."""

    def lower(self) -> LoweredKernel:
        tiles = None if self.plan.transposed is None else self._tiles(list(self.plan.kept()))
        if tiles is None or not tiles.elements:
            self.plan = replace(self.plan, transposed=None)
            return super().lower()
        self._through_shared_memory(tiles)
        return self.finish("transpose", self.values.body)

    def _through_shared_memory(self, tiles: _Tiles) -> None:
        guards = self._cut(tiles)
        values = self.values
        with values.loop("p", tiles.blocks, "parallel"):
            for number, element in enumerate(tiles.elements, start=1):
                elements = tiles.along.length * tiles.padded(element)
                values.emit(ir.Alloc(-number, elements, element.node.dtype, "shared"))
            self._copy(tiles)
            with self._lanes(tiles, turned=False):
                self._compute_roots(self.kernel.roots, guards)

    def _tiles(self, kept: list[Loop]) -> _Tiles:
        """The largest tiles of which there are enough, and which leave room for other blocks."""
        *outer, last = kept
        turned = next(loop for loop in outer if loop.name == self.plan.transposed)
        outer.remove(turned)
        for side in _SIDES:
            along, across = _lengths(last.extent, turned.extent, side)
            sides = _Side(last, "x", along), _Side(turned, "y", across)
            tiles = self._with_elements(_Tiles(*sides, tuple(outer)))
            nbytes = sum(map(tiles.nbytes, tiles.elements))
            if nbytes <= _FITTING_BYTES and hint_of(tiles.blocks) >= _FEWEST_BLOCKS:
                return tiles
        while sum(map(tiles.nbytes, tiles.elements)) > _MOST_BYTES:
            tiles = tiles._replace(elements=tiles.elements[:-1])
        return tiles

    def _with_elements(self, tiles: _Tiles) -> _Tiles:
        """The tiles with the elements that lie apart along results, but not along operands."""
        probe = type(self)(self.kernel, self.storage, self.values.uses, self.plan, self.thresholds)
        probe._compute_roots(self.kernel.roots, probe._cut(tiles))
        (x, _), *_ = tiles.along.place.terms
        (y, _), *_ = tiles.across.place.terms
        found = (
            element
            for element, place in probe.values.elements.items()
            if abs(place.coefficient(x)) > ir.LONGEST_STRIDE
            and place.coefficient(y) == 1
            # An index from data is bound where the map is computed.
            and not any(isinstance(atom, Symbol) for atom in place.atoms())
        )
        return tiles._replace(elements=tuple(found))

    def _cut(self, tiles: _Tiles) -> Guards:
        """Makes the axes expressions of tasks and coordinates.

        Returns the guards of points that are not past the end of a loop.
        """
        _, parts = split_index((*tiles.outer, *_numbers(tiles)), "p")
        parts.update((side.loop.name, side.place) for side in (tiles.along, tiles.across))
        self._replace(parts)
        guards = (Within(side.place, side.loop.extent) for side in (tiles.across, tiles.along))
        return tuple(guard for guard in guards if not guard.always)

    def _copy(self, tiles: _Tiles) -> None:
        """Copies elements to shared memory, with lanes along their own axis."""
        values, found = self.values, {}
        with self._lanes(tiles, turned=True):
            for number, element in enumerate(tiles.elements, start=1):
                place = tiles.along.inside * tiles.padded(element) + tiles.across.inside
                values.emit(ir.Store(-number, values.sum(place), values.load(element)))
                found[element] = -number, place
        values.staged.update(found)

    @contextmanager
    def _lanes(self, tiles: _Tiles, turned: bool) -> Iterator[None]:
        """The loops over the points of a tile, with lanes along the axis of operands if `turned`.

        Each lane takes several points, with constant steps between them.
        """
        inner, outer = (tiles.across, tiles.along) if turned else (tiles.along, tiles.across)
        _, parts = split_index((*tiles.outer, *_numbers(tiles)), "p")
        lanes, values = tiles.lanes, self.values
        with (
            values.loop("t", lanes, vector=True) as lane,
            values.loop("e", tiles.size // lanes, "unroll") as turn,
        ):
            point = turn * lanes + lane
            for side, index in ((inner, point % inner.length), (outer, point // inner.length)):
                first = parts[_number(side).name] * side.length
                values.coordinates[f"{side.name}t"] = index
                values.coordinates[side.name] = first + index
            yield
        values.coordinates.clear()


def _number(side: _Side) -> Loop:
    """The loop over the tiles of a side."""
    return Loop(f"{side.name}o", side.blocks, False)


def _numbers(tiles: _Tiles) -> tuple[Loop, Loop]:
    """The loops over tiles: neighbouring tasks have neighbours along results."""
    return _number(tiles.across), _number(tiles.along)


def _lengths(along: int, across: int, side: int) -> tuple[int, int]:
    """The extents of a tile, powers of two: `side` each, or more of one loop beside a short one."""
    width = min(_power(along, side), side)
    height = min(_power(across, side * side), side * side // width)
    return min(_power(along, side * side), side * side // height), height


def _power(extent: int, most: int) -> int:
    """The least power of two that covers an extent, or `most` of them."""
    return most if is_symbolic(extent) else min(1 << (extent - 1).bit_length(), most)
