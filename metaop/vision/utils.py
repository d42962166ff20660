"""Grids of images, and writing them to files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metaop.errors import ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.gradients import no_grad
from metaop.tensor.joining import stack


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
    """One image (channels, height, width) of many, `nrow` side by side.

    `normalize` maps `value_range`, or the smallest and largest value, to [0, 1]; `scale_each`
    does so for every image by itself.
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
    """Writes a grid of images with values in [0, 1] to a file; `grid` is passed to `make_grid`."""
    from PIL import Image

    pixels = make_grid(tensor, **grid).mul(255).add(0.5).clamp(0, 255)
    Image.fromarray(pixels.permute(1, 2, 0).numpy().astype("uint8")).save(fp, format=format)
