"""The functions on Pillow images, implemented with Pillow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.vision.transforms.modes import InterpolationMode, resampling

if TYPE_CHECKING:
    from PIL.Image import Image

    Picture = Image


def is_pillow(image: Any) -> bool:
    """Whether an object is a Pillow image, without importing Pillow for others."""
    return any(parent.__module__.partition(".")[0] == "PIL" for parent in type(image).__mro__)


def of_kind(image: Any, for_pillow: Callable[..., Any], for_tensor: Callable[..., Any]) -> Any:
    """The function for the kind of the image."""
    return for_pillow if is_pillow(image) else for_tensor


def hflip(image: Picture) -> Picture:
    from PIL.Image import Transpose

    return image.transpose(Transpose.FLIP_LEFT_RIGHT)


def vflip(image: Picture) -> Picture:
    from PIL.Image import Transpose

    return image.transpose(Transpose.FLIP_TOP_BOTTOM)


def crop(image: Picture, top: int, left: int, height: int, width: int) -> Picture:
    return image.crop((left, top, left + width, top + height))


def resize(
    image: Picture, size: Sequence[int], mode: InterpolationMode, antialias: bool = True
) -> Picture:
    return image.resize((size[1], size[0]), resampling(mode))


def colour(fill: Any, image: Picture) -> Any:
    """A colour in the form that Pillow expects for the image's mode."""
    if fill is None:
        fill = 0
    channels = len(image.getbands())
    if isinstance(fill, (int, float)):
        fill = (fill,) * channels if channels > 1 else fill
    elif len(fill) == 1:
        fill = tuple(fill) * channels if channels > 1 else fill[0]
    if isinstance(fill, (list, tuple)):
        if len(fill) != channels:
            raise ArgumentError(
                f"The number of elements in 'fill' ({len(fill)}) does not match the number of "
                f"channels of the image ({channels})"
            )
        return tuple(int(part) for part in fill)
    return fill if image.mode == "F" else int(fill)


def pad(image: Picture, sides: Sequence[int], fill: Any = 0, mode: str = "constant") -> Picture:
    from PIL import Image, ImageOps

    if mode == "constant":
        padded = ImageOps.expand(image, tuple(sides), fill=colour(fill, image))
        if image.mode == "P":
            padded.putpalette(image.getpalette() or [])
        return padded
    if mode not in ("edge", "reflect", "symmetric"):
        raise ArgumentError(f"pad: padding_mode {mode!r} is unknown")
    left, top, right, bottom = sides
    if min(sides) < 0:
        image = image.crop((max(-left, 0), max(-top, 0), image.width + min(right, 0),
                            image.height + min(bottom, 0)))  # fmt: skip
        left, top, right, bottom = (max(side, 0) for side in sides)
    array = np.asarray(image)
    widths = [(top, bottom), (left, right)] + [(0, 0)] * (array.ndim - 2)
    padded = Image.fromarray(np.pad(array, widths, mode))  # type: ignore[call-overload]
    if image.mode == "P":
        padded.putpalette(image.getpalette() or [])
    return padded


def adjust_brightness(image: Picture, factor: float) -> Picture:
    from PIL import ImageEnhance

    return ImageEnhance.Brightness(image).enhance(factor)


def adjust_contrast(image: Picture, factor: float) -> Picture:
    from PIL import ImageEnhance

    return ImageEnhance.Contrast(image).enhance(factor)


def adjust_saturation(image: Picture, factor: float) -> Picture:
    from PIL import ImageEnhance

    return ImageEnhance.Color(image).enhance(factor)


def adjust_sharpness(image: Picture, factor: float) -> Picture:
    from PIL import ImageEnhance

    return ImageEnhance.Sharpness(image).enhance(factor)


def adjust_hue(image: Picture, factor: float) -> Picture:
    from PIL import Image

    if not -0.5 <= factor <= 0.5:
        raise ArgumentError(f"hue_factor ({factor}) is not in [-0.5, 0.5].")
    if image.mode in ("L", "1", "I", "F"):
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int32) + int(factor * 255)).astype(np.uint8)
    bands = (Image.fromarray(turned), saturation, value)
    return Image.merge("HSV", bands).convert(image.mode)


def adjust_gamma(image: Picture, gamma: float, gain: float = 1) -> Picture:
    if gamma < 0:
        raise ArgumentError("gamma should be a non-negative real number")
    table = [int((255 + 1 - 1e-3) * gain * (value / 255.0) ** gamma) for value in range(256)]
    bands = len(image.getbands()) if image.mode != "L" else 1
    rgb = image.convert("RGB") if bands > 1 else image.convert("L")
    # Values above 255 would wrap around in the table.
    table = [min(value, 255) for value in table]
    return rgb.point(table * len(rgb.getbands())).convert(image.mode)


def rgb_to_grayscale(image: Picture, channels: int = 1) -> Picture:
    from PIL import Image

    single = image.convert("L")
    return single if channels == 1 else Image.merge("RGB", (single,) * 3)


def affine(
    image: Picture, matrix: np.ndarray, mode: InterpolationMode, fill: Any, size: Sequence[int]
) -> Picture:
    from PIL.Image import Transform

    return image.transform(
        (size[1], size[0]),
        Transform.AFFINE,
        matrix.reshape(-1).tolist(),
        resampling(mode),
        fillcolor=colour(fill, image),
    )


def rotate(
    image: Picture, angle: float, mode: InterpolationMode, expand: bool, center: Any, fill: Any
) -> Picture:
    return image.rotate(angle, resampling(mode), expand, center, fillcolor=colour(fill, image))


def perspective(
    image: Picture, coefficients: Sequence[float], mode: InterpolationMode, fill: Any
) -> Picture:
    from PIL.Image import Transform

    return image.transform(
        image.size,
        Transform.PERSPECTIVE,
        list(coefficients),
        resampling(mode),
        fillcolor=colour(fill, image),
    )


def invert(image: Picture) -> Picture:
    from PIL import ImageOps

    return ImageOps.invert(image)


def posterize(image: Picture, bits: int) -> Picture:
    from PIL import ImageOps

    return ImageOps.posterize(image, bits)


def solarize(image: Picture, threshold: float) -> Picture:
    from PIL import ImageOps

    return ImageOps.solarize(image, int(threshold))


def autocontrast(image: Picture) -> Picture:
    from PIL import ImageOps

    return ImageOps.autocontrast(image)


def equalize(image: Picture) -> Picture:
    from PIL import ImageOps

    return ImageOps.equalize(image)
