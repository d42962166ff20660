"""Functions on Pillow images and tensors (…, channels, height, width), as in torchvision.

Every function takes both kinds. Tensors give differentiable tensors; Pillow processes Pillow
images, and its rounding sometimes differs by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.tensor.arguments import WHOLE
from metaop.tensor.core import Tensor
from metaop.vision.transforms import pillow, pixels, warping
from metaop.vision.transforms.conversion import pil_to_tensor, to_pil_image, to_tensor
from metaop.vision.transforms.modes import InterpolationMode, mode_of
from metaop.vision.transforms.pillow import is_pillow, of_kind
from metaop.vision.transforms.values import (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    autocontrast,
    convert_image_dtype,
    equalize,
    erase,
    invert,
    normalize,
    posterize,
    rgb_to_grayscale,
    solarize,
    to_grayscale,
)

__all__ = [
    "InterpolationMode",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "adjust_sharpness",
    "affine",
    "autocontrast",
    "center_crop",
    "convert_image_dtype",
    "crop",
    "elastic_transform",
    "equalize",
    "erase",
    "five_crop",
    "gaussian_blur",
    "get_dimensions",
    "get_image_num_channels",
    "get_image_size",
    "hflip",
    "invert",
    "normalize",
    "pad",
    "perspective",
    "pil_to_tensor",
    "posterize",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "rotate",
    "solarize",
    "ten_crop",
    "to_grayscale",
    "to_pil_image",
    "to_tensor",
    "vflip",
]

Size = int | Sequence[int]


def get_dimensions(img: Any) -> list[int]:
    """Channels, height and width of an image: the last three sizes of a tensor.

    >>> metaop.vision.transforms.functional.get_dimensions(metaop.zeros(3, 4, 5))
    [3, 4, 5]
    """
    if is_pillow(img):
        return [len(img.getbands()), img.height, img.width]
    if not isinstance(img, Tensor):
        raise ArgumentTypeError(f"img should be a PIL Image or a Tensor, got {type(img)}")
    return [1 if img.ndim == 2 else img.shape[-3], *img.shape[-2:]]


def get_image_size(img: Any) -> list[int]:
    """Width and height of an image, in pixels: the last two sizes of a tensor, swapped.

    >>> metaop.vision.transforms.functional.get_image_size(metaop.zeros(3, 4, 5))
    [5, 4]
    """
    _, height, width = get_dimensions(img)
    return [width, height]


def get_image_num_channels(img: Any) -> int:
    """The number of channels of an image: the third size from the end.

    >>> metaop.vision.transforms.functional.get_image_num_channels(metaop.zeros(3, 4, 5))
    3
    """
    return get_dimensions(img)[0]


# --- geometry -----------------------------------------------------------------------------------


def hflip(img: Any) -> Any:
    """Flips the image left to right; the shape is unchanged.

    >>> metaop.vision.transforms.functional.hflip(metaop.tensor([[[1, 2, 3]]]))
    tensor([[[3, 2, 1]]])
    """
    return of_kind(img, pillow.hflip, pixels.hflip)(img)


def vflip(img: Any) -> Any:
    """Flips the image top to bottom; the shape is unchanged.

    >>> metaop.vision.transforms.functional.vflip(metaop.tensor([[[1], [2]]])).flatten()
    tensor([2, 1])
    """
    return of_kind(img, pillow.vflip, pixels.vflip)(img)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """Crops the window whose upper left corner is (top, left); pixels outside are black.

    Sizes are in pixels: (…, H, W) becomes (…, height, width).

    >>> metaop.vision.transforms.functional.crop(metaop.tensor([[[1, 2, 3]]]), 0, 1, 1, 3)
    tensor([[[2, 3, 0]]])
    """
    return of_kind(img, pillow.crop, pixels.crop)(img, top, left, height, width)


def _pair(size: Size) -> tuple[int, int]:
    if isinstance(size, (int, float)):
        return int(size), int(size)
    return (size[0], size[0]) if len(size) == 1 else (size[0], size[1])


def center_crop(img: Any, output_size: Size) -> Any:
    """Crops the centre of the image, padded with black where the image is smaller.

    `output_size` is (height, width), or one number for both: (…, H, W) becomes (…, height, width).

    >>> metaop.vision.transforms.functional.center_crop(metaop.tensor([[[1, 2, 3]]]), (1, 1))
    tensor([[[2]]])
    """
    height, width = _pair(output_size)
    _, rows, columns = get_dimensions(img)
    if width > columns or height > rows:
        across, down = max(width - columns, 0), max(height - rows, 0)
        img = pad(img, [across // 2, down // 2, (across + 1) // 2, (down + 1) // 2])
        _, rows, columns = get_dimensions(img)
    top, left = round((rows - height) / 2.0), round((columns - width) / 2.0)
    return crop(img, top, left, height, width)


def pad(img: Any, padding: Size, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Pads the image.

    `padding`: one number, (left/right, top/bottom) or (left, top, right, bottom). `padding_mode`:
    "constant" (of `fill`), "edge", "reflect" or "symmetric".

    The sizes grow by these numbers of pixels.

    >>> metaop.vision.transforms.functional.pad(metaop.tensor([[[1, 2]]]), (1, 0), fill=7)
    tensor([[[7, 1, 2, 7]]])
    """
    sides = [padding] if isinstance(padding, WHOLE) else list(padding)
    if len(sides) not in (1, 2, 4):
        raise ArgumentError(
            f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(sides)} element one"
        )
    sides = (sides * 4)[:4]
    function = of_kind(img, pillow.pad, pixels.pad)
    return function(img, sides, 0 if fill is None else fill, padding_mode)


