"""Photometric transforms: colours, contrast, blur, random erasing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.generator import host_random
from metaop.vision.transforms import functional as F
from metaop.vision.transforms.base import (
    RandomTransform,
    Transform,
    drawn_extents,
    interval,
    pair_of,
    uniform,
)

Interval = tuple[float, float] | None


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue at random; the shape is unchanged.

    The order is random. A number x draws factors from 1 - x to 1 + x (hue: from -x to x); a pair is
    the interval.

    >>> metaop.vision.transforms.ColorJitter(brightness=(2.0, 2.0))(metaop.full((1, 1, 2), 0.25))
    tensor([[[0.5000, 0.5000]]])
    """

    shown = ("brightness", "contrast", "saturation", "hue")

    def __init__(
        self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0
    ) -> None:
        super().__init__()
        self.brightness = self._factors("brightness", brightness)
        self.contrast = self._factors("contrast", contrast)
        self.saturation = self._factors("saturation", saturation)
        ends = interval("hue", hue, bound=(-0.5, 0.5))
        self.hue = None if ends == (0.0, 0.0) else ends

    @staticmethod
    def _factors(name: str, value: Any) -> Interval:
        ends = interval(name, value, 1.0, bound=(0.0, math.inf))
        return None if ends == (1.0, 1.0) else ends

    @staticmethod
    def get_params(
        brightness: Interval, contrast: Interval, saturation: Interval, hue: Interval
    ) -> tuple[np.ndarray, float | None, float | None, float | None, float | None]:
        """The order of the four changes, and their factors."""
        random = host_random(None)
        b, c, s, h = (
            None if ends is None else uniform(ends[0], ends[1], random)
            for ends in (brightness, contrast, saturation, hue)
        )
        return random.permutation(4), b, c, s, h

    def forward(self, img: Any) -> Any:
        order, *factors = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)
        changes = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
        for number in order:
            factor = factors[number]
            if factor is not None:
                img = changes[number](img, factor)
        return img


class Grayscale(Transform):
    """Converts to greyscale with `num_output_channels` channels, one or three; keeps other sizes.

    >>> metaop.vision.transforms.Grayscale()(metaop.ones(3, 2, 2)).shape
    metaop.Size([1, 2, 2])
    """

    shown = ("num_output_channels",)

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)


class RandomGrayscale(RandomTransform):
    """Converts to greyscale with probability `p`; the shape is unchanged.

    >>> red = metaop.tensor([1.0, 0.0, 0.0]).reshape(3, 1, 1)
    >>> metaop.vision.transforms.RandomGrayscale(p=1.0)(red).flatten()
    tensor([0.2989, 0.2989, 0.2989])
    """

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def change(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, F.get_image_num_channels(img))


class GaussianBlur(Transform):
    """Blurs the image with a standard deviation drawn from the interval `sigma`.

    The shape is unchanged.

    >>> metaop.vision.transforms.GaussianBlur(3)(metaop.ones(1, 3, 4)).shape
    metaop.Size([1, 3, 4])
    """

    shown = ("kernel_size", "sigma")

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = pair_of(kernel_size)
        if any(size <= 0 or size % 2 == 0 for size in self.kernel_size):
            raise ArgumentError("Kernel size value should be an odd and positive number.")
        self.sigma = (sigma, sigma) if isinstance(sigma, (int, float)) else tuple(sigma)
        if not 0 < self.sigma[0] <= self.sigma[1]:
            raise ArgumentError(f"sigma values should be positive and of the form (min, max), "
                                f"got {self.sigma}")  # fmt: skip

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float) -> float:
        """A random standard deviation."""
        return uniform(sigma_min, sigma_max)

    def forward(self, img: Any) -> Any:
        sigma = self.get_params(*self.sigma)
        return F.gaussian_blur(img, self.kernel_size, [sigma, sigma])


class RandomInvert(RandomTransform):
    """Inverts the image with probability `p`; the shape is unchanged.

    >>> metaop.vision.transforms.RandomInvert(p=1.0)(metaop.tensor([[[0.0, 0.25]]]))
    tensor([[[1.0000, 0.7500]]])
    """

    def change(self, img: Any) -> Any:
        return F.invert(img)


