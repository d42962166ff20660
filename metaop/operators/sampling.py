"""Sampling an image at computed coordinates, and moving elements between channels and space."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import ShapeError
from metaop.operators.expressions import clip, in_compute_type, index_along
from metaop.operators.interpolation import cubic
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import permute, reshape, select, unsqueeze
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.index_expr import lookup
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import as_float


@composite
@in_compute_type
def grid_sample(input: Node, grid: Node, mode: str, padding: str, align_corners: bool) -> Node:
    """The input (N, C, *extents) at coordinates `grid` (N, *output, D), -1 … 1 across the input.

    The last dimension of the grid holds coordinates in the order x, y(, z): last dimension first.
    """
    spatial = input.ndim - 2
    if (
        spatial not in (2, 3)
        or grid.ndim != input.ndim
        or grid.shape[-1] != spatial
        or grid.shape[0] != input.shape[0]
    ):
        raise ShapeError(
            f"grid_sample: grid {list(grid.shape)} does not fit input {list(input.shape)}",
            fix="input is (N, C, *extents), grid (N, *output, D) for D = 2 or 3 extents",
        )
    extents = input.shape[2:]
    places = [
        _unnormalised(select(grid, grid.ndim - 1, spatial - 1 - k), extent, align_corners)
        for k, extent in enumerate(extents)
    ]
    if mode == "bicubic":
        return _bicubic(input, places, padding, align_corners)
    places = [
        _kept_inside(place, extent, padding, align_corners)
        for place, extent in zip(places, extents)
    ]
    if mode == "nearest":
        return _at(input, [apply("round", place) for place in places])
    lows = [apply("floor", place) for place in places]
    result: Node | None = None
    for corner in itertools.product((0, 1), repeat=spatial):
        weight: Node | None = None
        for place, low, high in zip(places, lows, corner):
            part = place - low if high else 1.0 - (place - low)
            weight = part if weight is None else weight * part
        assert weight is not None
        value = _at(input, [low + float(high) for low, high in zip(lows, corner)])
        term = value * unsqueeze(weight, 1)
        result = term if result is None else result + term
    assert result is not None
    return result


def _unnormalised(place: Node, extent: int, align_corners: bool) -> Node:
    if align_corners:
        return (place + 1.0) * ((extent - 1) / 2)
    return ((place + 1.0) * as_float(extent) - 1.0) * 0.5


def _kept_inside(place: Node, extent: int, padding: str, align_corners: bool) -> Node:
    """Coordinates moved into the image according to the padding mode; "zeros" keeps them."""
    if padding == "zeros":
        return place
    if padding == "reflection":
        place = _reflected(place, extent, align_corners)
    return clip(place, 0, extent - 1)


def _reflected(place: Node, extent: int, align_corners: bool) -> Node:
    low, span = (0.0, as_float(extent - 1)) if align_corners else (-0.5, as_float(extent))
    if span == 0:
        return place * 0
    distance = apply("abs", place - low)
    extra = apply("fmod", distance, span)
    flips = apply("floor", distance / span)
    even = apply("fmod", flips, 2.0).equals(0)
    return where(even, extra + low, span - extra + low)


def _at(input: Node, places: Sequence[Node]) -> Node:
    """The input at integer coordinates (N, *output), 0 outside: (N, C, *output)."""
    inside: Node | None = None
    operands = []
    for place, extent in zip(places, input.shape[2:]):
        holds = (place >= 0) & (place <= extent - 1)
        inside = holds if inside is None else inside & holds
        operands.append(cast(where(holds, place, 0), dtypes.int64))
    assert inside is not None
    shape = (*input.shape[:2], *places[0].shape[1:])
    axes = IndexMap.axes(shape)
    point = (axes[0], *axes[2:])
    found = [lookup(k + 1, point, extent) for k, extent in enumerate(input.shape[2:])]
    value = reindex(input, IndexMap(shape, [*axes[:2], *found]), 0, operands)
    return where(unsqueeze(inside, 1), value, 0)


def _bicubic(input: Node, places: Sequence[Node], padding: str, align_corners: bool) -> Node:
    if len(places) != 2:
        raise ShapeError(
            f"grid_sample: bicubic needs images (N, C, H, W), got {list(input.shape)}",
            fix="use mode='bilinear'",
        )
    lows = [apply("floor", place) for place in places]
    result: Node | None = None
    for taps in itertools.product((-1.0, 0.0, 1.0, 2.0), repeat=2):
        weight: Node | None = None
        spots = []
        for place, low, tap, extent in zip(places, lows, taps, input.shape[2:]):
            part = cubic(apply("abs", place - low - tap))
            weight = part if weight is None else weight * part
            spots.append(_kept_inside(low + tap, extent, padding, align_corners))
        assert weight is not None
        term = _at(input, [apply("round", spot) for spot in spots]) * unsqueeze(weight, 1)
        result = term if result is None else result + term
    assert result is not None
    return result


@composite
def affine_grid(theta: Node, size: tuple[int, ...], align_corners: bool) -> Node:
    """The coordinates to which the affine maps `theta` (N, D, D + 1) send an output of `size`.

    Returns a grid (N, *extents, D) for `grid_sample`.
    """
    spatial = len(size) - 2
    if theta.shape != (size[0], spatial, spatial + 1) or spatial not in (2, 3):
        raise ShapeError(
            f"affine_grid: theta {list(theta.shape)} does not fit size {list(size)}",
            fix="theta is (N, 2, 3) for sizes (N, C, H, W), (N, 3, 4) for (N, C, D, H, W)",
        )
    shape = (size[0], *size[2:], spatial)
    rows = reshape(theta, (size[0], *(1 for _ in range(spatial)), spatial, spatial + 1))
    result = select(rows, rows.ndim - 1, spatial)
    for k in range(spatial):
        dim = spatial - k
        place = _spread(shape, dim, size[dim + 1], align_corners, theta.dtype)
        result = result + select(rows, rows.ndim - 1, k) * place
    return result


def _spread(
    shape: tuple[int, ...], dim: int, extent: int, align_corners: bool, dtype: DType
) -> Node:
    """-1 … 1 along `dim`: at the outermost elements' centres or at their outer edges."""
    position = cast(index_along(shape, dim), dtype)
    if align_corners:
        return position * (2.0 / (extent - 1)) - 1.0 if extent > 1 else position * 0
    return (position * 2.0 + 1.0) / as_float(extent) - 1.0


