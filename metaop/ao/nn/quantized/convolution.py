"""Convolutions of quantised values."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from metaop.ao.nn.quantized.values import QuantizedInput, observers_of
from metaop.errors import UnsupportedError
from metaop.nn import functional as F
from metaop.nn.convolution import _Convolution
from metaop.tensor.core import Tensor
from metaop.unified_graph.dtype import int32

AnyConvolution = TypeVar("AnyConvolution", bound="_QuantizedConvolution")


class _QuantizedConvolution(QuantizedInput):
    """A convolution of inputs rounded to 8 bits, with the weight in int8.

    Inputs and results are floats, (N, C, …) or (C, …); products are accumulated in int32.
    `from_float` makes it from a float convolution and takes over its settings.
    """

    dimensions: ClassVar[int]

    def __init__(self, like: _Convolution, dtype: Any) -> None:
        super().__init__()
        if like.dimensions != self.dimensions or like.transposed:
            raise UnsupportedError(
                f"{type(self).__name__} cannot be made of {type(like).__name__}",
                fix="leave it in floats",
            )
        if like.padding_mode != "zeros":
            raise UnsupportedError(
                f"{type(self).__name__}: padding_mode {like.padding_mode!r} is not quantised",
                fix="use padding_mode='zeros'",
            )
        self.in_channels, self.out_channels = like.in_channels, like.out_channels
        self.kernel_size, self.stride, self.dilation = like.kernel_size, like.stride, like.dilation
        self.padding, self.groups = like.padding, like.groups
        # In the order of `pad`: last dimension first, before and after.
        self._widths = list(like._reversed_padding_repeated_twice)
        device = like.weight.device
        self._make_weight(tuple(like.weight.shape), like.bias is not None, device)
        self._make_input(dtype, device)

    @classmethod
    def from_float(cls: type[AnyConvolution], layer: Any) -> AnyConvolution:
        """The quantised form of a prepared layer whose observers have seen data."""
        inputs, weights = observers_of(layer)
        made = cls(layer, inputs.dtype)
        made._take_weight(layer, weights)
        made._take_input(inputs)
        return made

    def forward(self, input: Tensor) -> Tensor:
        values = self._rounded(input)
        if any(self._widths):
            # Real zeros are the zero point. F.pad pads with 0, so the zero point is subtracted
            # before and added after; bytes wrap around, so nothing is lost.
            zero = self.zero_point.to(self.dtype)
            values = F.pad(values - zero, self._widths) + zero
        convolve = F.conv1d if self.dimensions == 1 else F.conv2d
        sums = convolve(
            values.to(int32),
            self.weight.to(int32),
            None,
            self.stride,
            0,
            self.dilation,
            self.groups,
        )
        found = self._in_floats(sums, self.scale, self.zero_point, -self.dimensions - 1)
        return found.to(input.dtype)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"groups={self.groups}, bias={self.bias is not None}, dtype={self.dtype}"
        )


class Conv1d(_QuantizedConvolution):
    """A convolution over one dimension, of inputs in 8 bits."""

    dimensions = 1


class Conv2d(_QuantizedConvolution):
    """A convolution over two dimensions, of inputs in 8 bits."""

    dimensions = 2
