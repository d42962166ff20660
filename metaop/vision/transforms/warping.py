"""Affine, perspective and elastic warps of images.

The host computes the source position of every new pixel; the values are gathered from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.vision.transforms.arrays import (
    Pixels,
    cast,
    constant,
    dtype_of,
    namespace,
    on_pixels,
    rounded_to,
    working_type,
)
from metaop.vision.transforms.modes import InterpolationMode


def inverse_affine_matrix(
    center: Sequence[float],
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Sequence[float],
) -> np.ndarray:
    """The (2, 3) matrix that maps positions of the new image to positions of the old one.

    The image is sheared, scaled and rotated clockwise (degrees) about `center`, then translated.
    """
    turn, shear_x, shear_y = (math.radians(value) for value in (angle, *shear))
    a = math.cos(turn - shear_y) / math.cos(shear_y)
    b = -math.cos(turn - shear_y) * math.tan(shear_x) / math.cos(shear_y) - math.sin(turn)
    c = math.sin(turn - shear_y) / math.cos(shear_y)
    d = -math.sin(turn - shear_y) * math.tan(shear_x) / math.cos(shear_y) + math.cos(turn)
    linear = np.array([[d, -b], [-c, a]]) / scale
    middle = np.asarray(center, float)
    offset = middle - linear @ (middle + np.asarray(translate, float))
    return np.concatenate([linear, offset[:, None]], 1)


def perspective_coefficients(
    startpoints: Sequence[Sequence[float]], endpoints: Sequence[Sequence[float]]
) -> list[float]:
    """The eight coefficients of the map from the four end points to the start points."""
    rows, values = [], []
    for (x, y), (u, v) in zip(endpoints, startpoints):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
        values += [u, v]
    solution = np.linalg.lstsq(np.array(rows, float), np.array(values, float), rcond=None)[0]
    return solution.astype(np.float32).tolist()


@on_pixels
def affine(
    image: Pixels, matrix: np.ndarray, mode: InterpolationMode, fill: Any, size: Sequence[int]
) -> Pixels:
    """Warps by `matrix`, which maps positions relative to the centres of new and old image."""
    height, width = size
    rows, columns = image.shape[-2:]
    x, y = np.arange(width) + 0.5 - width / 2, np.arange(height) + 0.5 - height / 2
    (xx, xy, moved_x), (yx, yy, moved_y) = matrix.tolist()
    seen_x = (xx * x + (moved_x + columns / 2 - 0.5)) + (xy * y)[:, None]
    seen_y = (yx * x + (moved_y + rows / 2 - 0.5)) + (yy * y)[:, None]
    return _gathered(image, seen_x, seen_y, mode, fill)


@on_pixels
def perspective(
    image: Pixels, coefficients: Sequence[float], mode: InterpolationMode, fill: Any
) -> Pixels:
    a, b, c, d, e, f, g, h = coefficients
    rows, columns = image.shape[-2:]
    x, y = np.meshgrid(np.arange(columns) + 0.5, np.arange(rows) + 0.5)
    depth = g * x + h * y + 1
    seen_x, seen_y = (a * x + b * y + c) / depth, (d * x + e * y + f) / depth
    return _gathered(image, seen_x - 0.5, seen_y - 0.5, mode, fill)


@on_pixels
def displaced(
    image: Pixels, displacement: np.ndarray, mode: InterpolationMode, fill: Any
) -> Pixels:
    """Reads every pixel at an offset `displacement` (height, width, 2); 1 is half of the image."""
    rows, columns = image.shape[-2:]
    x, y = np.meshgrid(np.arange(columns, dtype=float), np.arange(rows, dtype=float))
    seen_x = x + displacement[..., 0] * columns / 2
    seen_y = y + displacement[..., 1] * rows / 2
    return _gathered(image, seen_x, seen_y, mode, fill)


def _gathered(
    image: Pixels, x: np.ndarray, y: np.ndarray, mode: InterpolationMode, fill: Any
) -> Pixels:
    """The image at positions (x, y), arrays (height, width); `fill` outside."""
    if mode is InterpolationMode.NEAREST:
        value, share = _tap(image, np.rint(x), np.rint(y))
        background = _background(fill, value)
        return namespace(value).where(constant(share, value), value, background)
    if mode is not InterpolationMode.BILINEAR:
        raise ArgumentError(
            f"interpolation {mode.value!r} is for Pillow images only",
            fix="use nearest or bilinear for tensors",
        )
    values = cast(image, working_type(image))
    kind = dtype_of(values).numpy
    left, top = np.floor(x), np.floor(y)
    right_share, lower_share = (x - left).astype(kind), (y - top).astype(kind)
    result: Any = 0.0
    total: Any = 0.0
    for down, vertical in ((0, 1 - lower_share), (1, lower_share)):
        for across, horizontal in ((0, 1 - right_share), (1, right_share)):
            value, inside = _tap(values, left + across, top + down)
            weight = vertical * horizontal * inside
            total = total + weight
            result = result + value * constant(weight, values)
    if fill is not None:
        # As in torchvision, pixels partly outside are weighted a second time.
        share = constant(total, values)
        result = result * share + (1.0 - share) * _background(fill, values)
    return rounded_to(result, dtype_of(image))


def _tap(image: Pixels, x: np.ndarray, y: np.ndarray) -> tuple[Pixels, np.ndarray]:
    """The pixels at integer positions, and which are inside; outside, any pixel."""
    rows, columns = image.shape[-2:]
    # Infinite positions become the smallest integer.
    with np.errstate(invalid="ignore"):
        x, y = x.astype(np.int64), y.astype(np.int64)
    # As unsigned numbers, negative positions are too large.
    inside = (x.view(np.uint64) < columns) & (y.view(np.uint64) < rows)
    places = (y * columns + x) * inside
    flat = image.reshape(*image.shape[:-2], rows * columns)
    chosen = places.reshape(-1)
    if isinstance(flat, np.ndarray):
        # All positions are inside; "wrap" only avoids the bounds check.
        values = flat.take(chosen, -1, mode="wrap")
    else:
        values = flat.index_select(-1, constant(chosen, image))
    return values.reshape(*image.shape[:-2], *places.shape), inside


def _background(fill: Any, image: Pixels) -> Pixels:
    colour = np.asarray(0 if fill is None else fill, dtype_of(image).numpy).reshape(-1, 1, 1)
    if len(colour) not in (1, image.shape[-3] if image.ndim > 2 else 1):
        raise ArgumentError(
            f"The number of elements in 'fill' ({len(colour)}) does not match the number of "
            f"channels of the image ({image.shape[-3]})"
        )
    return constant(colour, image)


def expanded_size(matrix: np.ndarray, height: int, width: int) -> tuple[int, int]:
    """Height and width of the bounding box of the rotated image."""
    corners = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]]) * np.array([width, height]) / 2
    places = corners @ matrix[:, :2].T + matrix[:, 2] + np.array([width, height]) / 2
    # Rounding errors must not add a row of pixels.
    low, high = (
        np.trunc(ends.astype(np.float32) * 1e4) / 1e4 for ends in (places.min(0), places.max(0))
    )
    across, down = (np.ceil(high) - np.floor(low)).astype(int).tolist()
    return down, across
