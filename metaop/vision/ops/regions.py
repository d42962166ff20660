"""Features of regions of interest: gathers at sampling points, reduced over each bin.

The host computes the points from the boxes; boxes get no gradient, as in torchvision. The gradient
of the features is the scatter that corresponds to the gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import metaop
from metaop import nn
from metaop.errors import ShapeError
from metaop.tensor.arguments import WHOLE
from metaop.tensor.core import Tensor

Boxes = Tensor | Sequence[Tensor]
Size = int | Sequence[int]


def _rows(name: str, boxes: Boxes) -> np.ndarray:
    """Regions as rows (image, x1, y1, x2, y2)."""
    if isinstance(boxes, Tensor):
        if boxes.ndim != 2 or boxes.shape[1] != 5:
            raise ShapeError(
                f"{name}: a tensor of boxes should be (count, 5), got {list(boxes.shape)}",
                fix="pass rows (image, x1, y1, x2, y2), or a list with (count, 4) for each image",
            )
        return boxes.numpy(force=True).astype(np.float64)
    parts = []
    for number, part in enumerate(boxes):
        corners = part.numpy(force=True).reshape(-1, 4).astype(np.float64)
        parts.append(np.concatenate([np.full((len(corners), 1), number), corners], 1))
    return np.concatenate(parts) if parts else np.zeros((0, 5))


def _pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, WHOLE) else (size[0], size[1])


class Taps(NamedTuple):
    """Along one axis: the pixels below and above each point, and their weights.

    Arrays (regions, bins, points of a bin).
    """

    places: tuple[np.ndarray, np.ndarray]
    weights: tuple[np.ndarray, np.ndarray]

    def rows(self, width: int | np.ndarray, start: int | np.ndarray = 0) -> Taps:
        """Rows as flat pixel indices of an image of this width that starts at `start`."""
        low, high = (start + width * part for part in self.places)
        return Taps((low, high), self.weights)


def taps(
    start: np.ndarray, extent: np.ndarray, bins: int, sampling: int, size: int | np.ndarray
) -> Taps:
    """Equidistant points in every bin, each between two pixels of an axis of `size`.

    Sizes may differ: (regions, 1, 1).
    """
    width = extent / bins
    counts = np.full(len(start), sampling) if sampling > 0 else np.ceil(width).astype(int)
    points = np.arange(max(int(counts.max(initial=1)), 1))
    step = (points + 0.5) * (width / np.maximum(counts, 1))[:, None]
    place = start[:, None, None] + (np.arange(bins) * width[:, None])[:, :, None] + step[:, None]
    share = (points < counts[:, None]) / np.maximum(counts, 1)[:, None]
    share = share[:, None] * ((place >= -1.0) & (place <= size))
    place = np.clip(place, 0.0, size - 1)
    low = np.floor(place).astype(np.int64)
    above = place - low
    high = np.minimum(low + 1, size - 1)
    return Taps((low, high), ((1 - above) * share, above * share))


def gathered(
    pixels: Any, images: np.ndarray, channels: np.ndarray, down: Taps, across: Taps
) -> Any:
    """The mean of the points of each bin of pixels (images, channels, pixels).

    The index of a pixel is the sum of `down` and `across`; `channels` broadcasts to (channel, bins,
    bins).
    """
    device, dtype = pixels.device, pixels.dtype

    def tensor(array: np.ndarray) -> Any:
        return metaop.as_tensor(np.ascontiguousarray(array), device=device)

    image = tensor(images[:, None, None, None, None, None])
    channel = tensor(channels[None, ..., None, None])
    total: Any = 0.0
    for row, row_weight in zip(down.places, down.weights):
        for column, column_weight in zip(across.places, across.weights):
            place = tensor(row[:, None, :, None, :, None]) + tensor(
                column[:, None, None, :, None, :]
            )
            weight = row_weight[:, None, :, None, :, None] * column_weight[:, None, None, :, None]
            values = pixels[image, channel, place] * tensor(weight).to(dtype)
            total = total + values.sum((-2, -1))
    return total


def _from_map(
    input: Tensor, rows: np.ndarray, channels: np.ndarray, down: Taps, across: Taps
) -> Tensor:
    pixels: Any = input.flatten(2)  # type: ignore[attr-defined]
    images = rows[:, 0].astype(np.int64)
    return gathered(pixels, images, channels, down.rows(input.shape[3]), across)


def roi_align(
    input: Tensor,
    boxes: Boxes,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """Pools regions of images to (regions, channels, *output_size) by bilinear interpolation.

    `boxes`: rows (image, x1, y1, x2, y2), or a tensor of shape (count, 4) per image. Each bin is
    the mean of `sampling_ratio`² interpolated points (if not positive, about one per pixel).
    `aligned` shifts by half a pixel, so that pixels are areas, not points. From He et al., "Mask
    R-CNN" (2017).

    >>> image = metaop.arange(16.0).reshape(1, 1, 4, 4)
    >>> box = metaop.tensor([[0.0, 0.0, 4.0, 4.0]])
    >>> metaop.vision.ops.roi_align(image, [box], 2, sampling_ratio=1, aligned=True)
    tensor([[[[ 2.5000,  4.5000],
              [10.5000, 12.5000]]]])
    """
    rows, (high, wide) = _rows("roi_align", boxes), _pair(output_size)
    corners = rows[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)
    sizes = corners[:, 2:] - corners[:, :2]
    if not aligned:
        sizes = np.maximum(sizes, 1.0)
    down = taps(corners[:, 1], sizes[:, 1], high, sampling_ratio, input.shape[2])
    across = taps(corners[:, 0], sizes[:, 0], wide, sampling_ratio, input.shape[3])
    channels = np.arange(input.shape[1])[:, None, None]
    return _from_map(input, rows, channels, down, across)


def _own_channels(name: str, input: Tensor, bins: tuple[int, int]) -> np.ndarray:
    """The channel that each bin of each result channel reads."""
    count = bins[0] * bins[1]
    if input.shape[1] % count:
        raise ShapeError(
            f"{name}: {input.shape[1]} channels are not a multiple of the {count} bins of {bins}"
        )
    return np.arange(input.shape[1]).reshape(-1, *bins)


def ps_roi_align(
    input: Tensor,
    boxes: Boxes,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> Tensor:
    """Position-sensitive `roi_align`: every bin reads its own channels.

    The input has size[0] * size[1] times the channels of the result. From Dai et al., "R-FCN"
    (2016).

    >>> image, box = metaop.ones(1, 4, 4, 4), metaop.tensor([[0.0, 0.0, 4.0, 4.0]])
    >>> metaop.vision.ops.ps_roi_align(image, [box], 2).shape
    metaop.Size([1, 1, 2, 2])
    """
    rows, bins = _rows("ps_roi_align", boxes), _pair(output_size)
    corners = rows[:, 1:] * spatial_scale - 0.5
    sizes = corners[:, 2:] - corners[:, :2]
    down = taps(corners[:, 1], sizes[:, 1], bins[0], sampling_ratio, input.shape[2])
    across = taps(corners[:, 0], sizes[:, 0], bins[1], sampling_ratio, input.shape[3])
    channels = _own_channels("ps_roi_align", input, bins)
    return _from_map(input, rows, channels, down, across)


def _windows(
    start: np.ndarray, extent: np.ndarray, bins: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """The pixels of every bin along one axis, and which of them count."""
    # As in PyTorch's kernels, the bounds of a bin are found in single precision.
    width = (extent.astype(np.float32) / np.float32(bins))[:, None]
    number = np.arange(bins, dtype=np.float32)
    low = np.clip(np.floor(number * width) + start[:, None], 0, size).astype(np.int64)
    high = np.clip(np.ceil((number + 1) * width) + start[:, None], 0, size).astype(np.int64)
    steps = np.arange(max(int((high - low).max(initial=1)), 1))
    place = low[..., None] + steps
    return np.minimum(place, size - 1), place < high[..., None]


def _pooled(
    input: Any, rows: np.ndarray, bins: tuple[int, int], channels: np.ndarray, extra: int,
    scale: float,
) -> tuple[Any, np.ndarray]:  # fmt: skip
    """All pixels of every bin (…, pixels), and which of them are in it."""
    corners = np.floor(rows[:, 1:] * scale + 0.5)
    sizes = np.maximum(corners[:, 2:] - corners[:, :2] + extra, 1)
    down, down_inside = _windows(corners[:, 1], sizes[:, 1], bins[0], input.shape[2])
    across, across_inside = _windows(corners[:, 0], sizes[:, 0], bins[1], input.shape[3])
    inside = down_inside[:, :, None, :, None] & across_inside[:, None, :, None, :]
    places = (
        rows[:, 0].astype(np.int64)[:, None, None, None, None, None],
        channels[None, ..., None, None],
        down[:, None, :, None, :, None],
        across[:, None, None, :, None, :],
    )
    index = [metaop.as_tensor(np.ascontiguousarray(part), device=input.device) for part in places]
    values = input[tuple(index)]
    return values.flatten(-2), inside.reshape(*inside.shape[:3], -1)[:, None]


def roi_pool(input: Tensor, boxes: Boxes, output_size: Size, spatial_scale: float = 1.0) -> Tensor:
    """The maximum of the pixels in each bin of regions of images; 0 for an empty bin.

    The result is (R, C, H, W) for R regions; (H, W) is `output_size`. From Girshick, "Fast R-CNN"
    (2015).

    >>> image = metaop.arange(16.0).reshape(1, 1, 4, 4)
    >>> metaop.vision.ops.roi_pool(image, [metaop.tensor([[0.0, 0.0, 3.0, 3.0]])], 2)
    tensor([[[[ 5.,  7.],
              [13., 15.]]]])
    """
    rows, bins = _rows("roi_pool", boxes), _pair(output_size)
    channels = np.arange(input.shape[1])[:, None, None]
    values, inside = _pooled(input, rows, bins, channels, 1, spatial_scale)
    mask = metaop.as_tensor(inside, device=input.device)
    largest = metaop.where(mask, values, -metaop.inf).max(-1).values
    return metaop.where(mask.any(-1), largest, 0.0)


def ps_roi_pool(
    input: Tensor, boxes: Boxes, output_size: Size, spatial_scale: float = 1.0
) -> Tensor:
    """Position-sensitive average pooling of regions: every bin reads its own channels.

    The input has size[0] * size[1] times the channels of the result. From Dai et al., "R-FCN"
    (2016).

    >>> image, box = metaop.ones(1, 4, 4, 4), metaop.tensor([[0.0, 0.0, 3.0, 3.0]])
    >>> metaop.vision.ops.ps_roi_pool(image, [box], 2).flatten()
    tensor([1., 1., 1., 1.])
    """
    rows, bins = _rows("ps_roi_pool", boxes), _pair(output_size)
    channels = _own_channels("ps_roi_pool", input, bins)
    values, inside = _pooled(input, rows, bins, channels, 0, spatial_scale)
    mask = metaop.as_tensor(inside, device=input.device)
    count = mask.sum(-1).clamp(min=1).to(input.dtype)
    return metaop.where(mask, values, 0.0).sum(-1) / count


class _Region(nn.Module):
    """A function of features and boxes with fixed options."""

    function: Any
    names: tuple[str, ...]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        for name, value in {**dict(zip(self.names, args)), **options}.items():
            if name not in self.names:
                raise TypeError(f"{type(self).__name__} got an unexpected argument {name!r}")
            setattr(self, name, value)

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:
        options = {name: getattr(self, name) for name in self.names if hasattr(self, name)}
        return type(self).function(input, rois, **options)

    def extra_repr(self) -> str:
        return ", ".join(f"{n}={getattr(self, n)}" for n in self.names if hasattr(self, n))


class RoIAlign(_Region):
    """`roi_align` as a module, constructed with its options, the output size first.

    >>> layer = metaop.vision.ops.RoIAlign(2, spatial_scale=0.5, sampling_ratio=1)
    >>> layer(metaop.ones(1, 3, 4, 4), [metaop.tensor([[0.0, 0.0, 8.0, 8.0]])]).shape
    metaop.Size([1, 3, 2, 2])
    """

    function = staticmethod(roi_align)
    names = ("output_size", "spatial_scale", "sampling_ratio", "aligned")


class PSRoIAlign(_Region):
    """`ps_roi_align` as a module, constructed with its options, the output size first.

    >>> layer = metaop.vision.ops.PSRoIAlign(2)
    >>> layer(metaop.ones(1, 4, 4, 4), [metaop.tensor([[0.0, 0.0, 4.0, 4.0]])]).shape
    metaop.Size([1, 1, 2, 2])
    """

    function = staticmethod(ps_roi_align)
    names = ("output_size", "spatial_scale", "sampling_ratio")


class RoIPool(_Region):
    """`roi_pool` as a module, constructed with its options, the output size first.

    >>> layer = metaop.vision.ops.RoIPool(2)
    >>> layer(metaop.ones(1, 3, 4, 4), [metaop.tensor([[0.0, 0.0, 3.0, 3.0]])]).shape
    metaop.Size([1, 3, 2, 2])
    """

    function = staticmethod(roi_pool)
    names = ("output_size", "spatial_scale")


class PSRoIPool(_Region):
    """`ps_roi_pool` as a module, constructed with its options, the output size first.

    >>> layer = metaop.vision.ops.PSRoIPool(2)
    >>> layer(metaop.ones(1, 4, 4, 4), [metaop.tensor([[0.0, 0.0, 3.0, 3.0]])]).shape
    metaop.Size([1, 1, 2, 2])
    """

    function = staticmethod(ps_roi_pool)
    names = ("output_size", "spatial_scale")