class RandomPosterize(RandomTransform):
    """Keeps only the highest `bits` of every byte with probability `p`; the shape is unchanged.

    >>> image = metaop.tensor([[[255, 100]]], dtype=metaop.uint8)
    >>> metaop.vision.transforms.RandomPosterize(1, p=1.0)(image)
    tensor([[[128,   0]]], dtype=metaop.uint8)
    """

    shown = ("bits", "p")

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits

    def change(self, img: Any) -> Any:
        return F.posterize(img, self.bits)


class RandomSolarize(RandomTransform):
    """Inverts pixels of at least a threshold with probability `p`; the shape is unchanged.

    >>> metaop.vision.transforms.RandomSolarize(0.5, p=1.0)(metaop.tensor([[[0.25, 0.75]]]))
    tensor([[[0.2500, 0.2500]]])
    """

    shown = ("threshold", "p")

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold

    def change(self, img: Any) -> Any:
        return F.solarize(img, self.threshold)


class RandomAdjustSharpness(RandomTransform):
    """Sharpens or blurs the image with probability `p`; the shape is unchanged.

    >>> metaop.vision.transforms.RandomAdjustSharpness(2.0, p=1.0)(metaop.ones(1, 3, 3)).shape
    metaop.Size([1, 3, 3])
    """

    shown = ("sharpness_factor", "p")

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def change(self, img: Any) -> Any:
        return F.adjust_sharpness(img, self.sharpness_factor)


class RandomAutocontrast(RandomTransform):
    """Stretches each channel's contrast to the full range with probability `p`; keeps the shape.

    >>> image = metaop.tensor([[[0.25, 0.5, 0.75]]])
    >>> metaop.vision.transforms.RandomAutocontrast(p=1.0)(image)
    tensor([[[0.0000, 0.5000, 1.0000]]])
    """

    def change(self, img: Any) -> Any:
        return F.autocontrast(img)


class RandomEqualize(RandomTransform):
    """Equalises the histogram of a uint8 image with probability `p`; the shape is unchanged.

    >>> image = (metaop.arange(512) // 128).to(metaop.uint8).reshape(1, 16, 32)
    >>> metaop.vision.transforms.RandomEqualize(p=1.0)(image).unique().tolist()
    [0, 128, 255]
    """

    def change(self, img: Any) -> Any:
        return F.equalize(img)


class RandomErasing(RandomTransform):
    """Replaces a random window of a tensor image by `value` (numbers, or "random").

    `p` is the probability, `scale` the interval of the area fraction, `ratio` that of the aspect
    ratio. The shape is unchanged.

    >>> image = metaop.ones(1, 10, 10)
    >>> metaop.vision.transforms.RandomErasing(p=1.0)(image).sum().item() < 100
    True
    """

    shown = ("p", "scale", "ratio", "value", "inplace")

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
    ) -> None:
        super().__init__(p)
        if isinstance(value, str) and value != "random":
            raise ArgumentError("If value is str, it should be 'random'")
        if not 0 <= scale[0] <= scale[1] <= 1:
            raise ArgumentError(f"Scale should be between 0 and 1, got {tuple(scale)}")
        self.scale = scale
        self.ratio = ratio
        self.value = value
        self.inplace = inplace

    @staticmethod
    def get_params(
        img: Tensor, scale: Sequence[float], ratio: Sequence[float], value: Any = None
    ) -> tuple[int, int, int, int, Any]:
        """Row, column, height, width and content; the unchanged image after ten failed draws."""
        channels, rows, columns = img.shape[-3:]
        random = host_random(None)
        for _ in range(10):
            # PyTorch's erased windows have the ratio of height to width.
            width, height = drawn_extents(rows, columns, scale, ratio, random)
            if not (height < rows and width < columns):
                continue
            if value is None:
                content = random.standard_normal((channels, height, width)).astype(np.float32)
            else:
                content = np.asarray(value, np.float32).reshape(-1, 1, 1)
            top, left = random.integers(rows - height + 1), random.integers(columns - width + 1)
            return int(top), int(left), height, width, metaop.from_numpy(content).to(img.dtype)  # type: ignore[attr-defined]
        return 0, 0, rows, columns, img

    def change(self, img: Tensor) -> Tensor:
        value = None if self.value == "random" else self.value
        top, left, height, width, content = self.get_params(img, self.scale, self.ratio, value)
        return F.erase(img, top, left, height, width, content, self.inplace)
