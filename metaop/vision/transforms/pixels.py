"""Geometric functions of pixels: cropping, padding, flipping, resizing, blurring.

Resizing and blurring are separable and linear: one small matrix from the left and one from the
right, made on the host. So their gradients are those of matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
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
from metaop.vision.transforms.modes import InterpolationMode, resampling


@on_pixels
def hflip(image: Pixels) -> Pixels:
    return namespace(image).flip(image, (-1,))


@on_pixels
def vflip(image: Pixels) -> Pixels:
    return namespace(image).flip(image, (-2,))


@on_pixels
def crop(image: Pixels, top: int, left: int, height: int, width: int) -> Pixels:
    rows, columns = image.shape[-2:]
    inside = image[..., max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)]
    missing = (
        max(min(left + width, 0) - left, 0),
        max(min(top + height, 0) - top, 0),
        max(left + width - max(columns, left), 0),
        max(top + height - max(rows, top), 0),
    )
    return padded(inside, missing, 0, "constant") if any(missing) else inside


# torchvision's names of the modes and NumPy's and PyTorch's.
_MODES = {
    "constant": ("constant", "constant"),
    "edge": ("edge", "replicate"),
    "reflect": ("reflect", "reflect"),
    "symmetric": ("symmetric", ""),
}


def padded(image: Pixels, sides: Sequence[int], fill: Any, mode: str) -> Pixels:
    """The image with pixels added at the left, top, right and bottom; negative sides crop."""
    left, top, right, bottom = sides
    if min(sides) < 0:
        rows, columns = image.shape[-2:]
        image = image[..., max(-top, 0) : rows - max(-bottom, 0), :]
        image = image[..., max(-left, 0) : columns - max(-right, 0)]
        left, top, right, bottom = (max(side, 0) for side in sides)
    if isinstance(image, np.ndarray):
        widths = [(0, 0)] * (image.ndim - 2) + [(top, bottom), (left, right)]
        options = {"constant_values": fill} if mode == "constant" else {}
        return np.pad(image, widths, _MODES[mode][0], **options)  # type: ignore[call-overload]
    if mode == "symmetric":
        return _mirrored(image, (left, top, right, bottom))
    options = {"value": fill} if mode == "constant" else {}
    return metaop.nn.functional.pad(image, (left, right, top, bottom), _MODES[mode][1], **options)


def _mirrored(image: Tensor, sides: tuple[int, int, int, int]) -> Tensor:
    left, top, right, bottom = sides
    rows, columns = image.shape[-2:]
    down = np.pad(np.arange(rows), (top, bottom), "symmetric")
    across = np.pad(np.arange(columns), (left, right), "symmetric")
    return image[..., constant(down, image), :][..., constant(across, image)]  # type: ignore


@on_pixels
def pad(image: Pixels, sides: Sequence[int], fill: Any = 0, mode: str = "constant") -> Pixels:
    if mode not in _MODES:
        raise ArgumentError(f"pad: padding_mode {mode!r} is not one of {', '.join(_MODES)}")
    return padded(image, sides, fill, mode)


# --- resizing -----------------------------------------------------------------------------------


def _linear(distance: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(distance), 0)


def _cubic(steepness: float, distance: np.ndarray) -> np.ndarray:
    x, a = np.abs(distance), steepness
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def resizing_matrix(
    before: int, after: int, mode: InterpolationMode, antialias: bool
) -> np.ndarray:
    """The (after, before) matrix whose rows are the weights of old pixels in a new one."""
    scale = before / after
    centre = (np.arange(after) + 0.5) * scale
    places = np.arange(before) + 0.5
    cubic = mode is InterpolationMode.BICUBIC
    if antialias:
        # A new pixel averages all old ones that it covers; Pillow's kernel is steeper.
        stretch = max(scale, 1.0)
        offset = (places - centre[:, None]) / stretch
        weights = _cubic(-0.5, offset) if cubic else _linear(offset)
        support = (2.0 if cubic else 1.0) * stretch
        first = np.maximum(np.floor(centre - support + 0.5), 0)[:, None]
        last = np.minimum(np.floor(centre + support + 0.5), before)[:, None]
        number = np.arange(before)
        weights = np.where((number >= first) & (number < last), weights, 0.0)
        return weights / weights.sum(1, keepdims=True)
    reach = np.arange(-1, 3) if cubic else np.arange(0, 2)
    position = centre - 0.5 if cubic else np.maximum(centre - 0.5, 0)
    start = np.floor(position)
    matrix = np.zeros((after, before))
    for step in reach:
        distance = position - (start + step)
        weights = _cubic(-0.75, distance) if cubic else _linear(distance)
        column = np.clip(start + step, 0, before - 1).astype(np.int64)
        np.add.at(matrix, (np.arange(after), column), weights)
    return matrix


def _nearest(before: int, after: int, exact: bool) -> np.ndarray:
    offset = 0.5 if exact else 0.0
    # float32 as in PyTorch, so that ties fall on the same pixel.
    scale = np.float32(before) / np.float32(after)
    chosen = np.floor((np.arange(after, dtype=np.float32) + np.float32(offset)) * scale)
    return np.minimum(chosen.astype(np.int64), before - 1)


def sandwiched(left: np.ndarray, image: Pixels, right: np.ndarray) -> Pixels:
    """`left @ image @ right.T` for every channel, in the type of the image."""
    work = working_type(image)
    values = cast(image, work)
    down = constant(left.astype(work.numpy), values)
    across = constant(np.ascontiguousarray(right.T.astype(work.numpy)), values)
    xp = namespace(values)
    return rounded_to(xp.matmul(down, xp.matmul(values, across)), dtype_of(image))


# Single channels of floats Pillow resizes by the same weights, several times faster.
_PILLOW_TYPES = ("uint8", "float32")


def _resized_by_pillow(
    image: np.ndarray, height: int, width: int, mode: InterpolationMode
) -> np.ndarray:
    from PIL import Image

    channels = np.ascontiguousarray(image, np.float32).reshape(-1, *image.shape[-2:])
    result = np.empty((len(channels), height, width), np.float32)
    for number, channel in enumerate(channels):
        resized = Image.fromarray(channel).resize((width, height), resampling(mode))
        result[number] = np.asarray(resized)
    shaped = result.reshape(*image.shape[:-2], height, width)
    return rounded_to(shaped, dtype_of(image))


@on_pixels
def resize(
    image: Pixels, size: Sequence[int], mode: InterpolationMode, antialias: bool = True
) -> Pixels:
    height, width = size
    rows, columns = image.shape[-2:]
    if (rows, columns) == (height, width):
        return image
    if mode in (InterpolationMode.NEAREST, InterpolationMode.NEAREST_EXACT):
        exact = mode is InterpolationMode.NEAREST_EXACT
        down = constant(_nearest(rows, height, exact), image)
        across = constant(_nearest(columns, width, exact), image)
        return image[..., down, :][..., across]
    if mode not in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC):
        raise ArgumentError(
            f"resize: interpolation {mode.value!r} is for Pillow images only",
            fix="use nearest, bilinear or bicubic for tensors",
        )
    if antialias and isinstance(image, np.ndarray) and image.dtype.name in _PILLOW_TYPES:
        return _resized_by_pillow(image, height, width, mode)
    return sandwiched(
        resizing_matrix(rows, height, mode, antialias),
        image,
        resizing_matrix(columns, width, mode, antialias),
    )


# --- blurring -----------------------------------------------------------------------------------


def _blurring_matrix(extent: int, size: int, sigma: float) -> np.ndarray:
    """Gaussian weights of `size` pixels around each one, reflected at the borders."""
    offsets = np.arange(size) - (size - 1) / 2
    kernel = np.exp(-0.5 * (offsets / sigma) ** 2)
    kernel /= kernel.sum()
    sources = np.pad(np.arange(extent), size // 2, "reflect")
    matrix = np.zeros((extent, extent))
    for step, weight in enumerate(kernel):
        np.add.at(matrix, (np.arange(extent), sources[step : step + extent]), weight)
    return matrix


@on_pixels
def gaussian_blur(image: Pixels, sizes: Sequence[int], sigmas: Sequence[float]) -> Pixels:
    rows, columns = image.shape[-2:]
    for size, extent in zip(sizes, (columns, rows)):
        if size % 2 == 0 or size < 1 or math.ceil(size / 2) > extent:
            raise ArgumentError(
                f"gaussian_blur: kernel_size {list(sizes)} should be odd, positive and at most "
                f"twice the image ({rows} × {columns})"
            )
    return sandwiched(
        _blurring_matrix(rows, sizes[1], sigmas[1]),
        image,
        _blurring_matrix(columns, sizes[0], sigmas[0]),
    )
