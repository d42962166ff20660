"""Convolutions and transposed convolutions over one, two and three dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn import init
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.nn.sizes import Size, many
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """The base class of all convolutions: the weight (out, in / groups, *kernel) and settings."""

    dimensions: ClassVar[int]
    transposed: bool = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        count = self.dimensions
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = many(kernel_size, count)
        self.stride = many(stride, count)
        self.padding = padding if isinstance(padding, str) else many(padding, count)
        self.dilation = many(dilation, count)
        self.output_padding = (0,) * count
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        self._reversed_padding_repeated_twice = self._explicit_padding()
        ends = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (ends[0], ends[1] // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _check(self) -> None:
        name = type(self).__name__
        if self.groups <= 0:
            raise ArgumentError(f"{name}: groups must be a positive integer", fix="use groups=1")
        for kind in ("in_channels", "out_channels"):
            if getattr(self, kind) % self.groups:
                raise ArgumentError(
                    f"{name}: {kind} {getattr(self, kind)} must be divisible by groups "
                    f"{self.groups}",
                    fix="change one of them",
                )
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ArgumentError(
                    f"{name}: Invalid padding string {self.padding!r}, should be one of "
                    "'valid', 'same'",
                    fix="or pass numbers",
                )
            if self.padding == "same" and any(step != 1 for step in self.stride):
                raise ArgumentError(
                    f"{name}: padding='same' is not supported for strided convolutions",
                    fix="use stride=1 or give the padding in numbers",
                )
        if self.padding_mode not in _PADDING_MODES:
            raise ArgumentError(
                f"{name}: padding_mode must be one of {_PADDING_MODES}, but got "
                f"padding_mode='{self.padding_mode}'",
                fix="use one of them",
            )

    def _explicit_padding(self) -> list[int]:
        """The padding in the order of `F.pad`: before and after, last dimension first."""
        if self.padding == "valid":
            return [0, 0] * self.dimensions
        widths: list[int] = []
        for k in reversed(range(self.dimensions)):
            if isinstance(self.padding, str):
                total = self.dilation[k] * (self.kernel_size[k] - 1)
                widths += (total // 2, total - total // 2)
            else:
                widths += (self.padding[k], self.padding[k])
        return widths

    def reset_parameters(self) -> None:
        """Draws weight and bias uniformly from [-1/sqrt(fan_in), 1/sqrt(fan_in)]."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}, stride={self.stride}",
        ]
        if self.padding != (0,) * self.dimensions:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * self.dimensions:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != (0,) * self.dimensions:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class _Forward(_Convolution):
    """A convolution; `convolve` is the function that computes it."""

    convolve: ClassVar[Callable[..., Tensor]]

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: str | int | tuple[int, ...] = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return type(self).convolve(
            input, weight, bias, self.stride, padding, self.dilation, self.groups
        )


class Conv1d(_Forward):
    """Convolution of (N, C, L).

    The result is (N, out_channels, L'), with
    `L' = (L + 2 · padding - dilation · (kernel_size - 1) - 1) // stride + 1`.

    >>> nn.Conv1d(3, 8, 5, padding=2)(metaop.ones(1, 3, 20)).shape
    metaop.Size([1, 8, 20])
    """

    dimensions = 1
    convolve = staticmethod(F.conv1d)


class Conv2d(_Forward):
    """Convolution of (N, C, H, W).

    The result is (N, out_channels, H', W'), with
    `H' = (H + 2 · padding - dilation · (kernel_size - 1) - 1) // stride + 1`, and W' likewise.

    >>> nn.Conv2d(3, 8, 3, stride=2, padding=1)(metaop.ones(1, 3, 32, 32)).shape
    metaop.Size([1, 8, 16, 16])
    """

    dimensions = 2
    convolve = staticmethod(F.conv2d)


class Conv3d(_Forward):
    """Convolution of (N, C, D, H, W).

    The result is (N, out_channels, D', H', W'); the sizes follow the formula of `Conv2d`.

    >>> nn.Conv3d(3, 8, 3, padding=1)(metaop.ones(1, 3, 4, 8, 8)).shape
    metaop.Size([1, 8, 4, 8, 8])
    """

    dimensions = 3
    convolve = staticmethod(F.conv3d)


class _Transposed(_Convolution):
    """The gradient of a convolution as a layer; weight (in, out / groups, *kernel)."""

    transposed = True
    convolve: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ArgumentError(
                f'Only "zeros" padding mode is supported for {type(self).__name__}',
                fix="leave padding_mode out",
            )
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )
        self.output_padding = many(output_padding, self.dimensions)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self.output_padding
        if output_size is not None:
            extra = self._output_padding(input, output_size)
        return type(self).convolve(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )

    def _output_padding(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        count = self.dimensions
        wanted = tuple(output_size)[-count:]
        if len(output_size) not in (count, count + 1, count + 2):
            raise ArgumentError(
                f"{type(self).__name__}: output_size must have {count} elements, got "
                f"{len(output_size)}",
                fix="give the spatial sizes only",
            )
        extra = []
        for k, extent in enumerate(input.shape[-count:]):
            smallest = (
                (extent - 1) * self.stride[k]
                - 2 * self.padding[k]  # type: ignore[operator]
                + self.dilation[k] * (self.kernel_size[k] - 1)
                + 1
            )
            extra.append(wanted[k] - smallest)
            if not 0 <= extra[-1] < self.stride[k]:
                raise ArgumentError(
                    f"{type(self).__name__}: requested output size {list(wanted)} is impossible: "
                    f"dimension {k} can have sizes {smallest} to "
                    f"{smallest + self.stride[k] - 1} for input {list(input.shape)}",
                    fix="choose a size in that range",
                )
        return tuple(extra)


class ConvTranspose1d(_Transposed):
    """Transposed convolution of (N, C, L).

    The result is (N, out_channels, L'); the length follows the formula of `ConvTranspose2d`.

    >>> nn.ConvTranspose1d(8, 3, 4, stride=2, padding=1)(metaop.ones(1, 8, 16)).shape
    metaop.Size([1, 3, 32])
    """

    dimensions = 1
    convolve = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_Transposed):
    """Transposed convolution of (N, C, H, W).

    The result is (N, out_channels, H', W'), with `H' = (H - 1) · stride - 2 · padding +
    dilation · (kernel_size - 1) + output_padding + 1`, and W' likewise.

    >>> nn.ConvTranspose2d(8, 3, 4, stride=2, padding=1)(metaop.ones(1, 8, 16, 16)).shape
    metaop.Size([1, 3, 32, 32])
    """

    dimensions = 2
    convolve = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_Transposed):
    """Transposed convolution of (N, C, D, H, W).

    The weight is (in_channels, out_channels // groups, *kernel_size). The result is
    (N, out_channels, D', H', W'), with
    `D' = (D - 1) · stride - 2 · padding + dilation · (kernel_size - 1) + output_padding + 1`.

    >>> nn.ConvTranspose3d(4, 2, 2, stride=2)(metaop.randn(1, 4, 3, 3, 3)).shape
    metaop.Size([1, 2, 6, 6, 6])
    """

    dimensions = 3
    convolve = staticmethod(F.conv_transpose3d)
