"""Which kernels are windows that slide over a plane, and the layout of planes in scratch memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from metaop.fusion.kernel import Kernel, box_axes
from metaop.fusion.recognise import Contraction, accesses, axes_used, sum_of_products
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of, is_symbolic

_STEPS = (1, 2, 3, -1)
_MOST_TAPS = 49
# The most results per position of the plane: residues of a stride, or several weights per channel.
_MOST_RESULTS, _MOST_RESIDUES = 12, 4
# Planes with more elements would not stay in the near cache.
_MOST_ELEMENTS = 1 << 16
# The costs of an element in multiplications of the plain schedule: a product of the gradient by the
# weight, which waits for more loads; packed by the plain schedule.
_WEIGHT_PRODUCT, _PACKING = 2, 60
# The same for a band of rows of all channels, and its height relative to the window.
_MOST_IN_BANDS, BAND = 1 << 15, 2


class Window(NamedTuple):
    """The right factor depends on `step * long + short` alone, two axes of the box.

    With a negative step, on `long - short`. `size` and `taps` are the extents of both axes. Results
    of different residues see positions that are moved by `first … first + moves` places.
    """

    long: int
    short: int
    step: int
    size: int
    taps: int
    first: int = 0
    moves: int = 0

    @property
    def stride(self) -> int:
        """The distance by which the window moves from one position to the next."""
        return abs(self.step)

    def reach(self, size: int) -> int:
        """The number of inputs that a number of window positions read."""
        return self.stride * (size - 1 + self.moves) + self.taps

    def tap(self, number: int) -> int:
        """The position that a tap reads, relative to the window."""
        return number if self.step > 0 else self.taps - 1 - number

    def at(self, position: IndexExpr) -> dict[int, IndexExpr]:
        """Indices of both axes at which the right factor is read at a position."""
        moved = position + self.stride * self.first
        seen = moved if self.step > 0 else self.taps - 1 - moved
        return {self.long: index_expr.constant(0), self.short: seen}


class Residue(NamedTuple):
    """An axis of the result that moves a window, and by how much for each of its values."""

    axis: int
    window: int
    moves: tuple[int, ...]


class Stencil(NamedTuple):
    """The sum of products in a kernel, and the windows along the height and the width.

    The right factor has the windows. Rows of the contraction and residues are the results at each
    place. Channels are the reduced axes that are not taps; for the gradient by the weight there are
    none.
    """

    contraction: Contraction
    windows: tuple[Window, Window]
    residues: tuple[Residue, ...]
    channels: tuple[int, ...]
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
    transposed = replace(
        found, left=found.right, right=found.left, rows=found.columns, columns=found.rows
    )
    for contraction in (found, transposed):
        for stencil in _stencils(contraction, kernel.shape, storage):
            return stencil
    return None


def share_of_work(kernel: Kernel, stencil: Stencil, lanes: int) -> float:
    """The time of a stencil relative to plain sums; 0 if nothing else comes into question.

    Vectors have so many `lanes`; what is left of a row takes shorter and shorter ones.
    """
    rows = hint_of(_size(kernel.shape, stencil.contraction.rows))
    if rows == 1 or not stencil.is_by_weight:
        return 0.0
    size = hint_of(stencil.windows[1].size)
    vectors = size // lanes + (size % lanes).bit_count()
    return _WEIGHT_PRODUCT * rows * vectors * lanes / size / (rows + _PACKING)


def _stencils(
    contraction: Contraction, shape: tuple[int, ...], storage: Storage
) -> Iterator[Stencil]:
    columns, depth = contraction.columns, contraction.depth
    if len(columns) < 2 or len(depth) < 2:
        return
    rows = _size(shape, contraction.rows)
    if is_symbolic(rows):
        return
    if rows <= _MOST_RESULTS:
        yield from _forward(contraction, shape, storage)
    windows = _windows(contraction.right, depth[-2:], columns[-2:], [], shape, storage)
    if windows is not None and _fits(windows, 1):
        # Sums of other channels are tasks of their own.
        batch = (*contraction.batch, *columns[:-2])
        whole = replace(contraction, batch=batch, columns=columns[-2:])
        yield Stencil(whole, windows, (), (), True)


def _forward(
    contraction: Contraction, shape: tuple[int, ...], storage: Storage
) -> Iterator[Stencil]:
    columns, depth = contraction.columns, contraction.depth
    residues = _residues(contraction, columns[-2:], shape, storage)
    results = [*contraction.rows, *(residue.axis for residue in residues)]
    if _size(shape, results) <= _MOST_RESULTS:
        plain = [k for k in depth if not is_symbolic(shape[k])]
        for short in itertools.permutations(plain, 2):
            channels = tuple(k for k in depth if k not in short)
            # Sums over channels need to know how many planes there are.
            if not set(channels) <= set(plain):
                continue
            windows = _windows(contraction.right, columns[-2:], short, residues, shape, storage)
            # Small images are not windows that slide over other images.
            if channels and _size(shape, short) > hint_of(_size(shape, columns[-2:])):
                continue
            if windows is not None and _fits(windows, _size(shape, channels)):
                kept = tuple(k for k in contraction.batch if k not in results)
                whole = replace(contraction, batch=kept)
                yield Stencil(whole, windows, tuple(residues), channels, False)


def _size(shape: tuple[int, ...], axes: Sequence[int]) -> int:
    return math.prod(shape[k] for k in axes)


def _windows(
    factor: Node,
    long: tuple[int, ...],
    short: tuple[int, ...],
    residues: list[Residue],
    shape: tuple[int, ...],
    storage: Storage,
) -> tuple[Window, Window] | None:
    """The windows of two pairs of axes."""
    taps = _size(shape, short)
    if is_symbolic(taps) or taps > _MOST_TAPS:
        return None
    box = list(box_axes(shape))
    for residue in residues:
        box[residue.axis] = index_expr.constant(0)
    found = []
    for number, pair in enumerate(zip(long, short)):
        window = _window(factor, pair, box, shape, storage)
        if window is None:
            return None
        found.append(_moved(window, number, residues))
    return found[0], found[1]


def _fits(windows: tuple[Window, Window], channels: int) -> bool:
    """Whether planes, or bands of all channels, stay in the near cache."""
    down, along = windows
    width = hint_of(along.reach(along.size))
    if hint_of(down.reach(down.size)) * width > _MOST_ELEMENTS:
        return False
    # Planes of a symbolic height are not cut into bands.
    band = down.size if is_symbolic(down.size) else min(down.size, BAND * down.taps)
    return channels == 1 or channels * hint_of(down.reach(band)) * width <= _MOST_IN_BANDS


def _residues(
    contraction: Contraction, long: tuple[int, ...], shape: tuple[int, ...], storage: Storage
) -> list[Residue]:
    """The axes with few values that only move the windows of the right factor."""
    found = []
    for axis in contraction.batch:
        if is_symbolic(shape[axis]) or shape[axis] > _MOST_RESIDUES:
            continue
        for number, moved in enumerate(long):
            moves = [
                _move(contraction.right, (axis, value), moved, shape, storage)
                for value in range(shape[axis])
            ]
            known = tuple(move for move in moves if move is not None)
            if len(known) == len(moves):
                found.append(Residue(axis, number, known))
                break
    return found


def _move(
    factor: Node, fixed: tuple[int, int], moved: int, shape: tuple[int, ...], storage: Storage
) -> int | None:
    """How far an axis must be moved to see at the index 0 of another what is seen at this one."""
    axis, value = fixed
    here = list(box_axes(shape))
    here[axis] = index_expr.constant(value)
    wanted = list(accesses(factor, tuple(here), storage.has_buffer))
    here[axis] = index_expr.constant(0)
    start = here[moved]
    for move in (0, 1, -1):
        here[moved] = start + move
        if list(accesses(factor, tuple(here), storage.has_buffer)) == wanted:
            return move
    return None


def _moved(window: Window, number: int, residues: list[Residue]) -> Window:
    """A window with the moves of its residues."""
    moves = [0, *(move for r in residues if r.window == number for move in r.moves)]
    return window._replace(first=min(moves), moves=max(moves) - min(moves))


def _window(
    factor: Node,
    pair: tuple[int, int],
    box: list[IndexExpr],
    shape: tuple[int, ...],
    storage: Storage,
) -> Window | None:
    """How two axes move the same dimension of a factor."""
    long, short = pair
    if not {long, short} <= axes_used(factor, tuple(box), storage.has_buffer):
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
