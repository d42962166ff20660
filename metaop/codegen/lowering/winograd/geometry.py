"""Which contractions can take Winograd's method, and the tiles into which it cuts results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.winograd.rounding import excess
from metaop.codegen.lowering.winograd.short_products import SINGLE, ShortProduct, short_product
from metaop.fusion.kernel import Kernel
from metaop.fusion.sliding import Slide, is_one_of, slides
from metaop.fusion.storage import Storage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Shape
from metaop.unified_graph.symbolic import hint_of

# The cost of an element, in multiplications of the inner product: packed by the plain schedule;
# at each point, inputs and products of tiles; taps of the left factor.
_PACKING, _INPUT, _PRODUCT, _TAPS = 20, 24, 20, 45

# How many results a tile may have along an axis, by the taps of the window.
_RESULTS = {3: (2, 4), 5: (2,)}


class Window(NamedTuple):
    """The short products along one axis; without a slide, it represents no axis."""

    slide: Slide | None
    product: ShortProduct


class Geometry(NamedTuple):
    """The outer and the inner window of a contraction, and the axes that are cut or left.

    `tiles` has an extent for each column axis; `channels` are the depth axes that are not taps.
    """

    outer: Window
    inner: Window
    tiles: tuple[int, ...]
    channels: tuple[int, ...]

    @property
    def slides(self) -> list[tuple[Slide, int]]:
        """The slides, each with the number of its window."""
        return [(w.slide, k) for k, w in enumerate((self.outer, self.inner)) if w.slide]

    @property
    def results(self) -> tuple[int, int]:
        """The results of a tile along both windows."""
        return self.outer.product.results, self.inner.product.results

    @property
    def points(self) -> int:
        """The number of products of a tile."""
        return self.outer.product.points * self.inner.product.points


def geometries(kernel: Kernel, storage: Storage) -> list[Geometry]:
    """The tiles into which short products can cut the results of a contraction."""
    contraction, shape = kernel.contraction, kernel.shape
    if contraction is None or kernel.roots[0].dtype is not dtypes.float32:
        return []
    if not any(is_one_of(shape[k], _RESULTS) for k in contraction.depth):
        return []
    found: list[Slide | None] = [*slides(contraction, shape, storage.has_buffer, _RESULTS)[-2:]]
    # The results of a tile have to be neighbours along the innermost column.
    if not found or found[-1].column != contraction.columns[-1]:  # type: ignore[union-attr]
        return []
    outer, inner = found if len(found) == 2 else (None, *found)
    return [
        _geometry(kernel, windows)
        for windows in itertools.product(_windows_of(outer, shape), _windows_of(inner, shape))
    ]


def _windows_of(slide: Slide | None, shape: Shape) -> list[Window]:
    """The short products that an axis may take."""
    if slide is None:
        return [Window(None, SINGLE)]
    taps = shape[slide.tap]
    return [Window(slide, short_product(results, taps)) for results in _RESULTS[taps]]


def _geometry(kernel: Kernel, windows: tuple[Window, Window]) -> Geometry:
    contraction, shape = kernel.contraction, kernel.shape
    assert contraction is not None
    results = {w.slide.column: w.product.results for w in windows if w.slide}
    taps = {w.slide.tap for w in windows if w.slide}
    tiles = tuple(-(-shape[k] // results.get(k, 1)) for k in contraction.columns)
    return Geometry(*windows, tiles, tuple(k for k in contraction.depth if k not in taps))


def share_of_work(kernel: Kernel, geometry: Geometry, tile: Tile) -> float:
    """The time of a contraction with short products, relative to plain sums."""
    assert kernel.contraction is not None
    extents = _extents(kernel, kernel.contraction.depth)
    batch, rows, columns, depth = map(hint_of, extents)
    channels = hint_of(_extents(kernel, geometry.channels)[-1])
    tiles = hint_of(math.prod(geometry.tiles))
    strip = strip_of(tiles, tile)
    tiles = -(-tiles // strip) * strip
    products = tiles * rows * channels + tiles * (channels * _INPUT + rows * _PRODUCT)
    work = batch * geometry.points * float(products + rows * channels * _TAPS)
    return work / (batch * depth * columns * (rows + _PACKING))


def excess_of_rounding(kernel: Kernel, geometry: Geometry) -> float:
    """The rounding of a contraction with short products, relative to plain sums."""
    assert kernel.contraction is not None
    channels, depth = (
        _extents(kernel, axes)[-1] for axes in (geometry.channels, kernel.contraction.depth)
    )
    return excess((geometry.outer.product, geometry.inner.product), channels, depth)


def _extents(kernel: Kernel, depth: Sequence[int]) -> list[int]:
    contraction = kernel.contraction
    assert contraction is not None
    groups = (contraction.batch, contraction.rows, contraction.columns, depth)
    return [math.prod(kernel.shape[k] for k in axes) for axes in groups]


def strip_of(tiles: int, tile: Tile) -> int:
    """The number of tiles in the micro-kernel's columns."""
    return tile.columns if 2 * hint_of(tiles) > tile.columns else tile.columns // 2
