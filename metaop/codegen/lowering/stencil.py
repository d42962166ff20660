"""The schedule of windows that slide over a plane: depthwise convolutions and their gradients.

Where no axis belongs to one factor alone, nothing is gained by packing panels. A task copies the
planes that its windows see, with their padding, to scratch memory; all taps are then read from
there, in whole vectors and without conditions. Columns of a plane lie apart by their residue, so
that a window with a stride reads neighbours. Several rows of results are computed at once: rows of
the plane that their windows share are read but once. For the gradient by the weight each tap has a
sum of its own, in every lane. Meanwhile the next planes come from memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from metaop.codegen import loop_nest as ir
from metaop.codegen.lowering.base import GRAIN, LoweredKernel
from metaop.codegen.lowering.positions import Positions
from metaop.codegen.lowering.stencil_geometry import Stencil
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, Within
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Symbol
from metaop.unified_graph.node import Node

# What a task keeps of planes, in elements, lest it leave the nearest cache.
_NEAR = 6144
# Products in the body of the innermost loop.
_MOST_PRODUCTS = 64
_FEWEST_TASKS = 16
# Neighbours that come to the processor together.
_LINE = 16


class Group(NamedTuple):
    """Rows of results that are computed at once, so many times one after another."""

    first: int
    rows: int
    times: int


class Result(NamedTuple):
    """The indices of the axes that tell a result from others at its place, and its taps."""

    fixed: dict[int, int]
    taps: list[tuple[int, int]]


def lower_stencil(
    kernel: Kernel, storage: Storage, uses: dict[Node, int], stencil: Stencil
) -> LoweredKernel:
    """The launch of a stencil."""
    whole = replace(kernel, contraction=stencil.contraction)
    lowering = _ByWeight if stencil.is_by_weight else _Forward
    return lowering(whole, storage, uses, stencil).lower()


class _Planes(Positions):
    """What both directions share: planes in scratch memory, and taps.

    A block is a few whole planes, or a band of the rows of one.
    """

    def __init__(
        self, kernel: Kernel, storage: Storage, uses: dict[Node, int], stencil: Stencil
    ) -> None:
        super().__init__(kernel, storage, uses)
        self.down, self.along = stencil.windows
        self.residues = stencil.residues
        # The number of the band of a plane that is at hand.
        self.band = index_expr.constant(0)
        self.plane = -1
        # The axis of the loop over the blocks.
        self.blocks = "p"
        # A row of a plane has the columns of each residue side by side.
        self.run = -(-self.along.reach(self.along.size) // self.along.stride)
        self.pitch = self.run * self.along.stride
        self.band_rows = self.down.size
        while self._elements() > _NEAR and self.band_rows > 2 * self.down.taps:
            smaller = [n for n in range(1, self.band_rows) if self.down.size % n == 0]
            if smaller[-1] < 2 * self.down.taps:
                break
            self.band_rows = smaller[-1]
        self.bands = self.down.size // self.band_rows

    def lower(self) -> LoweredKernel:
        """The nest of the launch."""
        raise NotImplementedError

    def _elements(self) -> int:
        return self.down.reach(self.band_rows) * self.pitch

    def _planes_in_block(self, planes: int, most: int) -> int:
        """How many planes, of so many, a block has."""
        if self.bands > 1:
            return 1
        most = max(1, min(most, _NEAR // self._elements()))
        return max(n for n in range(1, most + 1) if planes % n == 0)

    def _groups(self, products: int) -> list[Group]:
        """The rows of a band, with so many products for each element of a row."""
        most = max(1, min(_MOST_PRODUCTS // max(products, 1), self.band_rows))
        fitting = max(n for n in range(1, most + 1) if self.band_rows % n == 0)
        rows = fitting if 2 * fitting > most else most
        times, rest = divmod(self.band_rows, rows)
        groups = [Group(0, rows, times)]
        return [*groups, Group(times * rows, rest, 1)] if rest else groups

    def _hold_planes(self, planes: int) -> None:
        """Scratch memory for so many planes; the zeros around them are written once."""
        values, size = self.values, planes * self._elements()
        values.emit(ir.Alloc(self.plane, size, self.scalar))
        stretches = [self._rows_inside(), *map(self._columns_inside, range(self.along.stride))]
        wholes = [self.down.reach(self.band_rows), *[self.run] * self.along.stride]
        if [(0, whole) for whole in wholes] == stretches:
            return
        values.open("z")
        place = values.sum(index_expr.axis("z", size))
        values.emit(ir.Store(self.plane, place, ir.Number(0, self.scalar)))
        self._close("z", size, vector=True)

    def _copy_planes(self, axes: Sequence[int], first: IndexExpr, planes: int) -> None:
        """What the windows of a block see, but for the zeros around it."""
        values = self.values
        top, height = self._rows_inside()
        values.open("u")
        plane = index_expr.axis("u", planes)
        values.open("a")
        row = index_expr.axis("a", height) + top
        for residue in range(self.along.stride):
            start, width = self._columns_inside(residue)
            values.open("b")
            number = index_expr.axis("b", width) + start
            column = number * self.along.stride + residue
            place = self._seen_at(self._plane_at(axes, first + plane), self.band, row, column)
            known = len(values.reads)
            value = self.padded(self.contraction.right, place, self._ends(column))
            self._prefetch(values.reads[known:], residue)
            offset = plane * self._elements() + row * self.pitch + residue * self.run + number
            values.emit(ir.Store(self.plane, values.sum(offset), value))
            self._close("b", width, vector=True)
        self._close("a", height)
        self._close("u", planes)

    def _prefetch(self, reads: Sequence[tuple[int, IndexExpr]], residue: int) -> None:
        """Asks for what the next block will read here.

        Without it, nothing would be read from memory while products are added.
        """
        for number, place in reads:
            following = place.substitute(self._next_block) + residue * _LINE
            if not any(isinstance(atom, Symbol) for atom in place.atoms()):
                self.values.emit(ir.Prefetch(number, self.values.sum(following)))

    def _next_block(self, atom: Atom) -> IndexExpr | None:
        is_block = isinstance(atom, Axis) and atom.name == self.blocks
        return index_expr.of(atom) + 1 if is_block else None

    def _seen_at(
        self, place: dict[int, IndexExpr], band: IndexExpr, row: IndexExpr, column: IndexExpr
    ) -> dict[int, IndexExpr]:
        """Where the right factor is read for a place of a plane."""
        fixed = {residue.axis: index_expr.constant(0) for residue in self.residues}
        below = row + band * (self.down.stride * self.band_rows)
        return {**place, **fixed, **self.down.at(below), **self.along.at(column)}

    def _ends(self, column: IndexExpr) -> list[Guard]:
        """Not every residue has as many columns."""
        inside = Within(column, self.along.reach(self.along.size))
        return [] if inside.always else [inside]

    def _rows_inside(self) -> tuple[int, int]:
        """The first row of a plane that is not zero in all planes alike, and how many follow."""
        height = self.down.reach(self.band_rows)
        return _inside(self._guards(height, index_expr.constant(0)), "a", height)

    def _columns_inside(self, residue: int) -> tuple[int, int]:
        """The same for the columns of a residue."""
        column = index_expr.axis("b", self.run) * self.along.stride + residue
        return _inside(self._guards(1, column), "b", self.run)

    def _guards(self, height: int, column: IndexExpr) -> list[Guard]:
        """The guards without which the right factor is zero, at a column of any plane."""
        places = {k: index_expr.axis(f"o{k}", n) for k, n in enumerate(self.kernel.shape)}
        band, row = index_expr.axis("band", self.bands), index_expr.axis("a", height)
        place = self._seen_at(places, band, row, column)
        return [*self.behind_views(self.contraction.right, place)[2], *self._ends(column)]

    def _plane_at(self, axes: Sequence[int], number: IndexExpr) -> dict[int, IndexExpr]:
        """A place of the outer axes, by the number of a plane."""
        indices = index_expr.unravel(number, [self.kernel.shape[k] for k in axes])
        return {**self.place, **dict(zip(axes, indices))}

    def _taps(self) -> Iterator[tuple[int, int]]:
        return itertools.product(range(self.down.taps), range(self.along.taps))

    def _seen(self, plane: IndexExpr, row: IndexExpr, tap: tuple[int, int]) -> ir.Expr:
        """What the position of a tap sees in a plane from a row of results, in all columns."""
        turn, residue = divmod(tap[1], self.along.stride)
        column = index_expr.axis("n", self.along.size) + residue * self.run + turn
        seen = row * self.down.stride + tap[0]
        offset = plane * self._elements() + seen * self.pitch + column
        return ir.Load(self.plane, self.values.sum(offset), self.scalar)

    def _positions(self, tap: tuple[int, int]) -> tuple[int, int]:
        """The positions that a tap sees, beside those of the windows."""
        return self.down.tap(tap[0]), self.along.tap(tap[1])

    def _at(self, place: dict[int, IndexExpr], row: IndexExpr) -> dict[int, IndexExpr]:
        """The place of the results in a row of a band."""
        column = index_expr.axis("n", self.along.size)
        below = self.band * self.band_rows + row
        return {**place, self.down.long: below, self.along.long: column}

    def _tap_at(self, place: dict[int, IndexExpr], tap: tuple[int, int]) -> dict[int, IndexExpr]:
        down, along = map(index_expr.constant, tap)
        return {**place, self.down.short: down, self.along.short: along}

    def _left_at(self, place: dict[int, IndexExpr]) -> ir.Expr:
        return self.padded(self.contraction.left, place, [])

    def _close(
        self,
        axis: str,
        extent: int,
        vector: bool = False,
        accumulators: tuple[ir.Accumulator, ...] = (),
    ) -> None:
        body = self.values.close()
        self.values.emit(ir.For(axis, extent, "serial", body, accumulators, vector))

    def _apply(self, function: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        return ir.Apply(function, (left, right), self.scalar, self.scalar)


class _Forward(_Planes):
    """Results along the plane; all taps of one are summed at once."""

    def lower(self) -> LoweredKernel:
        values, contraction = self.values, self.contraction
        axes = sorted((*contraction.batch, *contraction.columns[:-2]))
        count = math.prod(self.kernel.shape[k] for k in axes)
        planes = self._planes_in_block(count, count // _FEWEST_TASKS)
        tasks = count // planes * self.bands
        self._hold_planes(planes)
        values.open("p")
        task = index_expr.axis("p", tasks)
        self.band, first = task % self.bands, task // self.bands * planes
        self._copy_planes(axes, first, planes)
        values.open("u")
        plane = index_expr.axis("u", planes)
        place = self._plane_at(axes, first + plane)
        results = self._results()
        for group in self._groups(sum(len(taps) for _, taps in results)):
            values.open("m")
            values.open("n")
            start = index_expr.axis("m", group.times) * group.rows + group.first
            for k in range(group.rows):
                self._store_row(self._at(place, start + k), plane, start + k, results)
            self._close("n", self.along.size, vector=True)
            self._close("m", group.times)
        self._close("u", planes)
        values.emit(ir.For("p", tasks, "parallel", values.close()))
        return self.finish("stencil", values.close(), max(1, GRAIN // (planes * self._elements())))

    def _results(self) -> list[Result]:
        """The results at each place, with the taps that are not outside for all of them."""
        axes = sorted((*self.contraction.rows, *(residue.axis for residue in self.residues)))
        anywhere = {k: index_expr.axis(f"o{k}", n) for k, n in enumerate(self.kernel.shape)}
        found = []
        for indices in itertools.product(*(range(self.kernel.shape[k]) for k in axes)):
            fixed = dict(zip(axes, indices))
            place = {**anywhere, **{k: index_expr.constant(x) for k, x in fixed.items()}}
            taps = [
                tap
                for tap in self._taps()
                if not self.is_outside(self.contraction.left, self._tap_at(place, tap))
            ]
            found.append(Result(fixed, taps))
        return found

    def _store_row(
        self,
        place: dict[int, IndexExpr],
        plane: IndexExpr,
        row: IndexExpr,
        results: Sequence[Result],
    ) -> None:
        """A row of each of the results; those that lie side by side are stored together."""
        for _, group in itertools.groupby(results, key=lambda one: list(one.fixed.values())[:-1]):
            sums = []
            for fixed, taps in group:
                at = {**place, **{k: index_expr.constant(x) for k, x in fixed.items()}}
                sums.append((at, self._sum_of_taps(at, plane, row, taps)))
            self.store_all(sums)

    def _sum_of_taps(
        self,
        place: dict[int, IndexExpr],
        plane: IndexExpr,
        row: IndexExpr,
        taps: Sequence[tuple[int, int]],
    ) -> ir.Expr:
        moves = [-self.down.first * self.down.stride, -self.along.first * self.along.stride]
        for residue in self.residues:
            window = (self.down, self.along)[residue.window]
            moves[residue.window] += window.stride * residue.moves[place[residue.axis].constant]
        total: ir.Expr | None = None
        for tap in taps:
            down, along = self._positions(tap)
            seen = self._seen(plane, row, (down + moves[0], along + moves[1]))
            product = self._apply("mul", self._left_at(self._tap_at(place, tap)), seen)
            total = product if total is None else self._apply("add", total, product)
        return ir.Number(0, self.scalar) if total is None else total


class _ByWeight(_Planes):
    """A result for each tap; planes are summed over."""

    def lower(self) -> LoweredKernel:
        values, contraction = self.values, self.contraction
        tasks = math.prod(self.batch)
        axes = [k for k in contraction.depth if k not in (self.down.long, self.along.long)]
        count = math.prod(self.kernel.shape[k] for k in axes)
        planes = self._planes_in_block(count, count)
        self._hold_planes(planes)
        values.open("p")
        batch = index_expr.unravel(index_expr.axis("p", tasks), self.batch)
        self.place = dict(zip(contraction.batch, batch))
        sums = {tap: values.fresh("s") for tap in self._taps()}
        blocks = count // planes * self.bands
        self.blocks = "r" if blocks > 1 else "p"
        values.open("r")
        block = index_expr.axis("r", blocks)
        self.band, first = block % self.bands, block // self.bands * planes
        self._copy_planes(axes, first, planes)
        self._add_products(sums, axes, first, planes)
        accumulators = tuple(ir.Accumulator(name, "add", self.scalar) for name in sums.values())
        self._close("r", blocks, accumulators=accumulators)
        for tap, name in sums.items():
            self.store(self._tap_at(self.place, tap), (), ir.Name(name, self.scalar))
        values.emit(ir.For("p", tasks, "parallel", values.close()))
        return self.finish("stencil", values.close(), 1)

    def _add_products(
        self,
        sums: dict[tuple[int, int], str],
        axes: Sequence[int],
        first: IndexExpr,
        planes: int,
    ) -> None:
        """Adds what a block gives to each tap, in every lane for itself."""
        values = self.values
        values.open("n")
        values.open("u")
        plane = index_expr.axis("u", planes)
        place = self._plane_at(axes, first + plane)
        for group in self._groups(len(sums)):
            values.open("m")
            start = index_expr.axis("m", group.times) * group.rows + group.first
            for k in range(group.rows):
                left, known = values.fresh("g"), len(values.reads)
                values.emit(ir.Let(left, self._left_at(self._at(place, start + k))))
                self._prefetch(values.reads[known:], 0)
                for tap, name in sums.items():
                    seen = self._seen(plane, start + k, self._positions(tap))
                    product = self._apply("mul", ir.Name(left, self.scalar), seen)
                    values.emit(ir.Accumulate(name, product))
            self._close("m", group.times)
        self._close("u", planes)
        self._close("n", self.along.size, vector=True)


def _inside(guards: Sequence[Guard], axis: str, extent: int) -> tuple[int, int]:
    """The first index of an axis where the guards of that axis alone hold, and how many follow."""
    first, stop = 0, extent
    for guard in guards:
        if not isinstance(guard, Within) or len(guard.expr.terms) != 1:
            continue
        (atom, step), start = guard.expr.terms[0], guard.expr.constant
        if not isinstance(atom, Axis) or atom.name != axis:
            continue
        # 0 <= step * index + start < guard.extent
        ends = (-start, guard.extent - start) if step > 0 else (start - guard.extent + 1, start + 1)
        first = max(first, -(-ends[0] // abs(step)))
        stop = min(stop, -(-ends[1] // abs(step)))
    return first, max(stop - first, 0)
