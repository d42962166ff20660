"""Functions on image values: dtypes, brightness, colours; `functional` exports them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.tensor.core import Tensor
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.vision.transforms import colours, pillow
from metaop.vision.transforms.pillow import is_pillow, of_kind


def normalize(
    tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False
) -> Tensor:
    """`(tensor - mean) / std` for each channel; the shape (…, C, H, W) is unchanged.

    >>> metaop.vision.transforms.functional.normalize(metaop.ones(1, 1, 2), [0.5], [0.25])
    tensor([[[2., 2.]]])
    """
    result = colours.normalize(
        tensor, np.atleast_1d(np.asarray(mean)), np.atleast_1d(np.asarray(std))
    )
    return tensor.copy_(result) if inplace else result  # type: ignore[attr-defined]


def convert_image_dtype(image: Tensor, dtype: DType = dtypes.float32) -> Tensor:
    """Converts the image to another dtype, scaled to preserve black and white.

    The shape is unchanged; floats are in [0, 1], integers use their whole range.

    >>> image = metaop.tensor([[[0, 255]]], dtype=metaop.uint8)
    >>> metaop.vision.transforms.functional.convert_image_dtype(image)
    tensor([[[0., 1.]]])
    """
    return colours.convert_image_dtype(image, dtype)


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """Scales brightness: 0 is black, 1 the image, more is brighter; the shape is unchanged.

    >>> image = metaop.tensor([[[0.25, 0.75]]])
    >>> metaop.vision.transforms.functional.adjust_brightness(image, 2.0)
    tensor([[[0.5000, 1.0000]]])
    """
    function = of_kind(img, pillow.adjust_brightness, colours.adjust_brightness)
    return function(img, brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """Scales contrast: 0 is the mean grey, 1 the image; the shape is unchanged.

    >>> image = metaop.tensor([[[0.25, 0.75]]])
    >>> metaop.vision.transforms.functional.adjust_contrast(image, 0.0)
    tensor([[[0.5000, 0.5000]]])
    """
    return of_kind(img, pillow.adjust_contrast, colours.adjust_contrast)(img, contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """Scales saturation: 0 is grey, 1 the image; the shape is unchanged.

    >>> red = metaop.tensor([1.0, 0.0, 0.0]).reshape(3, 1, 1)
    >>> metaop.vision.transforms.functional.adjust_saturation(red, 0.0).flatten()
    tensor([0.2989, 0.2989, 0.2989])
    """
    function = of_kind(img, pillow.adjust_saturation, colours.adjust_saturation)
    return function(img, saturation_factor)


def adjust_sharpness(img: Any, sharpness_factor: float) -> Any:
    """Scales sharpness: 0 is blurred, 1 the image; the shape is unchanged.

    >>> image = metaop.zeros(1, 3, 3)
    >>> image[0, 1, 1] = 1.0
    >>> metaop.vision.transforms.functional.adjust_sharpness(image, 0.0)[0, 1]
    tensor([0.0000, 0.3846, 0.0000])
    """
    function = of_kind(img, pillow.adjust_sharpness, colours.adjust_sharpness)
    return function(img, sharpness_factor)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Rotates the hue by a fraction of the colour circle, from -0.5 to 0.5.

    The shape (…, 3, H, W) is unchanged.

    >>> red = metaop.tensor([1.0, 0.0, 0.0]).reshape(3, 1, 1)
    >>> metaop.vision.transforms.functional.adjust_hue(red, 0.5).flatten()
    tensor([0., 1., 1.])
    """
    return of_kind(img, pillow.adjust_hue, colours.adjust_hue)(img, hue_factor)


