"""Interpolation modes."""

from __future__ import annotations

from enum import Enum
from typing import Any

from metaop.errors import ArgumentError


class InterpolationMode(Enum):
    """The ways to interpolate between pixels; the last three only for Pillow images.

    Raises ValueError for other names.

    >>> [mode.value for mode in metaop.vision.transforms.InterpolationMode]
    ['nearest', 'nearest-exact', 'bilinear', 'bicubic', 'box', 'hamming', 'lanczos']
    """

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


# Pillow's integer constants, which programs also pass (`Image.BILINEAR`).
_NUMBERS = {
    0: InterpolationMode.NEAREST,
    1: InterpolationMode.LANCZOS,
    2: InterpolationMode.BILINEAR,
    3: InterpolationMode.BICUBIC,
    4: InterpolationMode.BOX,
    5: InterpolationMode.HAMMING,
}
_RESAMPLING = {mode: number for number, mode in _NUMBERS.items()}
_RESAMPLING[InterpolationMode.NEAREST_EXACT] = 0


def mode_of(interpolation: Any) -> InterpolationMode:
    """The mode given by a mode, its name or Pillow's constant."""
    if isinstance(interpolation, InterpolationMode):
        return interpolation
    try:
        if isinstance(interpolation, str):
            return InterpolationMode(interpolation)
        return _NUMBERS[int(interpolation)]
    except (KeyError, TypeError, ValueError):
        raise ArgumentError(
            f"interpolation {interpolation!r} is unknown",
            fix="pass a member of metaop.vision.transforms.InterpolationMode",
        ) from None


def resampling(interpolation: Any) -> Any:
    """Pillow's constant for a mode."""
    return _RESAMPLING[mode_of(interpolation)]
