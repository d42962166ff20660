"""Functions of pixel values: brightness, contrast, hue, grey, inversion, normalisation."""

from __future__ import annotations

import numpy as np

from metaop.errors import ArgumentError, DTypeError
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.vision.transforms.arrays import (
    Pixels,
    bound_of,
    cast,
    check_channels,
    constant,
    dtype_of,
    namespace,
    on_pixels,
    rounded_to,
    working_type,
)


def converted(image: Pixels, dtype: DType) -> Pixels:
    """Converts the image to another dtype; black and white are preserved."""
    before = dtype_of(image)
    if before is dtype:
        return image
    if before.kind == "float":
        if dtype.kind == "float":
            return cast(image, dtype)
        if before.itemsize <= dtype.itemsize and dtype.itemsize >= 4:
            raise DTypeError(f"The cast from {before} to {dtype} cannot be performed safely.")
        # Just below the next integer, so that every value covers an equal part of [0, 1].
        return cast(image * (dtype.highest + 1 - 1e-3), dtype)
    if dtype.kind == "float":
        return cast(image, dtype) / before.highest
    if before.highest > dtype.highest:
        return cast(image // ((before.highest + 1) // (dtype.highest + 1)), dtype)
    return cast(image, dtype) * ((dtype.highest + 1) // (before.highest + 1))


@on_pixels
def convert_image_dtype(image: Pixels, dtype: DType = dtypes.float32) -> Pixels:
    return converted(image, dtype)


@on_pixels
def normalize(image: Pixels, mean: np.ndarray, std: np.ndarray) -> Pixels:
    dtype = dtype_of(image)
    if dtype.kind != "float":
        raise DTypeError(
            f"normalize: Input tensor should be a float tensor. Got {dtype.name}.",
            fix="use ToTensor or ConvertImageDtype first",
        )
    if (std == 0).any():
        raise ArgumentError("normalize: std evaluated to zero, leading to division by zero.")
    mean = constant(mean.astype(dtype.numpy).reshape(-1, 1, 1), image)
    std = constant(std.astype(dtype.numpy).reshape(-1, 1, 1), image)
    return (image - mean) / std


def grey(image: Pixels) -> Pixels:
    """The luma of an RGB image, as one channel."""
    check_channels("rgb_to_grayscale", image, (1, 3))
    if image.shape[-3] == 1:
        return image
    values = cast(image, working_type(image))
    red, green, blue = (values[..., k : k + 1, :, :] for k in range(3))
    return cast(0.2989 * red + 0.587 * green + 0.114 * blue, dtype_of(image))


@on_pixels
def rgb_to_grayscale(image: Pixels, channels: int = 1) -> Pixels:
    single = grey(image)
    return single if channels == 1 else namespace(image).concatenate([single] * channels, -3)


def blend(image: Pixels, other: Pixels | float, ratio: float) -> Pixels:
    """Blends `ratio` of the image with another; a ratio above 1 extrapolates."""
    dtype, work = dtype_of(image), working_type(image)
    mixed = cast(image, work) * ratio
    if not isinstance(other, float):
        other = cast(other, work)
    mixed = mixed + other * (1.0 - ratio)
    return cast(namespace(mixed).clip(mixed, 0, bound_of(dtype)), dtype)


def _check_factor(name: str, factor: float) -> None:
    if factor < 0:
        raise ArgumentError(f"{name} ({factor}) is not non-negative.")


@on_pixels
def adjust_brightness(image: Pixels, factor: float) -> Pixels:
    _check_factor("brightness_factor", factor)
    return blend(image, 0.0, factor)


@on_pixels
def adjust_contrast(image: Pixels, factor: float) -> Pixels:
    _check_factor("contrast_factor", factor)
    shades = cast(grey(image), working_type(image))
    count = shades.shape[-1] * shades.shape[-2]
    return blend(image, shades.sum((-3, -2, -1), keepdims=True) / count, factor)


@on_pixels
def adjust_saturation(image: Pixels, factor: float) -> Pixels:
    _check_factor("saturation_factor", factor)
    check_channels("adjust_saturation", image, (1, 3))
    return image if image.shape[-3] == 1 else blend(image, grey(image), factor)


@on_pixels
def adjust_gamma(image: Pixels, gamma: float, gain: float = 1) -> Pixels:
    _check_factor("gamma", gamma)
    dtype = dtype_of(image)
    values = gain * converted(image, working_type(image)) ** gamma
    return converted(namespace(values).clip(values, 0, 1), dtype)


@on_pixels
def adjust_hue(image: Pixels, factor: float) -> Pixels:
    if not -0.5 <= factor <= 0.5:
        raise ArgumentError(f"hue_factor ({factor}) is not in [-0.5, 0.5].")
    check_channels("adjust_hue", image, (1, 3))
    if image.shape[-3] == 1:
        return image
    dtype = dtype_of(image)
    values = converted(image, working_type(image))
    return converted(_turned(values, factor), dtype)


def _turned(values: Pixels, turn: float) -> Pixels:
    """RGB in [0, 1] with the hue rotated by a fraction of the circle."""
    xp = namespace(values)
    red, green, blue = (values[..., k, :, :] for k in range(3))
    high = xp.maximum(xp.maximum(red, green), blue)
    low = xp.minimum(xp.minimum(red, green), blue)
    spread = high - low
    plain = spread == 0
    saturation = spread / xp.where(plain, 1.0, high)
    divisor = xp.where(plain, 1.0, spread)
    from_red, from_green, from_blue = ((high - part) / divisor for part in (red, green, blue))
    hue = xp.where(
        high == red,
        from_blue - from_green,
        xp.where(high == green, 2.0 + from_red - from_blue, 4.0 + from_green - from_red),
    )
    sector = ((hue / 6.0 + 1.0) % 1.0 + turn) % 1.0 * 6.0

    def channel(start: int) -> Pixels:
        # Around the hue circle, a channel falls from full to none and rises again.
        place = (sector + start) % 6.0
        share = xp.clip(xp.minimum(place, 4.0 - place), 0.0, 1.0)
        return xp.clip(high * (1.0 - saturation * share), 0.0, 1.0)

    return cast(xp.stack([channel(5), channel(3), channel(1)], -3), dtype_of(values))


@on_pixels
def adjust_sharpness(image: Pixels, factor: float) -> Pixels:
    _check_factor("sharpness_factor", factor)
    check_channels("adjust_sharpness", image, (1, 3))
    rows, columns = image.shape[-2:]
    if rows <= 2 or columns <= 2:
        return image
    values = cast(image, working_type(image))
    # The middle pixel counts five times among its nine neighbours; the border stays.
    total = 4.0 * values[..., 1:-1, 1:-1]
    for down in range(3):
        for across in range(3):
            total = total + values[..., down : rows - 2 + down, across : columns - 2 + across]
    inner = cast(rounded_to(total / 13.0, dtype_of(image)), working_type(image))
    xp = namespace(values)
    middle = [values[..., 1:-1, :1], inner, values[..., 1:-1, -1:]]
    bands = [values[..., :1, :], xp.concatenate(middle, -1), values[..., -1:, :]]
    return blend(image, xp.concatenate(bands, -2), factor)


@on_pixels
def invert(image: Pixels) -> Pixels:
    check_channels("invert", image, (1, 3))
    return cast(bound_of(dtype_of(image)) - image, dtype_of(image))


@on_pixels
def posterize(image: Pixels, bits: int) -> Pixels:
    if dtype_of(image) is not dtypes.uint8:
        raise DTypeError(f"posterize: only uint8 images are supported, got {dtype_of(image).name}")
    return image & (255 - (2 ** (8 - bits) - 1))


@on_pixels
def solarize(image: Pixels, threshold: float) -> Pixels:
    bound = bound_of(dtype_of(image))
    if threshold > bound:
        raise ArgumentError(f"solarize: threshold {threshold} should be at most {bound}")
    inverted = cast(bound - image, dtype_of(image))
    return namespace(image).where(image >= threshold, inverted, image)


@on_pixels
def autocontrast(image: Pixels) -> Pixels:
    dtype, bound = dtype_of(image), bound_of(dtype_of(image))
    xp = namespace(image)
    values = cast(image, working_type(image))
    low = xp.amin(values, (-2, -1))[..., None, None]
    high = xp.amax(values, (-2, -1))[..., None, None]
    flat = high == low
    scale = xp.where(flat, 1.0, bound * (1.0 / xp.where(flat, 1.0, high - low)))
    stretched = (values - xp.where(flat, 0.0, low)) * scale
    return cast(xp.clip(stretched, 0, bound), dtype)


@on_pixels
def equalize(image: Pixels) -> Pixels:
    if dtype_of(image) is not dtypes.uint8:
        raise DTypeError(f"equalize: only uint8 images are supported, got {dtype_of(image).name}")
    array = image if isinstance(image, np.ndarray) else image.cpu().numpy()
    channels = array.reshape(-1, *array.shape[-2:])
    result = np.stack([_equalized(channel) for channel in channels]).reshape(array.shape)
    return constant(result, image)


def _equalized(channel: np.ndarray) -> np.ndarray:
    """Histogram equalisation by one table of 256 values."""
    counts = np.bincount(channel.reshape(-1), minlength=256)
    step = counts[counts > 0][:-1].sum() // 255
    if step == 0:
        return channel
    table = (np.cumsum(counts) + step // 2) // step
    table = np.concatenate(([0], table[:-1])).clip(0, 255).astype(np.uint8)
    return table[channel]