def resize(
    img: Any,
    size: Size,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    """Resizes the image to (height, width), or its shorter side to one number.

    In the latter case `max_size` bounds the longer side. `antialias` averages when shrinking.

    >>> metaop.vision.transforms.functional.resize(metaop.zeros(3, 10, 20), 5).shape
    metaop.Size([3, 5, 10])
    """
    _, rows, columns = get_dimensions(img)
    target = _target_size((rows, columns), size, max_size)
    if target == (rows, columns):
        return img
    function = of_kind(img, pillow.resize, pixels.resize)
    return function(img, target, mode_of(interpolation), antialias is not False)


def _target_size(image: tuple[int, int], size: Size, max_size: int | None) -> tuple[int, int]:
    sides = [size] if isinstance(size, WHOLE) else list(size)
    if len(sides) == 2:
        if max_size is not None:
            raise ArgumentError("max_size should only be passed if size specifies one length")
        return sides[0], sides[1]
    rows, columns = image
    short, long = sorted(image)
    new_short, new_long = sides[0], int(sides[0] * long / short)
    if max_size is not None:
        if max_size <= sides[0]:
            raise ArgumentError(
                f"max_size = {max_size} must be strictly greater than the requested size for the "
                f"smaller edge size = {size}"
            )
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_long, new_short) if columns <= rows else (new_short, new_long)


