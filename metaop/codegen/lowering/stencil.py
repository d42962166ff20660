"""The schedule of windows that slide over a plane: depthwise convolutions and their gradients.

Where no axis belongs to one factor alone, nothing is gained by packing panels. A task copies the
plane that its windows see, with its padding, to scratch memory; all taps are then read from there,
in whole vectors and without conditions. For the gradient by the weight each tap has a sum of its
own, in every lane.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from metaop.codegen import loop_nest as ir
from metaop.codegen.lowering.base import GRAIN, LoweredKernel
from metaop.codegen.lowering.positions import Positions
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
# Planes with more elements would not stay near the processor.
_MOST_ELEMENTS = 1 << 16


class Window(NamedTuple):
    """The right factor depends on `step * long + short` alone, two axes of the box.

    With a negative step, on `long - short`.
    """

    long: int
    short: int
    step: int

    def place(self, long: IndexExpr, short: int, extent: int) -> IndexExpr:
        """The position in a plane of a tap, of `extent` many."""
        return long * abs(self.step) + (short if self.step > 0 else extent - 1 - short)


class Stencil(NamedTuple):
    """The sum of products in a kernel, and the windows along the height and the width."""

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
    for contraction in (found, replace(found, left=found.right, right=found.left)):
        stencil = _stencil(contraction, kernel, storage)
        if stencil is not None:
            return stencil
    return None


def _stencil(contraction: Contraction, kernel: Kernel, storage: Storage) -> Stencil | None:
    shape = kernel.shape
    # Which factor has the columns depends on the order of the result alone.
    columns = contraction.columns or contraction.rows
    if (contraction.columns and contraction.rows) or len(columns) < 2 or len(contraction.depth) < 2:
        return None
    taken = replace(contraction, columns=columns, rows=())
    for is_by_weight in (False, True):
        long, short = columns[-2:], contraction.depth
        if is_by_weight:
            long, short = contraction.depth[-2:], columns
        if len(short) != 2 or math.prod(shape[k] for k in short) > _MOST_TAPS:
            continue
        found = [_window(taken.right, pair, shape, storage) for pair in zip(long, short)]
        if found[0] is None or found[1] is None or not _fits(shape, (found[0], found[1])):
            continue
        return Stencil(taken, (found[0], found[1]), is_by_weight)
    return None


def _fits(shape: tuple[int, ...], windows: tuple[Window, Window]) -> bool:
    extents = [_reach(shape, window) for window in windows]
    return math.prod(extents) <= _MOST_ELEMENTS


def _reach(shape: tuple[int, ...], window: Window) -> int:
    return abs(window.step) * (shape[window.long] - 1) + shape[window.short]


def _window(
    factor: Node, pair: tuple[int, int], shape: tuple[int, ...], storage: Storage
) -> Window | None:
    """How two axes move the same dimension of a factor."""
    long, short = pair
    box = box_axes(shape)
    if not {long, short} <= axes_used(factor, box, storage.has_buffer):
        return None
    for step in _STEPS:
        window = Window(long, short, step)
        position = index_expr.axis(f"i{len(box)}", _reach(shape, window))
        at = list(box)
        shift = position - (0 if step > 0 else shape[short] - 1)
        at[short] = shift - box[long] * step if step > 0 else box[long] - shift
        if long not in axes_used(factor, tuple(at), storage.has_buffer):
            return window
    return None


def lower_stencil(
    kernel: Kernel, storage: Storage, uses: dict[Node, int], stencil: Stencil
) -> LoweredKernel:
    """The launch of a stencil."""
    whole = replace(kernel, contraction=stencil.contraction)
    lowering = _ByWeight if stencil.is_by_weight else _Forward
    return lowering(whole, storage, uses, stencil).lower()


class _Planes(Positions):
    """What both directions share: planes in scratch memory, and taps."""

    def __init__(
        self, kernel: Kernel, storage: Storage, uses: dict[Node, int], stencil: Stencil
    ) -> None:
        super().__init__(kernel, storage, uses)
        self.windows = stencil.windows
        self.height, self.width = (_reach(kernel.shape, window) for window in self.windows)
        self.long = [kernel.shape[window.long] for window in self.windows]
        self.short = [kernel.shape[window.short] for window in self.windows]
        self.plane, self.sums = -1, -2

    def lower(self) -> LoweredKernel:
        """The nest of the launch."""
        raise NotImplementedError

    def _copy_plane(self) -> None:
        """What the windows at a place see, and zeros around it."""
        values = self.values
        values.open("a")
        values.open("b")
        at = index_expr.axis("a", self.height), index_expr.axis("b", self.width)
        place = dict(self.place)
        for window, position, extent in zip(self.windows, at, self.short):
            place[window.long] = index_expr.constant(0)
            place[window.short] = position if window.step > 0 else extent - 1 - position
        value = self.padded(self.contraction.right, place, [])
        values.emit(ir.Store(self.plane, values.sum(at[0] * self.width + at[1]), value))
        self._close("b", self.width, vector=True)
        self._close("a", self.height)

    def _taps(self) -> Iterator[tuple[int, int]]:
        return itertools.product(range(self.short[0]), range(self.short[1]))

    def _seen(self, long: tuple[IndexExpr, IndexExpr], tap: tuple[int, int]) -> ir.Expr:
        """What a tap sees in the plane."""
        row, column = (
            window.place(position, short, extent)
            for window, position, short, extent in zip(self.windows, long, tap, self.short)
        )
        return ir.Load(self.plane, self.values.sum(row * self.width + column), self.scalar)

    def _left_at(self, place: dict[int, IndexExpr]) -> ir.Expr:
        return self.padded(self.contraction.left, place, [])

    def _close(self, axis: str, extent: int, vector: bool = False) -> None:
        self.values.emit(ir.For(axis, extent, "serial", self.values.close(), (), vector))

    def _apply(self, function: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        return ir.Apply(function, (left, right), self.scalar, self.scalar)


class _Forward(_Planes):
    """Results along the plane; all taps of one are summed at once."""

    def lower(self) -> LoweredKernel:
        values, contraction = self.values, self.contraction
        axes = (*contraction.batch, *contraction.columns[:-2])
        extents = [self.kernel.shape[k] for k in axes]
        tasks = math.prod(extents)
        values.open("p")
        self.place = dict(zip(axes, index_expr.unravel(index_expr.axis("p", tasks), extents)))
        values.emit(ir.Alloc(self.plane, self.height * self.width, self.scalar))
        self._copy_plane()
        values.open("m")
        values.open("n")
        long = index_expr.axis("m", self.long[0]), index_expr.axis("n", self.long[1])
        total: ir.Expr | None = None
        for tap in self._taps():
            place = dict(self.place)
            for window, short in zip(self.windows, tap):
                place[window.short] = index_expr.constant(short)
            product = self._apply("mul", self._left_at(place), self._seen(long, tap))
            total = product if total is None else self._apply("add", total, product)
        assert total is not None
        place = dict(self.place)
        place.update((window.long, position) for window, position in zip(self.windows, long))
        self.store(place, (), total)
        self._close("n", self.long[1], vector=True)
        self._close("m", self.long[0])
        values.emit(ir.For("p", tasks, "parallel", values.close()))
        grain = max(1, GRAIN // (self.height * self.width))
        return self.finish("stencil", values.close(), grain)


class _ByWeight(_Planes):
    """A result for each tap; planes are summed over, in every lane for itself."""

    def lower(self) -> LoweredKernel:
        values, contraction = self.values, self.contraction
        tasks = math.prod(self.batch)
        values.open("p")
        batch = index_expr.unravel(index_expr.axis("p", tasks), self.batch)
        self.place = dict(zip(contraction.batch, batch))
        taps, width = list(self._taps()), self.long[1]
        values.emit(ir.Alloc(self.plane, self.height * self.width, self.scalar))
        values.emit(ir.Alloc(self.sums, len(taps) * width, self.scalar))
        self._clear(len(taps) * width)
        inside = {window.long for window in self.windows}
        axes = [k for k in contraction.depth if k not in inside]
        extents = [self.kernel.shape[k] for k in axes]
        planes = math.prod(extents)
        values.open("r")
        outside = index_expr.unravel(index_expr.axis("r", planes), extents)
        self.place.update(zip(axes, outside))
        self._copy_plane()
        self._add_products(taps)
        self._close("r", planes)
        self._store_sums(taps)
        values.emit(ir.For("p", tasks, "parallel", values.close()))
        return self.finish("stencil", values.close(), 1)

    def _clear(self, extent: int) -> None:
        values = self.values
        values.open("n")
        place = values.sum(index_expr.axis("n", extent))
        values.emit(ir.Store(self.sums, place, ir.Number(0, self.scalar)))
        self._close("n", extent, vector=True)

    def _add_products(self, taps: list[tuple[int, int]]) -> None:
        values, (height, width) = self.values, self.long
        long = index_expr.axis("m", height), index_expr.axis("n", width)
        values.open("n")
        values.open("m")
        place = dict(self.place)
        place.update((window.long, position) for window, position in zip(self.windows, long))
        left = values.fresh("g")
        values.emit(ir.Let(left, self._left_at(place)))
        names = [values.fresh("s") for _ in taps]
        for name, tap in zip(names, taps):
            factor = ir.Name(left, self.scalar)
            product = self._apply("mul", factor, self._seen(long, tap))
            values.emit(ir.Accumulate(name, product))
        accumulators = tuple(ir.Accumulator(name, "add", self.scalar) for name in names)
        values.emit(ir.For("m", height, "serial", values.close(), accumulators))
        for number, name in enumerate(names):
            offset = values.sum(long[1] + number * width)
            values.emit(ir.Update(self.sums, offset, "add", ir.Name(name, self.scalar)))
        self._close("n", width, vector=True)

    def _store_sums(self, taps: list[tuple[int, int]]) -> None:
        values, width = self.values, self.long[1]
        for number, tap in enumerate(taps):
            name = values.fresh("s")
            values.open("n")
            offset = values.sum(index_expr.axis("n", width) + number * width)
            values.emit(ir.Accumulate(name, ir.Load(self.sums, offset, self.scalar)))
            accumulator = (ir.Accumulator(name, "add", self.scalar),)
            values.emit(ir.For("n", width, "serial", values.close(), accumulator, True))
            place = {k: x for k, x in self.place.items() if k in self.contraction.batch}
            for window, short in zip(self.windows, tap):
                place[window.short] = index_expr.constant(short)
            self.store(place, (), ir.Name(name, self.scalar))
