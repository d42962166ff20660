"""Affine quantisation: real values as integers with a scale and a zero point.

There is no quantised dtype. Quantised values are tensors of int8 or uint8, and their owner keeps
the scale and the zero point: `real = (quantised - zero_point) * scale`.
"""

from __future__ import annotations

import numpy as np

from metaop.errors import ArgumentError, DTypeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.pointwise import round
from metaop.tensor.functions.selection import clamp, where
from metaop.unified_graph.dtype import DType, float32, float64, int8, uint8

# A scale or a zero point: one per tensor, or one per channel.
Parameter = Tensor | float | int


def limits_of(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest value of `dtype`, which must be int8 or uint8."""
    if dtype not in (int8, uint8):
        raise DTypeError(f"quantised values cannot be {dtype.name}", fix="use int8 or uint8")
    found = np.iinfo(dtype.numpy)
    return int(found.min), int(found.max)


def quantize_per_tensor(
    input: Tensor, scale: Parameter, zero_point: Parameter, dtype: DType
) -> Tensor:
    """`round(input / scale) + zero_point`, clamped to the range of `dtype` and converted to it.

    PyTorch's quantised tensor returns the same from `int_repr()`.

    Example:
        quantize_per_tensor(x, 0.1, 128, metaop.uint8)
    """
    return _rounded(input, scale, zero_point, *limits_of(dtype)).to(dtype)


def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: DType
) -> Tensor:
    """`quantize_per_tensor` with a scale and a zero point per channel, that is per index of `axis`.

    Floating-point zero points are added before rounding.
    """
    scales, zero_points = (along(x, input.ndim, axis) for x in (scales, zero_points))
    return _rounded(input, scales, zero_points, *limits_of(dtype)).to(dtype)


def dequantize(
    values: Tensor, scale: Parameter, zero_point: Parameter, axis: int | None = None
) -> Tensor:
    """The real values of quantised `values`, in float32.

    Scale and zero point apply to the whole tensor, or to one index of `axis` each.
    """
    if axis is not None:
        if not (isinstance(scale, Tensor) and isinstance(zero_point, Tensor)):
            raise ArgumentError(
                "dequantize: axis needs a tensor of scales and a tensor of zero points",
                fix="omit axis for a single scale",
            )
        scale, zero_point = (along(x, values.ndim, axis) for x in (scale, zero_point))
    return (values.to(float32) - _float(zero_point)) * _float(scale)


def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Parameter, zero_point: Parameter, quant_min: int, quant_max: int
) -> Tensor:
    """Quantises `input` to `quant_min` … `quant_max` and dequantises it; the shape stays the same.

    The gradient passes straight through where the quantised value is within these limits, and is
    zero elsewhere. Scale and zero point get no gradient.

    >>> metaop.fake_quantize_per_tensor_affine(metaop.tensor([0.26, 9.0]), 0.5, 0, -4, 3)
    tensor([0.5000, 1.5000])
    """
    return _faked(input, scale, zero_point, quant_min, quant_max)


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """`fake_quantize_per_tensor_affine` with a scale and a zero point per channel along `axis`.

    Raises ArgumentError unless their number is the size of that dimension.

    >>> scales, zeros = metaop.tensor([0.5, 2.0]), metaop.zeros(2, dtype=metaop.int32)
    >>> x = metaop.tensor([[0.26], [3.1]])
    >>> metaop.fake_quantize_per_channel_affine(x, scales, zeros, 0, -4, 3)
    tensor([[0.5000],
            [4.0000]])
    """
    channels = input.shape[axis]
    for name, values in (("scale", scale), ("zero_point", zero_point)):
        if tuple(values.shape) != (channels,):
            raise ArgumentError(
                f"fake_quantize_per_channel_affine: {name} {list(values.shape)} must have one "
                f"element for each of {channels} channels along axis {axis}",
                fix="pass one per channel",
            )
    scale, zero_point = (along(x, input.ndim, axis) for x in (scale, zero_point))
    return _faked(input, scale, zero_point, quant_min, quant_max)


def along(values: Tensor, ndim: int, axis: int) -> Tensor:
    """A vector reshaped to broadcast along `axis` of tensors with `ndim` dimensions."""
    axis %= ndim
    return values.reshape([-1 if k == axis else 1 for k in range(ndim)])


def _faked(input: Tensor, scale: Parameter, zero_point: Parameter, low: int, high: int) -> Tensor:
    if low > high:
        raise ArgumentError(
            f"fake_quantize: quant_min {low} must not be greater than quant_max {high}",
            fix="swap them",
        )
    constant = input.detach()
    quantised = _round_unclamped(constant, scale, zero_point)
    inside = (quantised >= low) & (quantised <= high)
    found = (clamp(quantised, low, high) - _float(zero_point)) * _float(scale)
    # The straight-through gradient: passed - passed.detach() is 0, with the gradient of input.
    passed = where(inside, input, 0.0)
    return (found + (passed - passed.detach())).to(input.dtype)


def _rounded(input: Tensor, scale: Parameter, zero_point: Parameter, low: int, high: int) -> Tensor:
    return clamp(_round_unclamped(input.detach(), scale, zero_point), low, high)


def _round_unclamped(input: Tensor, scale: Parameter, zero_point: Parameter) -> Tensor:
    """`round(input / scale) + zero_point` without the limits of a dtype.

    It multiplies by the reciprocal of the scale, because PyTorch does.
    """
    if input.dtype.kind != "float":
        raise DTypeError(
            f"only floats can be quantised, got {input.dtype.name}", fix="convert with .float()"
        )
    zero = _float(zero_point)
    real = input if input.dtype is float64 else input.to(float32)
    units = real * (1.0 / _float(scale))
    if isinstance(zero_point, Tensor) and zero_point.dtype.kind == "float":
        return round(units + zero)
    return round(units) + zero


def _float(value: Parameter) -> Tensor | float:
    """A scale or a zero point in float32."""
    return value.to(float32) if isinstance(value, Tensor) else float(np.float32(value))
