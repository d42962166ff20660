"""Resize: each element is a weighted sum of a few neighbours along each spatial dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import metaop
from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import operator
from metaop.onnx.values import Host, integers
from metaop.tensor.core import Tensor


class Grid(NamedTuple):
    """The positions of the result in the input, along one dimension."""

    extent: int
    output: int
    scale: float
    start: float
    end: float


class Rule(NamedTuple):
    """How a dimension is resized, by the attributes of the operator."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    outside: bool
    antialias: bool


def _positions(grid: Grid, coordinates: str) -> np.ndarray:
    places = np.arange(grid.output, dtype=np.float64)
    extent, scale = grid.extent, grid.scale
    length = scale * extent
    if coordinates == "asymmetric":
        return places / scale
    if coordinates == "align_corners":
        return places * (extent - 1) / (length - 1) if length != 1 else places * 0
    if coordinates == "pytorch_half_pixel":
        return (places + 0.5) / scale - 0.5 if length > 1 else places * 0
    if coordinates == "tf_half_pixel_for_nn":
        return (places + 0.5) / scale
    if coordinates == "half_pixel_symmetric":
        centre = extent / 2 * (1 - grid.output / length)
        return centre + (places + 0.5) / scale - 0.5
    if coordinates == "tf_crop_and_resize":
        if grid.output == 1:
            return places * 0 + 0.5 * (grid.start + grid.end) * (extent - 1)
        step = (grid.end - grid.start) * (extent - 1) / (length - 1)
        return grid.start * (extent - 1) + places * step
    if coordinates == "half_pixel":
        return (places + 0.5) / scale - 0.5
    raise ArgumentError(f"Resize: there is no coordinate mode {coordinates!r}")


def _nearest(places: np.ndarray, rounding: str) -> np.ndarray:
    if rounding == "floor":
        return np.floor(places)
    if rounding == "ceil":
        return np.ceil(places)
    up = np.floor(places + 0.5)
    return (
        np.where(places - np.floor(places) == 0.5, np.floor(places), up)
        if (rounding == "round_prefer_floor")
        else up
    )


