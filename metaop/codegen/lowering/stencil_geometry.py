"""Which kernels are windows that slide over a plane, and how planes lie in scratch memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from metaop.fusion.kernel import Kernel, box_axes
from metaop.fusion.recognise import Contraction, axes_used, sum_of_products
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node

_STEPS = (1, 2, 3, -1)
_MOST_TAPS = 49
# Results at each place of the plane: residues of a stride, or several weights for one channel.
_MOST_RESULTS = 9
# Planes with more elements would not stay near the processor.
_MOST_ELEMENTS = 1 << 16


class Window(NamedTuple):
    """The right factor depends on `step * long + short` alone, two axes of the box.

    With a negative step, on `long - short`. `size` and `taps` are the extents of both axes.
    """

    long: int
    short: int
    step: int
    size: int
    taps: int

    @property
    def stride(self) -> int:
        """How far the window moves from one place to the next."""
        return abs(self.step)

    def reach(self, size: int) -> int:
        """How many positions so many places of the window see."""
        return self.stride * (size - 1) + self.taps

    def tap(self, number: int) -> int:
        """The position that a tap sees, counted from that of the window."""
        return number if self.step > 0 else self.taps - 1 - number

    def at(self, position: IndexExpr) -> dict[int, IndexExpr]:
        """A place of both axes at which the right factor is read for a position."""
        seen = position if self.step > 0 else self.taps - 1 - position
        return {self.long: index_expr.constant(0), self.short: seen}


class Stencil(NamedTuple):
    """The sum of products in a kernel, and the windows along the height and the width.

    The right factor has the windows. Rows of the contraction are the results at each place.
    """

    contraction: Contraction
    windows: tuple[Window, Window]
    is_by_weight: bool


def stencil_of(kernel: Kernel, storage: Storage) -> Stencil | None:
    """The stencil that a kernel computes, None for all others."""
    root, *others = kernel.roots
    if root.dtype not in (dtypes.float32, dtypes.float64) or kernel.scatter:
        return None
    if any(isinstance(x.op, Reduce) or x.shape != root.shape for x in others):
        return None
    found = sum_of_products(root, storage.has_buffer)
    if found is None or root.inputs[0].shape != kernel.shape:
        return None
    turned = replace(
        found, left=found.right, right=found.left, rows=found.columns, columns=found.rows
    )
    for contraction in (found, turned):
        for stencil in _stencils(contraction, kernel.shape, storage):
            return stencil
    return None


def _stencils(
    contraction: Contraction, shape: tuple[int, ...], storage: Storage
) -> Iterator[Stencil]:
    columns, depth = contraction.columns, contraction.depth
    if len(columns) < 2 or len(depth) < 2:
        return
    if math.prod(shape[k] for k in contraction.rows) > _MOST_RESULTS:
        return
    for is_by_weight in (False, True):
        long, short = (depth[-2:], columns) if is_by_weight else (columns[-2:], depth)
        if len(short) != 2 or math.prod(shape[k] for k in short) > _MOST_TAPS:
            continue
        if is_by_weight and contraction.rows:
            continue
        found = [_window(contraction.right, pair, shape, storage) for pair in zip(long, short)]
        if found[0] is None or found[1] is None:
            continue
        if math.prod(window.reach(window.size) for window in found if window) <= _MOST_ELEMENTS:
            yield Stencil(contraction, (found[0], found[1]), is_by_weight)


def _window(
    factor: Node, pair: tuple[int, int], shape: tuple[int, ...], storage: Storage
) -> Window | None:
    """How two axes move the same dimension of a factor."""
    long, short = pair
    box = box_axes(shape)
    if not {long, short} <= axes_used(factor, box, storage.has_buffer):
        return None
    for step in _STEPS:
        window = Window(long, short, step, shape[long], shape[short])
        position = index_expr.axis(f"i{len(box)}", window.reach(window.size))
        at = list(box)
        shift = position - (0 if step > 0 else shape[short] - 1)
        at[short] = shift - box[long] * step if step > 0 else box[long] - shift
        if long not in axes_used(factor, tuple(at), storage.has_buffer):
            return window
    return None
