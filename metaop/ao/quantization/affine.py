"""Whole numbers that stand for others by a scale and a zero point, and the rounding to them.

There is no quantised element type: quantised values are tensors of int8 or uint8, and whoever holds
them holds their scale and zero point. `number = (value - zero_point) * scale`.
"""

from __future__ import annotations

import numpy as np

from metaop.errors import ArgumentError, DTypeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.pointwise import round
from metaop.tensor.functions.selection import clamp, where
from metaop.unified_graph.dtype import DType, float32, float64, int8, uint8

# A scale or a zero point: one for all elements, or one for each index of an axis.
Parameter = Tensor | float | int


def limits_of(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest number of a type that quantised values may have."""
    if dtype not in (int8, uint8):
        raise DTypeError(f"quantised values cannot be {dtype.name}", fix="use int8 or uint8")
    found = np.iinfo(dtype.numpy)
    return int(found.min), int(found.max)


def quantize_per_tensor(
    input: Tensor, scale: Parameter, zero_point: Parameter, dtype: DType
) -> Tensor:
    """`round(input / scale) + zero_point` within the limits of `dtype`, as a tensor of that type.

    It is what PyTorch's quantised tensor has as its `int_repr()`.

    Example:
        quantize_per_tensor(x, 0.1, 128, metaop.uint8)
    """
    return _rounded(input, scale, zero_point, *limits_of(dtype)).to(dtype)


def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: DType
) -> Tensor:
    """Like `quantize_per_tensor`, with a scale and a zero point for each index of `axis`.

    Zero points that are floats are added before rounding.
    """
    scales, zero_points = (along(x, input.ndim, axis) for x in (scales, zero_points))
    return _rounded(input, scales, zero_points, *limits_of(dtype)).to(dtype)


def dequantize(
    values: Tensor, scale: Parameter, zero_point: Parameter, axis: int | None = None
) -> Tensor:
    """The numbers, float32, that quantised `values` stand for.

    Scales and zero points are those of all elements, or of each index of `axis`.
    """
    if axis is not None:
        if not (isinstance(scale, Tensor) and isinstance(zero_point, Tensor)):
            raise ArgumentError(
                "dequantize: an axis needs a tensor of scales and one of zero points",
                fix="leave axis away for one scale",
            )
        scale, zero_point = (along(x, values.ndim, axis) for x in (scale, zero_point))
    return (values.to(float32) - _float(zero_point)) * _float(scale)


def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Parameter, zero_point: Parameter, quant_min: int, quant_max: int
) -> Tensor:
    """`input` rounded to what quantised values from `quant_min` to `quant_max` stand for.

    Its gradient passes where `input` is within the limits, and is zero elsewhere; scale and zero
    point have none. The shape stays.

    >>> metaop.fake_quantize_per_tensor_affine(metaop.tensor([0.26, 9.0]), 0.5, 0, -4, 3)
    tensor([0.5000, 1.5000])
    """
    return _faked(input, scale, zero_point, quant_min, quant_max)


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """`fake_quantize_per_tensor_affine` with a scale and a zero point for each index of `axis`.

    Raises ArgumentError unless there are as many as the extent of that dimension.

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
                fix="give one for each",
            )
    scale, zero_point = (along(x, input.ndim, axis) for x in (scale, zero_point))
    return _faked(input, scale, zero_point, quant_min, quant_max)


def along(values: Tensor, ndim: int, axis: int) -> Tensor:
    """A vector laid along an axis of tensors with so many dimensions."""
    axis %= ndim
    return values.reshape([-1 if k == axis else 1 for k in range(ndim)])


def _faked(input: Tensor, scale: Parameter, zero_point: Parameter, low: int, high: int) -> Tensor:
    if low > high:
        raise ArgumentError(
            f"fake_quantize: quant_min {low} must not be greater than quant_max {high}",
            fix="exchange them",
        )
    constant = input.detach()
    numbers = _moved(constant, scale, zero_point)
    inside = (numbers >= low) & (numbers <= high)
    found = (clamp(numbers, low, high) - _float(zero_point)) * _float(scale)
    # Zero, but for its gradient.
    passed = where(inside, input, 0.0)
    return (found + (passed - passed.detach())).to(input.dtype)


def _rounded(input: Tensor, scale: Parameter, zero_point: Parameter, low: int, high: int) -> Tensor:
    return clamp(_moved(input.detach(), scale, zero_point), low, high)


def _moved(input: Tensor, scale: Parameter, zero_point: Parameter) -> Tensor:
    """Numbers in units of the scale, rounded, from the zero point on.

    They are multiplied by the inverse of the scale, as PyTorch does it.
    """
    if input.dtype.kind != "float":
        raise DTypeError(
            f"only floats can be quantised, got {input.dtype.name}", fix="convert it by .float()"
        )
    zero = _float(zero_point)
    numbers = input if input.dtype is float64 else input.to(float32)
    units = numbers * (1.0 / _float(scale))
    if isinstance(zero_point, Tensor) and zero_point.dtype.kind == "float":
        return round(units + zero)
    return round(units) + zero


def _float(value: Parameter) -> Tensor | float:
    """A scale or a zero point in float32."""
    return value.to(float32) if isinstance(value, Tensor) else float(np.float32(value))