def _kernel(distance: np.ndarray, rule: Rule) -> np.ndarray:
    """The weight of a neighbour by its distance."""
    x = np.abs(distance)
    if rule.mode == "linear":
        return np.maximum(0, 1 - x)
    a = rule.cubic
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _taps(grid: Grid, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours (outputs, taps) of each position, and their weights."""
    places = _positions(grid, rule.coordinates)
    if rule.mode == "nearest":
        found = np.clip(_nearest(places, rule.nearest), 0, grid.extent - 1)
        return found.astype(np.int64)[:, None], np.ones((grid.output, 1))
    shrink = min(1.0, grid.scale) if rule.antialias else 1.0
    reach = {"linear": 1, "cubic": 2}[rule.mode] / shrink
    count = int(2 * np.ceil(reach))
    first = np.floor(places).astype(np.int64) - count // 2 + 1
    found = first[:, None] + np.arange(count)
    weights = _kernel((found - places[:, None]) * shrink, rule)
    if rule.outside:
        weights = np.where((found >= 0) & (found < grid.extent), weights, 0)
    if rule.outside or rule.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(found, 0, grid.extent - 1), weights


def _resized(x: Tensor, dim: int, grid: Grid, rule: Rule, fill: float) -> Tensor:
    neighbours, weights = _taps(grid, rule)
    total = None
    shape = [-1 if k == dim else 1 for k in range(len(x.shape))]
    for tap in range(neighbours.shape[1]):
        part = x.index_select(dim, metaop.tensor(neighbours[:, tap].copy()).to(device=x.device))
        if rule.mode != "nearest":
            weight = metaop.tensor(weights[:, tap].astype(np.float32)).to(device=x.device)
            part = part * weight.reshape(shape)
        total = part if total is None else total + part
    assert total is not None
    if rule.coordinates == "tf_crop_and_resize":
        places = _positions(grid, rule.coordinates)
        inside = metaop.tensor((places >= 0) & (places <= grid.extent - 1)).reshape(shape)
        total = metaop.where(inside.to(device=x.device), total, fill)
    return total


def _sizes_and_scales(
    extents: Sequence[int],
    scales: Sequence[float] | None,
    sizes: Sequence[int] | None,
    policy: str,
) -> tuple[list[int], list[float]]:
    if sizes is None:
        assert scales is not None
        # In float32 like the scales, so that 3 * 1.3333 matches other runtimes.
        return [
            int(np.floor(np.float32(n) * np.float32(s))) for n, s in zip(extents, scales)
        ], list(scales)
    ratios = [size / n for size, n in zip(sizes, extents)]
    if policy == "stretch":
        return list(sizes), ratios
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [int(np.floor(ratio * n + 0.5)) for n in extents], [ratio] * len(ratios)


@operator("Resize", since=11)
def resize(
    x: Tensor,
    roi: Host | None = None,
    scales: Host | None = None,
    sizes: Host | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """Resizes to sizes or by factors, along all dimensions or those in `axes`."""
    ndim = len(x.shape)
    dims = [axis % ndim for axis in axes] if axes is not None else list(range(ndim))
    has_scales = scales is not None and np.size(scales) > 0
    outputs, factors = _sizes_and_scales(
        [shape_of(x)[dim] for dim in dims],
        [float(one) for one in np.asarray(scales).ravel()] if has_scales else None,
        None if has_scales else integers(sizes),
        keep_aspect_ratio_policy,
    )
    region = [0.0, 1.0] if roi is None or not np.size(roi) else np.asarray(roi, float).ravel()
    rule = Rule(
        mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(exclude_outside),
        bool(antialias),
    )  # fmt: skip
    quick = _quick(x, dims, outputs, factors, rule)
    if quick is not None:
        return quick
    wide = x if x.dtype.kind == "float" or mode == "nearest" else x.to(metaop.float32)
    for place, dim in enumerate(dims):
        crops = coordinate_transformation_mode == "tf_crop_and_resize"
        start = region[place] if crops and len(region) > 2 else 0.0
        end = region[place + len(dims)] if crops and len(region) > 2 else 1.0
        grid = Grid(shape_of(x)[dim], outputs[place], factors[place], float(start), float(end))
        if grid.extent != grid.output or grid.scale != 1 or (crops and (start, end) != (0, 1)):
            wide = _resized(wide, dim, grid, rule, extrapolation_value)
    return wide.to(x.dtype)


def _quick(
    x: Tensor, dims: Sequence[int], outputs: Sequence[int], factors: Sequence[float], rule: Rule
) -> Tensor | None:
    """Uses `interpolate` where it computes the same, because it compiles to a fixed map."""
    shape = shape_of(x)
    whole = list(shape)
    for dim, output in zip(dims, outputs):
        whole[dim] = output
    is_image = len(shape) in (3, 4) and whole[:2] == list(shape[:2]) and x.dtype.kind == "float"
    exact = all(abs(shape[d] * f - o) < 1e-4 for d, f, o in zip(dims, factors, outputs))
    if not is_image or not exact or rule.antialias or rule.outside:
        return None
    size = tuple(whole[2:])
    if rule.mode == "nearest" and rule.coordinates == "asymmetric" and rule.nearest == "floor":
        return F.interpolate(x, size=size, mode="nearest")
    if rule.mode == "linear" and rule.coordinates in ("half_pixel", "align_corners"):
        mode = "linear" if len(shape) == 3 else "bilinear"
        corners = rule.coordinates == "align_corners"
        return F.interpolate(x, size=size, mode=mode, align_corners=corners)
    return None


@operator("Upsample")
def upsample(x: Tensor, scales: Host, *, mode: str = "nearest") -> Tensor:
    """Upsamples by factors, with aligned corners."""
    kind = "linear" if mode in ("linear", "bilinear") else mode
    return resize(
        x, None, scales, coordinate_transformation_mode="asymmetric", mode=kind,
        nearest_mode="floor",
    )  # fmt: skip


@operator("Resize", since=10)
def resize_by_factors(x: Tensor, scales: Host, *, mode: str = "nearest") -> Tensor:
    """Resize of version 10, like Upsample."""
    return upsample(x, scales, mode=mode)