@composite
def pixel_shuffle(input: Node, factor: int) -> Node:
    """Channels moved into space: (…, C * r**2, H, W) -> (…, C, H * r, W * r)."""
    if input.ndim < 3 or factor < 1 or input.shape[-3] % (factor * factor):
        raise ShapeError(
            f"pixel_shuffle: the channels of {list(input.shape)} are not divisible by the square "
            f"of upscale_factor={factor}",
            fix="input is (…, C * upscale_factor**2, H, W)",
        )
    *lead, channels, height, width = input.shape
    n = len(lead)
    split = reshape(input, (*lead, channels // factor**2, factor, factor, height, width))
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    result = (*lead, channels // factor**2, height * factor, width * factor)
    return reshape(permute(split, order), result)


@composite
def pixel_unshuffle(input: Node, factor: int) -> Node:
    """Space moved into channels: (…, C, H * r, W * r) -> (…, C * r**2, H, W)."""
    if input.ndim < 3 or factor < 1 or input.shape[-1] % factor or input.shape[-2] % factor:
        raise ShapeError(
            f"pixel_unshuffle: the last extents of {list(input.shape)} are not divisible by "
            f"downscale_factor={factor}",
            fix="input is (…, C, H * downscale_factor, W * downscale_factor)",
        )
    *lead, channels, height, width = input.shape
    n = len(lead)
    rows, columns = height // factor, width // factor
    split = reshape(input, (*lead, channels, rows, factor, columns, factor))
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return reshape(permute(split, order), (*lead, channels * factor**2, rows, columns))


@composite
def channel_shuffle(input: Node, groups: int) -> Node:
    """The channels (dimension 1) of `groups` groups, interleaved."""
    if input.ndim < 3 or groups < 1 or input.shape[1] % groups:
        raise ShapeError(
            f"channel_shuffle: the channels of {list(input.shape)} are not divisible by "
            f"groups={groups}",
            fix="input is (N, C, *extents) with C a multiple of groups",
        )
    batch, channels, *extents = input.shape
    split = reshape(input, (batch, groups, channels // groups, *extents))
    order = [0, 2, 1, *range(3, split.ndim)]
    return reshape(permute(split, order), input.shape)
