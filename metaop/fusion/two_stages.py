"""Reductions in two stages: partial results side by side, then their reduction.

A reduction of few rows leaves processors idle, however long the rows are. So the rows are cut into
parts: a first reduction reduces each part, a second one combines the results, always in the same
order. This works for every reducer. A contraction stays one, with one more batch axis. It also
bounds the rounding error of long sums, because each part is summed separately.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from metaop.elementwise.meta_op import cast
from metaop.fusion.kernel import reduced_axes
from metaop.fusion.recognise import Contraction, presumed_buffers, recognise
from metaop.fusion.scan_blocks import in_blocks
from metaop.fusion.simplify import simplify
from metaop.fusion.triangles import Triangle, triangle_of
from metaop.reduce.meta_op import Reduce, reduce_axes, reduce_with_map
from metaop.reindex.meta_op import reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node, Scalar, Shape, topological
from metaop.unified_graph.rewrite import rebuild
from metaop.unified_graph.symbolic import hint_of

# A reduction is cut when fewer rows than this would leave processors idle …
_FEW_ROWS = 16
# … and a row has at least twice this many elements, the length of one partial reduction.
_PARTIAL = 8192
# The most elements of a value that is computed as it is written.
_LITERAL = 1 << 24
# Longer blocks of scans need fewer levels, but have longer chains of dependent operations.
_BLOCK = 64


class Cut(NamedTuple):
    """The parts of what a reduction reduces.

    A part has one index of each reduced axis in `whole`, and one of at most `pieces` pieces of the
    axes in `run`, joined to one axis. The length of a piece is a multiple of `multiple`. With
    `neighbours`, parts of neighbouring results are contiguous in memory, else all parts of one
    result. A product is cut `in_factors` if it must stay a product of two factors, so that the
    first stage is a contraction. A scan is cut into blocks of `block` elements.
    """

    whole: tuple[int, ...]
    run: tuple[int, ...] = ()
    pieces: int = 1
    neighbours: bool = False
    in_factors: bool = False
    multiple: int = 1
    block: int = 0


class Source(NamedTuple):
    """A reduction that may be cut: its reduced axes in order, the buffers, and the processors."""

    node: Node
    reduced: tuple[int, ...]
    has_buffer: Callable[[Node], bool]
    processors: int

    @property
    def contraction(self) -> Contraction | None:
        """The contraction that the reduction is, if any."""
        return recognise(self.node, self.has_buffer)

    @property
    def triangle(self) -> Triangle | None:
        """The triangle over which the node reduces, if it is a scan."""
        return triangle_of(self.node, self.has_buffer)

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the reduced axes."""
        return tuple(self.node.inputs[0].shape[k] for k in self.reduced)


# How a machine cuts a reduction; None leaves it whole.
Cutter: TypeAlias = Callable[[Source], "Cut | None"]


def cut_scans(source: Source) -> Cut | None:
    """Cuts long scans into short blocks, and nothing else."""
    if source.triangle is None or source.extents[0] <= _BLOCK:
        return None
    return Cut((), block=_BLOCK)


