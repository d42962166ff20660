"""Layers that rearrange or resize: flatten, fold, shuffle, upsample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.nn import functional as F
from metaop.nn.module import Module
from metaop.nn.sizes import Size
from metaop.tensor.core import Tensor


class Flatten(Module):
    """Merges dimensions start_dim to end_dim into one.

    Raises DimensionError when the input has no such dimension.

    >>> nn.Flatten()(metaop.ones(2, 3, 4)).shape
    metaop.Size([2, 12])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits dimension `dim` into several.

    Raises ShapeError unless the product of the sizes is the size of the dimension.

    >>> nn.Unflatten(1, (3, 4))(metaop.ones(2, 12)).shape
    metaop.Size([2, 3, 4])
    """

    def __init__(self, dim: int | str, unflattened_size: Sequence[Any]) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError("unflattened_size must be a tuple of tuples for a named dimension")
        if not isinstance(unflattened_size, (tuple, list)):
            raise TypeError(
                "unflattened_size must be tuple of ints, but found type "
                f"{type(unflattened_size).__name__}"
            )
        for position, extent in enumerate(unflattened_size):
            if not isinstance(extent, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, but found element of type "
                    f"{type(extent).__name__} at pos {position}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Fold(Module):
    """Sums columns of sliding blocks back into images: (N, C·k·k, L) to (N, C, H, W).

    L is the number of blocks in `output_size`.

    >>> nn.Fold((8, 8), 3)(metaop.ones(1, 18, 36)).shape
    metaop.Size([1, 2, 8, 8])
    """

    def __init__(
        self,
        output_size: Size,
        kernel_size: Size,
        dilation: Size = 1,
        padding: Size = 0,
        stride: Size = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """Sliding blocks of images as columns: (N, C, H, W) to (N, C·k·k, L).

    L is the number of blocks.

    >>> nn.Unfold(3)(metaop.ones(1, 2, 8, 8)).shape
    metaop.Size([1, 18, 36])
    """

    def __init__(
        self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class PixelShuffle(Module):
    """Moves channels to pixels: (*, C·r², H, W) to (*, C, H·r, W·r).

    Raises ShapeError when the channels are not divisible by `upscale_factor` squared.

    >>> nn.PixelShuffle(2)(metaop.ones(1, 12, 4, 4)).shape
    metaop.Size([1, 3, 8, 8])
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Moves pixels to channels: (*, C, H·r, W·r) to (*, C·r², H, W).

    The inverse of PixelShuffle. Raises ShapeError unless `downscale_factor` divides H and W.

    >>> nn.PixelUnshuffle(2)(metaop.ones(1, 1, 4, 6)).shape
    metaop.Size([1, 4, 2, 3])
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleaves the channels of `groups` groups.

    The result has the shape (N, C, *) of the input. Raises ShapeError unless `groups` divides
    the channels.

    >>> nn.ChannelShuffle(2)(metaop.arange(4.0).reshape(1, 4, 1)).flatten().tolist()
    [0.0, 2.0, 1.0, 3.0]
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Upsample(Module):
    """Resizes images to `size` or by `scale_factor`: nearest, linear, bicubic, trilinear.

    The input is (N, C, …) with one to three spatial dimensions.

    >>> nn.Upsample(scale_factor=2)(metaop.ones(1, 3, 4, 4)).shape
    metaop.Size([1, 3, 8, 8])
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, (tuple, list)):
            scale_factor = tuple(float(factor) for factor in scale_factor)
        elif scale_factor is not None:
            scale_factor = float(scale_factor)
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Nearest-neighbour upsampling: repeats every pixel.

    (N, C, H, W) becomes (N, C, *size), or `scale_factor` times as large.

    >>> nn.UpsamplingNearest2d(scale_factor=2)(metaop.tensor([[[[1.0, 2.0]]]])).tolist()
    [[[[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]]]
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Bilinear upsampling with aligned corners.

    (N, C, H, W) becomes (N, C, *size), or `scale_factor` times as large.

    >>> nn.UpsamplingBilinear2d(size=(1, 3))(metaop.tensor([[[[0.0, 2.0]]]])).tolist()
    [[[[0.0, 1.0, 2.0]]]]
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
