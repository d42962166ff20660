"""Loops that multiply by the matrices of short products."""

from __future__ import annotations

from collections.abc import Callable

from metaop.codegen.lowering.contractions.axes import ContractionAxes
from metaop.codegen.lowering.winograd.short_products import Matrix, combined
from metaop.codegen.nest import ir
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr

# The lanes of the longest vectors, which are tiles, and the number of tiles in a cache line.
_VECTOR, _TILES_OF_LINE = 16, 4


class Transforms(ContractionAxes):
    """What the schedules with short products share."""

    def transform(
        self,
        axis: str,
        extent: int,
        matrix: Matrix,
        read: Callable[[IndexExpr, int], ir.Expr],
        place: Callable[[IndexExpr, int], tuple[int, IndexExpr]],
        channel: str = "",
    ) -> None:
        """A loop that stores the product of a matrix and of what is read.

        `read` and `place` take the index of the loop, and the number of a column or of a row. If
        the data is in memory, `channel` is the outer loop over channels, along which to prefetch:
        planes of channels are farther apart than hardware prefetchers reach.
        """
        values, known = self.values, len(self.values.reads)
        with values.loop(axis, extent) as index:
            numbers = [self.named(read(index, k)) for k in range(len(matrix[0]))]
            if channel:
                for number, first in dict(reversed(values.reads[known:])).items():
                    for lane in range(0, _VECTOR, _TILES_OF_LINE):
                        values.prefetch([(number, _moved(first, lane))], channel)
            for k, value in enumerate(combined(matrix, numbers, self.named, self.scalar)):
                number, offset = place(index, k)
                values.emit(ir.Store(number, values.sum(offset), value))

    def named(self, value: ir.Expr) -> ir.Expr:
        """A value bound to a name."""
        if isinstance(value, (ir.Name, ir.Number)):
            return value
        name = self.values.fresh("f")
        self.values.emit(ir.Let(name, value))
        return ir.Name(name, self.scalar)

    def load(self, number: int, offset: IndexExpr) -> ir.Expr:
        """An element of scratch memory."""
        return ir.Load(number, self.values.sum(offset), self.scalar)


def _moved(place: IndexExpr, lanes: int) -> IndexExpr:
    """A position advanced by a number of lanes."""

    def move(atom: Atom) -> IndexExpr | None:
        is_lane = isinstance(atom, Axis) and atom.name == "l"
        return index_expr.of(atom) + lanes if is_lane else None

    return place.substitute(move)