def adjust_gamma(img: Any, gamma: float, gain: float = 1) -> Any:
    """`gain * img ** gamma` with values in [0, 1]; the shape is unchanged.

    >>> metaop.vision.transforms.functional.adjust_gamma(metaop.full((1, 1, 2), 0.5), 2.0)
    tensor([[[0.2500, 0.2500]]])
    """
    return of_kind(img, pillow.adjust_gamma, colours.adjust_gamma)(img, gamma, gain)


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Converts to greyscale, one or three equal channels: (…, 3, H, W) -> (…, 1, H, W).

    >>> red = metaop.tensor([1.0, 0.0, 0.0]).reshape(3, 1, 1)
    >>> metaop.vision.transforms.functional.rgb_to_grayscale(red)
    tensor([[[0.2989]]])
    """
    if num_output_channels not in (1, 3):
        raise ArgumentError("num_output_channels should be either 1 or 3")
    function = of_kind(img, pillow.rgb_to_grayscale, colours.rgb_to_grayscale)
    return function(img, num_output_channels)


def to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Converts a Pillow image to greyscale, one or three equal channels; keeps its size.

    >>> from PIL import Image
    >>> metaop.vision.transforms.functional.to_grayscale(Image.new("RGB", (2, 2))).mode
    'L'
    """
    if not is_pillow(img):
        raise ArgumentTypeError("Input should be PIL Image", fix="use rgb_to_grayscale")
    return rgb_to_grayscale(img, num_output_channels)


def invert(img: Any) -> Any:
    """Inverts the image: 1 (or 255) minus each value; the shape is unchanged.

    >>> metaop.vision.transforms.functional.invert(metaop.tensor([[[0.0, 0.25]]]))
    tensor([[[1.0000, 0.7500]]])
    """
    return of_kind(img, pillow.invert, colours.invert)(img)


def posterize(img: Any, bits: int) -> Any:
    """Keeps only the highest `bits` of every byte; the shape is unchanged.

    >>> image = metaop.tensor([[[255, 100]]], dtype=metaop.uint8)
    >>> metaop.vision.transforms.functional.posterize(image, 1)
    tensor([[[128,   0]]], dtype=metaop.uint8)
    """
    if not 0 <= bits <= 8:
        raise ArgumentError(f"The number of bits should be between 0 and 8. Got {bits}")
    return of_kind(img, pillow.posterize, colours.posterize)(img, bits)


def solarize(img: Any, threshold: float) -> Any:
    """Inverts all pixels that are at least `threshold`; the shape is unchanged.

    >>> metaop.vision.transforms.functional.solarize(metaop.tensor([[[0.25, 0.75]]]), 0.5)
    tensor([[[0.2500, 0.2500]]])
    """
    return of_kind(img, pillow.solarize, colours.solarize)(img, threshold)


def autocontrast(img: Any) -> Any:
    """Stretches the contrast of each channel to the full range; the shape is unchanged.

    >>> metaop.vision.transforms.functional.autocontrast(metaop.tensor([[[0.25, 0.5, 0.75]]]))
    tensor([[[0.0000, 0.5000, 1.0000]]])
    """
    return of_kind(img, pillow.autocontrast, colours.autocontrast)(img)


def equalize(img: Any) -> Any:
    """Equalises the histogram of a uint8 image; the shape is unchanged.

    >>> image = (metaop.arange(512) // 128).to(metaop.uint8).reshape(1, 16, 32)
    >>> metaop.vision.transforms.functional.equalize(image).unique().tolist()
    [0, 128, 255]
    """
    return of_kind(img, pillow.equalize, colours.equalize)(img)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """Fills the window at row `i`, column `j` with `v`; the shape is unchanged.

    `h` and `w` are the extents of the window; `v` has its shape, or broadcasts to it.

    >>> image, value = metaop.zeros(1, 2, 2), metaop.tensor(7.0)
    >>> metaop.vision.transforms.functional.erase(image, 0, 1, 2, 1, value)
    tensor([[[0., 7.],
             [0., 7.]]])
    """
    if not isinstance(img, Tensor):
        raise ArgumentTypeError(f"img should be Tensor Image. Got {type(img)}")
    result = img if inplace else img.clone()  # type: ignore[attr-defined]
    result[..., i : i + h, j : j + w] = v
    return result
