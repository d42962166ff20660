"""Quantisation: integers that represent numbers by a scale and a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from metaop.onnx.operators.convolution import convolution_of_integers
from metaop.onnx.operators.pointwise import converted
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import operator
from metaop.onnx.values import numpy_type, to_tensor
from metaop.tensor.core import Tensor


def _spread(value: Any, x: Any, axis: int, block_size: int) -> Any:
    """Broadcasts a scale or zero point to all elements: per tensor, per axis, or per block."""
    ndim, shape = len(x.shape), shape_of(x)
    if value is None or len(value.shape) == 0 or value.shape == (1,):
        return None if value is None else value.reshape(())
    axis %= ndim
    if (len(value.shape) == 1 and ndim > 1) or not block_size:
        return (
            value.reshape([-1 if k == axis else 1 for k in range(ndim)])
            if (len(value.shape) == 1)
            else value
        )
    if isinstance(value, Tensor):
        whole = metaop.repeat_interleave(value, block_size, axis)
        return whole.narrow(axis, 0, shape[axis])
    return np.take(np.repeat(value, block_size, axis), range(shape[axis]), axis)


def _float32(value: Any) -> Any:
    """A value as float32, whatever its type."""
    if isinstance(value, Tensor):
        return value.to(metaop.float32)
    return to_tensor(np.asarray(value).astype(np.float32))


@operator("DequantizeLinear")
def dequantised(
    x: Any,
    x_scale: Any,
    x_zero_point: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    """(x - zero point) * scale."""
    kind = numpy_type(output_dtype) if output_dtype else _kind(x_scale)
    found = _float32(x)
    zero = _spread(x_zero_point, x, axis, block_size)
    if zero is not None:
        found = found - _float32(zero)
    scale = _float32(_spread(x_scale, x, axis, block_size))
    return converted(found * scale, kind)


def _kind(value: Any) -> np.dtype:
    return value.dtype.numpy if isinstance(value, Tensor) else np.asarray(value).dtype


_WHOLE = {
    "int8": (-128, 127), "uint8": (0, 255), "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1), "int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1),
    "uint2": (0, 3), "int32": (-(1 << 31), (1 << 31) - 1),
}  # fmt: skip


@operator("QuantizeLinear")
def quantised(
    x: Any,
    y_scale: Any,
    y_zero_point: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Any:
    """round(x / scale) + zero point, within the limits of the type."""
    if y_zero_point is not None:
        kind = _kind(y_zero_point)
    else:
        kind = numpy_type(output_dtype) if output_dtype else np.dtype(np.uint8)
    scale = _spread(y_scale, x, axis, block_size)
    zero = _spread(y_zero_point, x, axis, block_size)
    ratio = _float32(x) / _float32(scale)
    if kind.name not in _WHOLE:
        found = ratio if zero is None else ratio + _float32(zero)
        return converted(found, kind, bool(saturate))
    low, high = _WHOLE[kind.name]
    whole = metaop.round(ratio)
    if zero is not None:
        whole = whole + _float32(zero)
    return converted(metaop.clamp(whole, low, high), kind)


@operator("DynamicQuantizeLinear")
def dynamically_quantised(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantises to uint8 by the range of values; scale and zero point are further results."""
    high = metaop.clamp(metaop.amax(x), min=0)
    low = metaop.clamp(metaop.amin(x), max=0)
    scale = (high - low) / 255
    safe = metaop.where(scale == 0, 1.0, scale)
    zero = metaop.clamp(metaop.round(0 - low / safe), 0, 255)
    found = metaop.clamp(metaop.round(x / safe) + zero, 0, 255)
    return found.to(metaop.uint8), scale, zero.to(metaop.uint8)


def _float64(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(metaop.float64)
    return to_tensor(np.asarray(value).astype(np.float64))


def _whole(value: Any, zero: Any, is_left: bool) -> Tensor:
    """Small integers minus their zero point; their products are exact in float64."""
    if zero is None:
        return _float64(value)
    shift = _float64(zero)
    if len(shift.shape) == 1 and is_left and shape_of(shift) != (1,):
        shift = shift.reshape((-1, 1))
    return _float64(value) - shift


@operator("MatMulInteger")
def product_of_integers(a: Any, b: Any, a_zero_point: Any = None, b_zero_point: Any = None) -> Any:
    """The product of small integers minus their zero points, as int32."""
    left, right = _whole(a, a_zero_point, True), _whole(b, b_zero_point, False)
    return metaop.matmul(left, right).to(metaop.int32)


def _requantised(total: Tensor, scale: Any, zero: Any) -> Any:
    kind = _kind(zero)
    ratio = total.to(metaop.float32) * scale
    if kind.name not in _WHOLE:
        return converted(ratio + _float32(zero), kind)
    low, high = _WHOLE[kind.name]
    return converted(metaop.clamp(metaop.round(ratio) + _float32(zero), low, high), kind)


@operator("QLinearMatMul")
def quantised_product(
    a: Any,
    a_scale: Any,
    a_zero_point: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
) -> Any:
    """A product of quantised matrices, quantised again."""
    total = metaop.matmul(_whole(a, a_zero_point, True), _whole(b, b_zero_point, False))
    left = _float32(a_scale)
    if len(left.shape) == 1 and shape_of(left) != (1,):
        left = left.reshape((-1, 1))
    return _requantised(total, left * _float32(b_scale) / _float32(y_scale), y_zero_point)


@operator("QLinearConv")
def quantised_convolution(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    b: Tensor | None = None,
    **options: Any,
) -> Any:
    """A convolution of quantised tensors, quantised again."""
    total = convolution_of_integers(x, w, x_zero_point, w_zero_point, **options)
    spatial = [1] * (len(x.shape) - 2)
    if b is not None:
        total = total + b.reshape([-1, *spatial])
    factor = x_scale * w_scale / y_scale
    if len(factor.shape) == 1 and shape_of(factor) != (1,):
        factor = factor.reshape([-1, *spatial])
    return _requantised(total, factor, y_zero_point)
