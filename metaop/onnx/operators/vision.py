"""Operators on images."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop.nn import functional as F
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import Node, operator
from metaop.onnx.values import Host, integers
from metaop.tensor.core import Tensor


@operator("AffineGrid")
def affine_grid(theta: Tensor, size: Host, *, align_corners: int = 0) -> Tensor:
    """The sampling grid of an affine map."""
    return F.affine_grid(theta, integers(size), bool(align_corners))


@operator("GridSample")
def grid_sample(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    """Interpolated values at positions between pixels."""
    kind = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid, kind, padding_mode, bool(align_corners))


@operator("RoiAlign")
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str | None = None,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    node: Node,
) -> Tensor:
    """The mean of points in each bin of regions; since version 16 pixel centres are at 0.5.

    With `mode` max, it is the maximum of the weighted neighbours of all points.
    """
    style = coordinate_transformation_mode
    if style is None:
        style = "half_pixel" if node.version >= 16 else "output_half_pixel"
    aligned = style == "half_pixel"
    size = (output_height, output_width)
    if mode == "avg":
        from metaop.vision.ops import roi_align as aligned_regions

        rows = metaop.cat([batch_indices.to(x.dtype).unsqueeze(1), rois], 1)
        return aligned_regions(x, rows, size, spatial_scale, sampling_ratio or -1, aligned)
    return _largest_in_regions(x, rois, batch_indices, size, sampling_ratio, spatial_scale, aligned)


def _points(start: float, length: float, bins: int, ratio: int) -> np.ndarray:
    """The sampling points (bins, n) along one dimension."""
    count = ratio or math.ceil(length / bins)
    step = length / bins
    return start + (np.arange(bins)[:, None] + (np.arange(count) + 0.5) / count) * step


def _neighbours(places: np.ndarray, extent: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    inside = (places >= -1) & (places <= extent)
    bounded = np.clip(places, 0, extent - 1)
    low = np.minimum(np.floor(bounded).astype(np.int64), extent - 1)
    return low, bounded - low, inside


def _largest_in_regions(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    size: tuple[int, int],
    ratio: int,
    scale: float,
    aligned: bool,
) -> Tensor:
    height, width = shape_of(x)[2:]
    regions = []
    boxes = rois.numpy(force=True).astype(np.float64) * scale - (0.5 if aligned else 0.0)
    for (x1, y1, x2, y2), sample in zip(boxes, batch_indices.numpy(force=True)):
        tall, wide = y2 - y1, x2 - x1
        if not aligned:
            tall, wide = max(tall, 1.0), max(wide, 1.0)
        rows = _neighbours(_points(y1, tall, size[0], ratio).ravel(), height)
        columns = _neighbours(_points(x1, wide, size[1], ratio).ravel(), width)
        best: Any = None
        image = x[int(sample)]
        for dy in (0, 1):
            for dx in (0, 1):
                part = _corner(image, rows, columns, dy, dx)
                best = part if best is None else metaop.maximum(best, part)
        counts = len(rows[0]) // size[0], len(columns[0]) // size[1]
        bins = best.reshape((-1, size[0], counts[0], size[1], counts[1]))
        regions.append(metaop.amax(bins, [2, 4]))
    return metaop.stack(regions)


def _corner(image: Tensor, rows: Any, columns: Any, dy: int, dx: int) -> Tensor:
    """One of the four neighbours of all points, times its weight."""
    height, width = shape_of(image)[1:]
    found: Any = image
    for dim, (low, share, inside), step, extent in (
        (1, rows, dy, height),
        (2, columns, dx, width),
    ):
        place = np.minimum(low + step, extent - 1)
        weight = np.where(inside, share if step else 1 - share, 0)
        shape = [-1 if k == dim else 1 for k in range(3)]
        factor = metaop.tensor(weight).to(image.dtype).reshape(shape)
        found = found.index_select(dim, metaop.tensor(place)) * factor
    return found


@operator("MaxRoiPool")
def max_roi_pool(
    x: Tensor, rois: Tensor, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Tensor:
    """The maximum of each bin of regions."""
    from metaop.vision.ops import roi_pool

    return roi_pool(x, rois, tuple(pooled_shape), spatial_scale)


@operator("ImageDecoder")
def decoded(encoded: Host, *, pixel_format: str = "RGB") -> Tensor:
    """Decodes an image file to (H, W, channels) with Pillow."""
    from PIL import Image

    picture = Image.open(io.BytesIO(np.asarray(encoded).tobytes()))
    pixels = np.array(picture.convert("L" if pixel_format == "Grayscale" else "RGB"))
    if pixel_format == "Grayscale":
        pixels = pixels[:, :, None]
    return metaop.tensor(pixels[:, :, ::-1].copy() if pixel_format == "BGR" else pixels)
