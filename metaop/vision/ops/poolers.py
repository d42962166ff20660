"""Region features from a pyramid, with the level chosen by the region's size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.errors import ArgumentError
from metaop.tensor.arguments import WHOLE
from metaop.tensor.core import Tensor
from metaop.vision.ops.regions import gathered, taps


class MultiScaleRoIAlign(nn.Module):
    """`roi_align` on one of several feature maps, chosen by the area of each box.

    A box of `canonical_scale` pixels uses `canonical_level`; half the side uses one level lower.
    The result has the shape (regions, channels, *output_size).

    >>> pooler = metaop.vision.ops.MultiScaleRoIAlign(["map"], 2, sampling_ratio=1)
    >>> boxes = [metaop.tensor([[0.0, 0.0, 4.0, 4.0]])]
    >>> pooler({"map": metaop.ones(1, 3, 8, 8)}, boxes, [(8, 8)]).shape
    metaop.Size([1, 3, 2, 2])
    """

    def __init__(
        self,
        featmap_names: Sequence[str],
        output_size: int | Sequence[int],
        sampling_ratio: int,
        *,
        canonical_scale: int = 224,
        canonical_level: int = 4,
    ) -> None:
        super().__init__()
        self.featmap_names = list(featmap_names)
        pair = (output_size, output_size) if isinstance(output_size, WHOLE) else tuple(output_size)
        self.output_size = pair
        self.sampling_ratio = sampling_ratio
        self.canonical_scale = canonical_scale
        self.canonical_level = canonical_level

    def forward(
        self,
        x: dict[str, Tensor],
        boxes: list[Tensor],
        image_shapes: list[tuple[int, int]],
    ) -> Tensor:
        maps = [value for name, value in x.items() if name in self.featmap_names]
        if not maps or not image_shapes:
            raise ArgumentError(
                f"MultiScaleRoIAlign: none of the maps {list(x)} is in {self.featmap_names}, or "
                "there are no image_shapes"
            )
        scales = [_scale(value, image_shapes) for value in maps]
        counts = [len(part) for part in boxes]
        images = np.repeat(np.arange(len(boxes)), counts)
        corners = np.concatenate([part.numpy(force=True) for part in boxes])
        return self._pooled(maps, images, corners, scales, self._levels(corners, scales))

    def _pooled(
        self,
        maps: list[Any],
        images: np.ndarray,
        corners: np.ndarray,
        scales: list[float],
        levels: np.ndarray,
    ) -> Tensor:
        """Gathers from the pixels of all maps at once.

        So one program serves any numbers of boxes per map.
        """
        shapes = np.array([value.shape[2:] for value in maps])
        starts = np.cumsum([0, *shapes.prod(1)])[:-1]
        heights, widths, start = (
            part[levels][:, None, None] for part in (shapes[:, 0], shapes[:, 1], starts)
        )
        places = corners.astype(np.float32).astype(np.float64) * np.array(scales)[levels][:, None]
        sizes = np.maximum(places[:, 2:] - places[:, :2], 1.0)
        high, wide = self.output_size
        down = taps(places[:, 1], sizes[:, 1], high, self.sampling_ratio, heights)
        across = taps(places[:, 0], sizes[:, 0], wide, self.sampling_ratio, widths)
        pixels = metaop.cat([value.flatten(2) for value in maps], 2)
        channels = np.arange(pixels.shape[1])[:, None, None]
        return gathered(pixels, images, channels, down.rows(widths, start), across)

    def _levels(self, corners: np.ndarray, scales: list[float]) -> np.ndarray:
        """The index of the map for every box."""
        lowest, highest = (int(-math.log2(scale)) for scale in (scales[0], scales[-1]))
        sides = np.sqrt((corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1]))
        level = np.floor(self.canonical_level + np.log2(sides / self.canonical_scale) + 1e-6)
        return np.clip(level, lowest, highest).astype(np.int64) - lowest

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(featmap_names={self.featmap_names}, "
            f"output_size={self.output_size}, sampling_ratio={self.sampling_ratio})"
        )


def _scale(value: Tensor, image_shapes: Sequence[tuple[int, int]]) -> float:
    """The scale of a map relative to the image, a power of two."""
    height = max(shape[0] for shape in image_shapes)
    return 2.0 ** round(math.log2(value.shape[-2] / height))
