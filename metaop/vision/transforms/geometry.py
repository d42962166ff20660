"""Geometric transforms: resize, crop, pad, flip, rotate, warp."""

from __future__ import annotations

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
from metaop.vision.transforms.modes import InterpolationMode, mode_of

Size = int | Sequence[int]


class Resize(Transform):
    """Resizes the image to (height, width), or its shorter side to one number.

    >>> metaop.vision.transforms.Resize(5)(metaop.zeros(3, 10, 20)).shape
    metaop.Size([3, 5, 10])
    """

    shown = ("size", "interpolation", "max_size", "antialias")

    def __init__(
        self,
        size: Size,
        interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.size = size
        self.interpolation = mode_of(interpolation)
        self.max_size = max_size
        self.antialias = antialias

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(Transform):
    """Crops the centre of the image; `size` is (height, width), or one number for both.

    >>> metaop.vision.transforms.CenterCrop(1)(metaop.tensor([[[1, 2, 3]]]))
    tensor([[[2]]])
    """

    shown = ("size",)

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = pair_of(size)

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class Pad(Transform):
    """Pads the image; see `functional.pad` for the arguments.

    The sizes grow by these numbers of pixels.

    >>> metaop.vision.transforms.Pad((1, 0), fill=7)(metaop.tensor([[[1, 2]]]))
    tensor([[[7, 1, 2, 7]]])
    """

    shown = ("padding", "fill", "padding_mode")

    def __init__(self, padding: Size, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(Transform):
    """Crops a random window, after padding if that is requested or needed.

    `size` is (height, width), or one number for both.

    >>> metaop.vision.transforms.RandomCrop(2, padding=1)(metaop.ones(3, 4, 4)).shape
    metaop.Size([3, 2, 2])
    """

    shown = ("size", "padding")

    def __init__(
        self,
        size: Size,
        padding: Size | None = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__()
        self.size = pair_of(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Top, left, height and width of a random window."""
        _, rows, columns = F.get_dimensions(img)
        height, width = output_size
        if rows < height or columns < width:
            raise ArgumentError(
                f"Required crop size {(height, width)} is larger than input image size "
                f"{(rows, columns)}",
                fix="set padding or pad_if_needed",
            )
        random = host_random(None)
        top, left = random.integers(rows - height + 1), random.integers(columns - width + 1)
        return int(top), int(left), height, width

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, rows, columns = F.get_dimensions(img)
        height, width = self.size
        if self.pad_if_needed and columns < width:
            img = F.pad(img, [width - columns, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and rows < height:
            img = F.pad(img, [0, height - rows], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))


class RandomResizedCrop(Transform):
    """Crops a window of random area and aspect ratio and resizes it to `size`.

    `scale` is the interval of the area fraction, `ratio` that of width over height.

    >>> metaop.vision.transforms.RandomResizedCrop(4)(metaop.ones(3, 10, 20)).shape
    metaop.Size([3, 4, 4])
    """

    shown = ("size", "scale", "ratio", "interpolation", "antialias")

    def __init__(
        self,
        size: Size,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.size = pair_of(size)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = mode_of(interpolation)
        self.antialias = antialias

    @staticmethod
    def get_params(
        img: Any, scale: Sequence[float], ratio: Sequence[float]
    ) -> tuple[int, int, int, int]:
        """Top, left, height and width; a centre crop after ten failed draws."""
        _, rows, columns = F.get_dimensions(img)
        random = host_random(None)
        for _ in range(10):
            height, width = drawn_extents(rows, columns, scale, ratio, random)
            if 0 < width <= columns and 0 < height <= rows:
                top, left = (
                    random.integers(rows - height + 1),
                    random.integers(columns - width + 1),
                )
                return int(top), int(left), height, width
        aspect = min(max(columns / rows, min(ratio)), max(ratio))
        width, height = min(columns, round(rows * aspect)), min(rows, round(columns / aspect))
        return (rows - height) // 2, (columns - width) // 2, height, width

    def forward(self, img: Any) -> Any:
        window = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *window, self.size, self.interpolation, self.antialias)


class FiveCrop(Transform):
    """Crops the four corners and the centre, as a tuple; `size` is that of each.

    >>> crops = metaop.vision.transforms.FiveCrop((1, 1))(metaop.tensor([[[1, 2, 3]]]))
    >>> [one.item() for one in crops]
    [1, 3, 1, 3, 2]
    """

    shown = ("size",)

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = pair_of(size)

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.five_crop(img, self.size)


class TenCrop(Transform):
    """The five crops of the image and of its mirror image, as a tuple; `size` is that of each.

    >>> crops = metaop.vision.transforms.TenCrop((1, 1))(metaop.tensor([[[1, 2, 3]]]))
    >>> [one.item() for one in crops]
    [1, 3, 1, 3, 2, 3, 1, 3, 1, 2]
    """

    shown = ("size", "vertical_flip")

    def __init__(self, size: Size, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size = pair_of(size)
        self.vertical_flip = vertical_flip

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.ten_crop(img, self.size, self.vertical_flip)


class RandomHorizontalFlip(RandomTransform):
    """Flips the image left to right with probability `p`; the shape is unchanged.

    >>> metaop.vision.transforms.RandomHorizontalFlip(p=1.0)(metaop.tensor([[[1, 2, 3]]]))
    tensor([[[3, 2, 1]]])
    """

    def change(self, img: Any) -> Any:
        return F.hflip(img)


class RandomVerticalFlip(RandomTransform):
    """Flips the image top to bottom with probability `p`; the shape is unchanged.

    >>> metaop.vision.transforms.RandomVerticalFlip(p=1.0)(metaop.tensor([[[1], [2]]])).flatten()
    tensor([2, 1])
    """

    def change(self, img: Any) -> Any:
        return F.vflip(img)


class RandomRotation(Transform):
    """Rotates the image by a random angle from `degrees` (a bound or an interval).

    Without `expand` the shape is unchanged.

    >>> image = metaop.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> metaop.vision.transforms.RandomRotation((90, 90))(image)
    tensor([[[2., 4.],
             [1., 3.]]])
    """

    shown = ("degrees", "interpolation", "expand", "fill")

    def __init__(
        self,
        degrees: Any,
        interpolation: Any = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
    ) -> None:
        super().__init__()
        self.degrees = interval("degrees", degrees)
        self.interpolation = mode_of(interpolation)
        self.expand = expand
        self.center = center
        self.fill = fill

    @staticmethod
    def get_params(degrees: Sequence[float]) -> float:
        """A random angle."""
        return uniform(degrees[0], degrees[1])

    def forward(self, img: Any) -> Any:
        angle = self.get_params(self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)


class RandomAffine(Transform):
    """Rotates, translates (by fractions of the size), scales and shears the image at random.

    `degrees` is a bound or an interval. The shape is unchanged.

    >>> metaop.vision.transforms.RandomAffine(10, translate=(0.1, 0.1))(metaop.ones(1, 8, 8)).shape
    metaop.Size([1, 8, 8])
    """

    shown = ("degrees", "translate", "scale", "shear")

    def __init__(
        self,
        degrees: Any,
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: Any = None,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.degrees = interval("degrees", degrees)
        if translate is not None and not all(0.0 <= part <= 1.0 for part in translate):
            raise ArgumentError("translation values should be between 0 and 1")
        self.translate = translate
        if scale is not None and min(scale) <= 0:
            raise ArgumentError("scale values should be positive")
        self.scale = scale
        # Four numbers are an interval along x and one along y.
        is_double = isinstance(shear, Sequence) and len(shear) == 4
        self.shear = shear if shear is None or is_double else interval("shear", shear)
        self.interpolation = mode_of(interpolation)
        self.fill = fill
        self.center = center

    @staticmethod
    def get_params(
        degrees: Sequence[float],
        translate: Sequence[float] | None,
        scale_ranges: Sequence[float] | None,
        shears: Sequence[float] | None,
        img_size: Sequence[int],
    ) -> tuple[float, tuple[int, int], float, tuple[float, float]]:
        """Angle, translation in pixels, scale and shear; `img_size` is (width, height)."""
        random = host_random(None)
        angle = uniform(degrees[0], degrees[1], random)
        reach = [0.0, 0.0] if translate is None else [t * s for t, s in zip(translate, img_size)]
        across, down = (round(uniform(-distance, distance, random)) for distance in reach)
        scale = 1.0 if scale_ranges is None else uniform(scale_ranges[0], scale_ranges[1], random)
        shear = (0.0, 0.0)
        if shears is not None:
            along_y = uniform(shears[2], shears[3], random) if len(shears) == 4 else 0.0
            shear = (uniform(shears[0], shears[1], random), along_y)
        return angle, (across, down), scale, shear

    def forward(self, img: Any) -> Any:
        parameters = self.get_params(
            self.degrees, self.translate, self.scale, self.shear, F.get_image_size(img)
        )
        return F.affine(img, *parameters, self.interpolation, self.fill, self.center)


class RandomPerspective(RandomTransform):
    """Warps the image: its corners move by up to half of `distortion_scale` of its size.

    This happens with probability `p`; the shape is unchanged.

    >>> metaop.vision.transforms.RandomPerspective(p=1.0)(metaop.ones(1, 8, 8)).shape
    metaop.Size([1, 8, 8])
    """

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Any = InterpolationMode.BILINEAR,
        fill: Any = 0,
    ) -> None:
        super().__init__(p)
        self.distortion_scale = distortion_scale
        self.interpolation = mode_of(interpolation)
        self.fill = fill

    @staticmethod
    def get_params(
        width: int, height: int, distortion_scale: float
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The corners of the image, and their new positions."""
        right, bottom = width - 1, height - 1
        reach = (int(distortion_scale * (width // 2)), int(distortion_scale * (height // 2)))
        random = host_random(None)
        corners = [[0, 0], [right, 0], [right, bottom], [0, bottom]]
        moved = []
        for x, y in corners:
            across, down = (int(random.integers(distance + 1)) for distance in reach)
            moved.append([x - across if x else across, y - down if y else down])
        return corners, moved

    def change(self, img: Any) -> Any:
        width, height = F.get_image_size(img)
        corners, moved = self.get_params(width, height, self.distortion_scale)
        return F.perspective(img, corners, moved, self.interpolation, self.fill)


class ElasticTransform(Transform):
    """Displaces pixels by smooth random fields of strength `alpha` and smoothness `sigma`.

    The shape is unchanged. Both are in pixels.

    >>> metaop.vision.transforms.ElasticTransform(sigma=1.0)(metaop.ones(1, 16, 16)).shape
    metaop.Size([1, 16, 16])
    """

    shown = ("alpha", "sigma", "interpolation", "fill")

    def __init__(
        self,
        alpha: Any = 50.0,
        sigma: Any = 5.0,
        interpolation: Any = InterpolationMode.BILINEAR,
        fill: Any = 0,
    ) -> None:
        super().__init__()
        self.alpha = [float(alpha)] * 2 if isinstance(alpha, (int, float)) else list(alpha)
        self.sigma = [float(sigma)] * 2 if isinstance(sigma, (int, float)) else list(sigma)
        self.interpolation = mode_of(interpolation)
        self.fill = fill

    @staticmethod
    def get_params(alpha: Sequence[float], sigma: Sequence[float], size: Sequence[int]) -> Tensor:
        """The displacement (1, height, width, 2) of every pixel; 1 is half of the image."""
        random = host_random(None)
        fields = []
        for strength, smoothness, extent in zip(alpha, sigma, reversed(size)):
            noise = metaop.from_numpy(random.uniform(-1, 1, (1, *size)).astype(np.float32))
            if smoothness > 0:
                kernel = int(8 * smoothness + 1) | 1
                noise = F.gaussian_blur(noise, kernel, smoothness)
            fields.append(noise.numpy() * np.float32(strength / extent))
        return metaop.from_numpy(np.stack(fields, -1))

    def forward(self, img: Any) -> Any:
        _, rows, columns = F.get_dimensions(img)
        displacement = self.get_params(self.alpha, self.sigma, (rows, columns))
        return F.elastic_transform(img, displacement, self.interpolation, self.fill)