def resized_crop(
    img: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Size,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    """Crops a window of the image and resizes it to (…, *size).

    >>> image = metaop.zeros(3, 10, 20)
    >>> metaop.vision.transforms.functional.resized_crop(image, 0, 0, 5, 5, (2, 2)).shape
    metaop.Size([3, 2, 2])
    """
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def five_crop(img: Any, size: Size) -> tuple[Any, ...]:
    """Crops the four corners (top left, top right, bottom left, bottom right) and the centre.

    `size` is that of each: (height, width), or one number for both.

    >>> crops = metaop.vision.transforms.functional.five_crop(metaop.tensor([[[1, 2, 3]]]), (1, 1))
    >>> [one.item() for one in crops]
    [1, 3, 1, 3, 2]
    """
    height, width = _pair(size)
    _, rows, columns = get_dimensions(img)
    if width > columns or height > rows:
        raise ArgumentError(
            f"Requested crop size {(height, width)} is bigger than input size {(rows, columns)}"
        )
    corners = [(0, 0), (0, columns - width), (rows - height, 0), (rows - height, columns - width)]
    crops = tuple(crop(img, top, left, height, width) for top, left in corners)
    return (*crops, center_crop(img, [height, width]))


def ten_crop(img: Any, size: Size, vertical_flip: bool = False) -> tuple[Any, ...]:
    """The five crops of the image and of its mirror image, each of `size`.

    >>> crops = metaop.vision.transforms.functional.ten_crop(metaop.tensor([[[1, 2, 3]]]), (1, 1))
    >>> [one.item() for one in crops]
    [1, 3, 1, 3, 2, 3, 1, 3, 1, 2]
    """
    return five_crop(img, size) + five_crop(vflip(img) if vertical_flip else hflip(img), size)


def affine(
    img: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Any,
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = None,
    center: Sequence[float] | None = None,
) -> Any:
    """Rotates the image clockwise by `angle` degrees, translates, scales and shears it.

    `translate`: pixels to the right and down; `shear`: degrees along x, or along x and y; `center`:
    (x, y) of the fixed point, by default the centre.

    The shape is unchanged.

    >>> image = metaop.tensor([[[1.0, 2.0, 3.0]]])
    >>> metaop.vision.transforms.functional.affine(image, 0.0, [1, 0], 1.0, [0.0])
    tensor([[[0., 1., 2.]]])
    """
    if scale <= 0:
        raise ArgumentError(f"Argument scale should be positive, got {scale}")
    shears = [float(shear), 0.0] if isinstance(shear, (int, float)) else list(shear)
    if len(shears) == 1:
        shears *= 2
    _, rows, columns = get_dimensions(img)
    middle = (columns * 0.5, rows * 0.5)
    if is_pillow(img):
        place = middle if center is None else center
        matrix = warping.inverse_affine_matrix(place, angle, translate, scale, shears)
        return pillow.affine(img, matrix, mode_of(interpolation), fill, (rows, columns))
    place = (0.0, 0.0) if center is None else [c - m for c, m in zip(center, middle)]
    matrix = warping.inverse_affine_matrix(place, angle, translate, scale, shears)
    return warping.affine(img, matrix, mode_of(interpolation), fill, (rows, columns))


def rotate(
    img: Any,
    angle: float,
    interpolation: Any = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = None,
) -> Any:
    """Rotates the image counter-clockwise by `angle` degrees; `expand` enlarges it to fit.

    Without `expand` the shape is unchanged.

    >>> image = metaop.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> metaop.vision.transforms.functional.rotate(image, 90)
    tensor([[[2., 4.],
             [1., 3.]]])
    """
    mode = mode_of(interpolation)
    if is_pillow(img):
        return pillow.rotate(img, angle, mode, expand, center, fill)
    _, rows, columns = get_dimensions(img)
    middle = (columns * 0.5, rows * 0.5)
    place = (0.0, 0.0) if center is None else [c - m for c, m in zip(center, middle)]
    matrix = warping.inverse_affine_matrix(place, -angle, (0, 0), 1.0, (0, 0))
    size = warping.expanded_size(matrix, rows, columns) if expand else (rows, columns)
    return warping.affine(img, matrix, mode, fill, size)


def perspective(
    img: Any,
    startpoints: Sequence[Sequence[int]],
    endpoints: Sequence[Sequence[int]],
    interpolation: Any = InterpolationMode.BILINEAR,
    fill: Any = None,
) -> Any:
    """Warps the image so that the `startpoints` (x, y) move to the `endpoints`; keeps the shape.

    >>> corners = [[0, 0], [1, 0], [1, 1], [0, 1]]
    >>> image = metaop.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> metaop.vision.transforms.functional.perspective(image, corners, corners).round()
    tensor([[[1., 2.],
             [3., 4.]]])
    """
    coefficients = warping.perspective_coefficients(startpoints, endpoints)
    function = of_kind(img, pillow.perspective, warping.perspective)
    return function(img, coefficients, mode_of(interpolation), fill)


def elastic_transform(
    img: Any,
    displacement: Tensor,
    interpolation: Any = InterpolationMode.BILINEAR,
    fill: Any = None,
) -> Any:
    """Reads every pixel at an offset `displacement` (1, height, width, 2); keeps the shape.

    A displacement of 1 is half of the image.

    >>> image, displacement = metaop.tensor([[[1.0, 2.0]]]), metaop.zeros(1, 1, 2, 2)
    >>> metaop.vision.transforms.functional.elastic_transform(image, displacement)
    tensor([[[1., 2.]]])
    """
    _, rows, columns = get_dimensions(img)
    if tuple(displacement.shape) != (1, rows, columns, 2):
        raise ArgumentError(
            f"Argument displacement shape should be {[1, rows, columns, 2]}, but given "
            f"{list(displacement.shape)}"
        )
    image = pil_to_tensor(img) if is_pillow(img) else img
    moved = displacement.numpy(force=True)[0]
    result = warping.displaced(image, moved, mode_of(interpolation), fill)
    return to_pil_image(result, img.mode) if is_pillow(img) else result


def gaussian_blur(img: Any, kernel_size: Size, sigma: Any = None) -> Any:
    """Blurs the image by a Gaussian of `kernel_size` (x, y) pixels; the shape is unchanged.

    `sigma` is its standard deviation in pixels, one or (x, y).

    >>> image = metaop.tensor([[[0.0, 0.0, 1.0, 0.0, 0.0]] * 3])
    >>> metaop.vision.transforms.functional.gaussian_blur(image, [3, 3], 1.0)[0, 1]
    tensor([0.0000, 0.2741, 0.4519, 0.2741, 0.0000])
    """
    sizes = [kernel_size] * 2 if isinstance(kernel_size, WHOLE) else list(kernel_size)
    sizes = sizes * 2 if len(sizes) == 1 else sizes
    if sigma is None:
        sigma = [size * 0.15 + 0.35 for size in sizes]
    sigmas = [float(sigma)] * 2 if isinstance(sigma, (int, float)) else list(sigma)
    sigmas = sigmas * 2 if len(sigmas) == 1 else sigmas
    if min(sigmas) <= 0:
        raise ArgumentError(f"sigma should have positive values. Got {sigmas}")
    image = pil_to_tensor(img) if is_pillow(img) else img
    result = pixels.gaussian_blur(image, sizes, sigmas)
    return to_pil_image(result, img.mode) if is_pillow(img) else result
