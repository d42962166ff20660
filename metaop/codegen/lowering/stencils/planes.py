"""Planes in scratch memory: the inputs of a stencil's windows, padded with zeros.

The columns of a plane are grouped by residue, so that a strided window reads neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from metaop.codegen.lowering.stencils.geometry import BAND, Stencil
from metaop.codegen.lowering.stencils.taps import Taps, running
from metaop.codegen.machine import Thresholds
from metaop.codegen.nest import ir
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, Within
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import is_symbolic, maximum, surely_equal

# The bytes of planes per task, relative to the first-level cache, so that they stay there. With
# channels, whose planes are read again for each result, they may be in the next level.
_PLANES, _CHANNELS = 0.75, 3.0
_ELEMENT_BYTES = 4


class Planes(Taps):
    """What both directions share: planes in scratch memory, and taps.

    A block is a few whole planes, or a band of the rows of one. Where sizes are symbolic, it is one
    plane, whatever its size.
    """

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        stencil: Stencil,
        thresholds: Thresholds,
    ) -> None:
        super().__init__(kernel, storage, uses, stencil, thresholds)
        # The number of planes that are summed over for each plane of results.
        self.depth_planes = math.prod(kernel.shape[k] for k in self.channels)
        # The number of the current band of a plane.
        self.band = index_expr.constant(0)
        self.plane = -1
        # The axis of the loop over the blocks.
        self.blocks = "p"
        # A row of a plane has the columns of each residue side by side.
        self.run = -(-self.along.reach(self.along.size) // self.along.stride)
        self.pitch = self.run * self.along.stride
        share = _PLANES if self.depth_planes == 1 else _CHANNELS
        self.near = int(share * thresholds.first_bytes) // _ELEMENT_BYTES
        self.line = thresholds.line_bytes // _ELEMENT_BYTES
        self.band_rows = self._rows_of_a_band()
        self.bands = self.down.size // self.band_rows

    def _rows_of_a_band(self) -> int:
        """The rows of results in equal bands whose channels all stay in the near cache."""
        size, least = self.down.size, BAND * self.down.taps
        if is_symbolic(size) or is_symbolic(self.pitch):
            return size
        fitting = [n for n in range(size, least - 1, -1) if size % n == 0] or [size]
        most = self.near // (self.pitch * self.depth_planes)
        return next((n for n in fitting if self.down.reach(n) <= most), fitting[-1])

    def elements_of_plane(self) -> int:
        """The elements of a plane, or of a band of one, in scratch memory."""
        return self.down.reach(self.band_rows) * self.pitch

    def planes_in_block(self, planes: int, most: int) -> int:
        """The number of planes of a block; one where sizes are symbolic."""
        if self.bands > 1 or any(map(is_symbolic, (planes, self.elements_of_plane()))):
            return 1
        most = max(1, min(most, self.near // (self.elements_of_plane() * self.depth_planes)))
        return max(n for n in range(1, most + 1) if planes % n == 0)

    def hold_planes(self, planes: int) -> None:
        """Scratch memory for a number of planes; their padding is written once."""
        values, size = self.values, planes * self.elements_of_plane()
        values.emit(ir.Alloc(self.plane, size, self.scalar))
        stretches = [self._rows_inside(), *map(self._columns_inside, range(self.along.stride))]
        wholes = [self.down.reach(self.band_rows), *[self.run] * self.along.stride]
        if all(
            surely_equal(first, 0) and surely_equal(width, whole)
            for (first, width), whole in zip(stretches, wholes)
        ):
            return
        with self.loop("z", size, vector=True) as place:
            values.emit(ir.Store(self.plane, values.sum(place), ir.Number(0, self.scalar)))

    def copy_planes(self, axes: Sequence[int], first: IndexExpr, planes: int) -> None:
        """Copies the inputs of the windows of a block, without the padding."""
        values = self.values
        top, height = self._rows_inside()
        with self.loop("u", planes) as plane, self.loop("a", height) as step:
            row, at = step + top, self.plane_at(axes, first + plane)
            line = plane * self.elements_of_plane() + row * self.pitch
            for residue in range(self.along.stride):
                start, width = self._columns_inside(residue)
                with self.loop("b", width, vector=True) as lane:
                    number = lane + start
                    column = number * self.along.stride + residue
                    place, known = self._seen_at(at, self.band, row, column), len(values.reads)
                    value = self.padded(self.contraction.right, place, self._ends(column))
                    values.prefetch(values.reads[known:], self.blocks, residue * self.line)
                    offset = values.sum(line + residue * self.run + number)
                    values.emit(ir.Store(self.plane, offset, value))

    def _seen_at(
        self, place: dict[int, IndexExpr], band: IndexExpr, row: IndexExpr, column: IndexExpr
    ) -> dict[int, IndexExpr]:
        """The indices at which the right factor is read for a position of a plane."""
        fixed = {residue.axis: index_expr.constant(0) for residue in self.residues}
        below = row + band * (self.down.stride * self.band_rows)
        return {**place, **fixed, **self.down.at(below), **self.along.at(column)}

    def _ends(self, column: IndexExpr) -> list[Guard]:
        """Residues may differ by one in their number of columns."""
        inside = Within(column, self.along.reach(self.along.size))
        return [] if inside.always else [inside]

    def _rows_inside(self) -> tuple[int, int]:
        """The first row of a plane that is not zero in all planes alike, and how many follow."""
        height = self.down.reach(self.band_rows)
        return _inside(self._guards(height, index_expr.constant(0)), "a", height)

    def _columns_inside(self, residue: int) -> tuple[int, int]:
        """The same for the columns of a residue."""
        column = running("b", self.run) * self.along.stride + residue
        return _inside(self._guards(1, column), "b", self.run)

    def _guards(self, height: int, column: IndexExpr) -> list[Guard]:
        """The guards without which the right factor is zero, at a column of any plane."""
        places = {k: index_expr.axis(f"o{k}", n) for k, n in enumerate(self.kernel.shape)}
        band, row = running("band", self.bands), running("a", height)
        place = self._seen_at(places, band, row, column)
        return [*self.behind_views(self.contraction.right, place)[2], *self._ends(column)]

    def seen(self, plane: IndexExpr, row: IndexExpr, tap: tuple[int, int]) -> ir.Expr:
        """The inputs of a tap in a plane for a row of results, in all columns."""
        turn, residue = divmod(tap[1], self.along.stride)
        column = running("n", self.along.size) + residue * self.run + turn
        seen = row * self.down.stride + tap[0]
        offset = plane * self.elements_of_plane() + seen * self.pitch + column
        return ir.Load(self.plane, self.values.sum(offset), self.scalar)

    def positions(self, tap: tuple[int, int]) -> tuple[int, int]:
        """The positions that a tap reads, relative to those of the windows."""
        return self.down.tap(tap[0]), self.along.tap(tap[1])

    def row_at(self, place: dict[int, IndexExpr], row: IndexExpr) -> dict[int, IndexExpr]:
        """The position of the results in a row of a band."""
        column = running("n", self.along.size)
        below = self.band * self.band_rows + row
        return {**place, self.down.long: below, self.along.long: column}


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
        first = maximum([first, -(-ends[0] // abs(step))])
        stop = -maximum([-stop, -ends[1] // abs(step)])
    return first, maximum([stop - first, 0])
