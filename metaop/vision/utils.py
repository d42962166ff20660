"""Image grids: building, saving and drawing on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metaop.errors import ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy
from metaop.tensor.functions.joining import stack
from metaop.tensor.grad_mode import no_grad


def _batch(tensor: Tensor | Sequence[Tensor]) -> Tensor:
    """Images (batch, channels, height, width) with at least three channels."""
    images = tensor if isinstance(tensor, Tensor) else stack(list(tensor), 0)
    if not 2 <= images.ndim <= 4:
        raise ShapeError(
            f"make_grid: images {list(images.shape)} must have 2, 3 or 4 dimensions",
            fix="pass (batch, channels, height, width)",
        )
    if images.ndim == 2:
        images = images.unsqueeze(0)
    if images.ndim == 3:
        images = images.unsqueeze(0)
    return images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images


def _normalised(images: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    low, high = value_range or (float(images.min().item()), float(images.max().item()))
    return (images.clamp(low, high) - low) / max(high - low, 1e-5)


def make_grid(
    tensor: Tensor | Sequence[Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Tiles images into one (channels, height, width), `nrow` per row.

    `normalize` maps `value_range`, or the smallest and largest value, to [0, 1]; `scale_each`
    does so for every image separately.

    >>> metaop.vision.utils.make_grid(metaop.zeros(4, 3, 5, 5), nrow=2).shape
    metaop.Size([3, 16, 16])
    """
    with no_grad():
        images = _batch(tensor)
        if normalize:
            parts = images.unbind(0) if scale_each else (images,)
            scaled = [_normalised(part, value_range) for part in parts]
            images = stack(scaled, 0) if scale_each else scaled[0]
        count, channels, height, width = images.shape
        if count == 1:
            return images[0]
        columns = min(nrow, count)
        rows = math.ceil(count / columns)
        down, across = height + padding, width + padding
        grid = images.new_full((channels, rows * down + padding, columns * across + padding),
                               pad_value)  # fmt: skip
        for number in range(count):
            top = number // columns * down + padding
            left = number % columns * across + padding
            grid[:, top : top + height, left : left + width] = images[number]
        return grid


def save_image(
    tensor: Tensor | Sequence[Tensor], fp: str | Path | Any, format: str | None = None, **grid: Any
) -> None:
    """Writes a grid of images with values in [0, 1] to a file; `grid` is passed to `make_grid`.

    `fp` is a name, or a file with a `format`; the images are (N, C, H, W).

    >>> import io
    >>> file = io.BytesIO()
    >>> metaop.vision.utils.save_image(metaop.zeros(2, 3, 4, 4), file, format="png")
    >>> file.getvalue()[1:4]
    b'PNG'
    """
    from PIL import Image

    pixels = make_grid(tensor, **grid).mul(255).add(0.5).clamp(0, 255)
    Image.fromarray(pixels.permute(1, 2, 0).numpy(force=True).astype("uint8")).save(
        fp, format=format
    )


Colour = str | tuple[int, ...]


def draw_bounding_boxes(
    image: Tensor,
    boxes: Tensor,
    labels: Sequence[str | None] | None = None,
    colors: Colour | Sequence[Colour] | None = None,
    fill: bool = False,
    width: int = 1,
    font: str | None = None,
    font_size: int | None = None,
) -> Tensor:
    """Draws boxes (count, 4) and `labels` on an image (1 or 3, height, width).

    Bytes give bytes, floats in [0, 1] give floats. Colours are names or (red, green, blue).

    The shape is unchanged.

    >>> image, box = metaop.zeros(3, 4, 4), metaop.tensor([[0.0, 0.0, 2.0, 2.0]])
    >>> metaop.vision.utils.draw_bounding_boxes(image, box, colors="white")[0, 0]
    tensor([1., 1., 1., 0.])
    """
    from PIL import Image, ImageDraw, ImageFont

    if image.ndim != 3 or image.shape[0] not in (1, 3) or boxes.shape[-1] != 4:
        raise ShapeError(
            f"draw_bounding_boxes: an image {list(image.shape)} and boxes {list(boxes.shape)}",
            fix="pass (1 or 3, height, width) and (count, 4)",
        )
    picture = Image.fromarray(_bytes_of(image))
    pen = ImageDraw.Draw(picture, "RGBA" if fill else "RGB")
    letters = (
        ImageFont.load_default() if font is None else ImageFont.truetype(font, font_size or 10)
    )
    shades = _colours(colors, len(boxes))
    names = labels if labels is not None else [None] * len(boxes)
    for corners, shade, name in zip(boxes.long().tolist(), shades, names):  # type: ignore[attr-defined]
        inside = (*shade, 100) if fill else None
        pen.rectangle(corners, fill=inside, outline=shade, width=width)
        if name is not None:
            pen.text((corners[0] + width + 1, corners[1] + width + 1), name, shade, letters)
    return _as_image(np.asarray(picture), image)


def draw_segmentation_masks(
    image: Tensor,
    masks: Tensor,
    alpha: float = 0.8,
    colors: Colour | Sequence[Colour] | None = None,
) -> Tensor:
    """Tints an image (3, height, width) where masks (count, height, width) are true; same shape.

    >>> image, mask = metaop.zeros(3, 1, 2), metaop.tensor([[True, False]])
    >>> metaop.vision.utils.draw_segmentation_masks(image, mask, 1.0, "white")[0]
    tensor([[1., 0.]])
    """
    layers = masks.numpy(force=True).astype(bool).reshape(-1, *image.shape[-2:])
    pixels = _bytes_of(image)
    tinted = pixels.copy()
    for layer, shade in zip(layers, _colours(colors, len(layers))):
        tinted[layer] = shade
    covered = np.logical_or.reduce(layers, axis=0)[..., None]
    mixed = np.where(covered, pixels * (1.0 - alpha) + tinted * alpha, pixels)
    return _as_image(mixed.astype(np.uint8), image)


def _bytes_of(image: Tensor) -> np.ndarray:
    """An image tensor as bytes (height, width, 3)."""
    values = image.numpy(force=True)
    if values.dtype.kind == "f":
        values = np.clip(values * 255 + 0.5, 0, 255)
    values = np.broadcast_to(values, (3, *values.shape[1:]))
    return np.ascontiguousarray(values.transpose(1, 2, 0).astype(np.uint8))


def _as_image(pixels: np.ndarray, like: Tensor) -> Tensor:
    """Bytes (height, width, 3) as a tensor with the dtype and device of another image."""
    values = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    if like.dtype.kind == "float":
        return from_numpy(values / np.float32(255)).to(like)  # type: ignore[attr-defined]
    return from_numpy(values).to(like)  # type: ignore[attr-defined]


def _colours(colors: Colour | Sequence[Colour] | None, count: int) -> list[tuple[int, int, int]]:
    """(red, green, blue) for each of `count` objects; distinct ones by default."""
    from PIL import ImageColor

    if colors is None:
        # Steps of the golden angle keep adjacent colours distinct.
        return [
            ImageColor.getrgb(f"hsl({k * 137.5 % 360:.0f}, 90%, 50%)")[:3] for k in range(count)
        ]
    one = isinstance(colors, (str, tuple))
    chosen: Sequence[Any] = [colors] * count if one else list(colors)
    if len(chosen) < count:
        raise ShapeError(f"{len(chosen)} colors for {count} objects", fix="pass one for each")
    return [ImageColor.getrgb(c)[:3] if isinstance(c, str) else tuple(c) for c in chosen]  # type: ignore