def cut_long_rows(source: Source) -> Cut | None:
    """Cuts long rows if there are few, independently of the number of processors."""
    node, reduced = source.node, source.reduced
    shape = node.inputs[0].shape
    if source.triangle is not None:
        return cut_scans(source)
    length = node.inputs[0].size // max(node.size, 1)
    if hint_of(node.size) >= _FEW_ROWS or hint_of(length) < 2 * _PARTIAL:
        return None
    if reduced == tuple(range(reduced[0], reduced[-1] + 1)):
        return Cut((), reduced, -(-length // _PARTIAL))
    # The others are reduced first: the largest axis of several stays for the second stage.
    widest = max(reduced, key=lambda k: hint_of(shape[k]))
    return None if hint_of(shape[widest]) < 4 else Cut((widest,))


def in_two_stages(outputs: Sequence[Node], cut_of: Cutter, processors: int) -> list[Node]:
    """The outputs, with each cut reduction replaced by two."""
    has_buffer = presumed_buffers(outputs)

    def transform(node: Node) -> Node:
        reduced = reduced_axes(node)
        if reduced is None:
            return node
        source = Source(node, tuple(sorted(reduced)), has_buffer, processors)
        cut, triangle = cut_of(source), source.triangle
        if cut is None:
            return node
        if triangle is not None:
            return in_blocks(node, triangle, cut.block, transform)
        return _split(node, cut)

    return rebuild(outputs, transform=transform)


def with_short_scans(outputs: Sequence[Node]) -> list[Node]:
    """The outputs for who computes node by node, with long scans in blocks.

    A long triangle would take the square of its length in memory. Other graphs are left alone.
    """
    if max(node.size for node in topological(outputs)) <= _LITERAL:
        return list(outputs)
    return in_two_stages(simplify(outputs), cut_scans, 1)


def _split(node: Node, cut: Cut) -> Node:
    """The two reductions; values between them have the compute dtype."""
    op, term = node.op, node.inputs[0]
    box = _box_of(term.shape, cut)
    assert isinstance(op, Reduce)
    if cut.in_factors:
        left, right = (box.moved(factor, 0) for factor in term.inputs)
        term = left * right
    else:
        term = box.moved(term, op.reducer.identity(node.dtype))
    at, shape = [box.at(expr) for expr in op.map.indices], list(node.shape)
    first = 0 if cut.neighbours else len(shape)
    at[first:first] = [index_expr.axis(k, box.shape[k]) for k in box.parts]
    shape[first:first] = [box.shape[k] for k in box.parts]
    name = op.reducer.name
    partial = reduce_with_map(name, term, IndexMap(box.shape, at), tuple(shape))
    total = reduce_axes(name, partial, range(first, first + len(box.parts)))
    return cast(total, node.dtype)


class _Box(NamedTuple):
    """The box of a first stage: which of its axes are `parts`, and the old axes in its terms."""

    shape: Shape
    parts: tuple[int, ...]
    axes: tuple[IndexExpr, ...]
    guards: tuple[Within, ...]

    def moved(self, node: Node, fill: Scalar) -> Node:
        """A node of the old box in the new one, in its compute dtype."""
        moved = reindex(node, IndexMap(self.shape, self.axes, self.guards), fill)
        return cast(moved, node.dtype.compute)

    def at(self, index: IndexExpr) -> IndexExpr:
        """An index of the old box in the axes of the new one."""
        return index.substitute(
            lambda atom: self.axes[int(atom.name)] if isinstance(atom, Axis) else None
        )


def _box_of(shape: Shape, cut: Cut) -> _Box:
    """The axes of a box in order, with a run replaced by its pieces."""
    run = [shape[k] for k in cut.run]
    length = math.prod(run)
    piece = -(-length // (cut.pieces * cut.multiple)) * cut.multiple
    names: dict[int, int] = {}
    extents: list[int] = []
    first = 0
    for k, extent in enumerate(shape):
        if k == min(cut.run, default=None):
            first = len(extents)
            extents += [-(-length // piece), piece]
        elif k not in cut.run:
            names[k] = len(extents)
            extents.append(extent)
    axes = [index_expr.axis(names.get(k, 0), extent) for k, extent in enumerate(shape)]
    parts = [names[k] for k in cut.whole]
    if not cut.run:
        return _Box(tuple(extents), tuple(parts), tuple(axes), ())
    position = index_expr.axis(first, extents[first]) * piece
    position = position + index_expr.axis(first + 1, piece)
    inside = (position // math.prod(run[1:]), *index_expr.unravel(position, run[1:]))
    for k, index in zip(cut.run, inside):
        axes[k] = index
    return _Box(tuple(extents), (*parts, first), tuple(axes), (Within(position, length),))
