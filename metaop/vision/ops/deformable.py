"""Deformable convolution: its taps are moved by learned offsets."""

from __future__ import annotations

import math
from typing import Any

import metaop
from metaop import nn
from metaop.errors import ShapeError
from metaop.tensor.arguments import WHOLE
from metaop.tensor.core import Tensor

Pair = int | tuple[int, int]


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, WHOLE) else value


def _interpolated(pixels: Any, y: Any, x: Any) -> Any:
    """Interpolated values (batch, groups, channels, taps, height, width) at (y, x)."""
    batch, groups, channels, height, width = pixels.shape
    device = pixels.device

    def numbers(count: int, axis: int) -> Any:
        shape = [1] * 6
        shape[axis] = count
        return metaop.arange(count, device=device).reshape(shape)

    fixed = (numbers(batch, 0), numbers(groups, 1), numbers(channels, 2))
    top, left = y.detach().floor(), x.detach().floor()
    total: Any = 0.0
    for down in (0, 1):
        for across in (0, 1):
            row, column = top + down, left + across
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            weight = (1 - (y - row).abs()) * (1 - (x - column).abs())
            weight = metaop.where(inside, weight, 0.0)
            row = row.clamp(0, height - 1).long().unsqueeze(2)
            column = column.clamp(0, width - 1).long().unsqueeze(2)
            total = total + pixels[fixed + (row, column)] * weight.unsqueeze(2)
    return total


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    mask: Tensor | None = None,
) -> Tensor:
    """A convolution whose taps are moved by `offset`, interpolated, and weighted by `mask`.

    `offset` (batch, 2 · groups · taps, height, width) holds the shift down and right of every tap,
    `mask` (batch, groups · taps, height, width) its weight; height and width are those of the
    result, whose shape is `conv2d`'s. X. Zhu and others, "Deformable ConvNets v2", 2018.

    >>> image, offset = metaop.arange(3.0).reshape(1, 1, 1, 3), metaop.zeros(1, 2, 1, 3)
    >>> offset[:, 1] = 0.5  # half a pixel to the right
    >>> metaop.vision.ops.deform_conv2d(image, offset, metaop.ones(1, 1, 1, 1))
    tensor([[[[0.5000, 1.5000, 1.0000]]]])
    """
    image: Any = input
    moved: Any = offset
    kernel: Any = weight
    batch, channels, rows, columns = image.shape
    outputs, per_group, kernel_rows, kernel_columns = kernel.shape
    taps = kernel_rows * kernel_columns
    steps, pads, gaps = _pair(stride), _pair(padding), _pair(dilation)
    high = (rows + 2 * pads[0] - gaps[0] * (kernel_rows - 1) - 1) // steps[0] + 1
    wide = (columns + 2 * pads[1] - gaps[1] * (kernel_columns - 1) - 1) // steps[1] + 1
    groups = moved.shape[1] // (2 * taps)
    if groups == 0 or tuple(moved.shape) != (batch, 2 * groups * taps, high, wide):
        raise ShapeError(
            f"deform_conv2d: offset {list(moved.shape)} should be "
            f"{[batch, 2 * max(groups, 1) * taps, high, wide]} for an input of "
            f"{list(image.shape)} and a weight of {list(kernel.shape)}"
        )
    places = moved.reshape(batch, groups, taps, 2, high, wide)
    tap = metaop.arange(taps, device=image.device).reshape(taps, 1, 1)
    down = metaop.arange(high, device=image.device).reshape(high, 1) * steps[0] - pads[0]
    across = metaop.arange(wide, device=image.device) * steps[1] - pads[1]
    y = places[:, :, :, 0] + (tap // kernel_columns * gaps[0] + down).to(image.dtype)
    x = places[:, :, :, 1] + (tap % kernel_columns * gaps[1] + across).to(image.dtype)
    pixels = image.reshape(batch, groups, channels // groups, rows, columns)
    seen = _interpolated(pixels, y, x)
    if mask is not None:
        seen = seen * mask.reshape(batch, groups, 1, taps, high, wide)  # type: ignore[attr-defined]
    blocks = channels // per_group
    seen = seen.reshape(batch, blocks, per_group * taps, high * wide)
    kernel = kernel.reshape(blocks, outputs // blocks, per_group * taps)
    result = metaop.matmul(kernel, seen).reshape(batch, outputs, high, wide)
    return result if bias is None else result + bias.reshape(outputs, 1, 1)  # type: ignore


class DeformConv2d(nn.Module):
    """`deform_conv2d` with parameters; called with an image, offsets and optionally a mask.

    The weight is (O, C / groups, KH, KW).

    >>> layer = metaop.vision.ops.DeformConv2d(3, 5, 3, padding=1)
    >>> layer(metaop.ones(1, 3, 4, 4), metaop.zeros(1, 18, 4, 4)).shape
    metaop.Size([1, 5, 4, 4])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"in_channels {in_channels} and out_channels {out_channels} must be divisible by "
                f"groups {groups}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = _pair(kernel_size), _pair(stride)
        self.padding, self.dilation = _pair(padding), _pair(dilation)
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = nn.Parameter(metaop.empty(*shape))
        self.bias = nn.Parameter(metaop.empty(out_channels)) if bias else None
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(math.prod(shape[1:]))
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, offset: Tensor, mask: Tensor | None = None) -> Tensor:
        return deform_conv2d(
            input, offset, self.weight, self.bias, self.stride, self.padding, self.dilation, mask
        )

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
