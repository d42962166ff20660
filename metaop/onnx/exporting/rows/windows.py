"""Convolutions, pooling and other windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.onnx.exporting.rows.base import Operands, row
from metaop.operators import (
    convolution,
    interpolation,
    pooling,
    sampling,
)


def _with_batch(o: Operands, spatial: int) -> str:
    return o.name(0) if o.ndim == spatial + 2 else o.w.unsqueeze(o.name(0), [0])


def _without_batch(o: Operands, name: str, spatial: int) -> str:
    return name if o.ndim == spatial + 2 else o.w.squeeze(name, [0])


@row(convolution.convolution)
def _convolution(o: Operands) -> str:
    stride, before, after, dilation, groups = o.attributes
    spatial = len(stride)
    name = o.w.node(
        "Conv", _with_batch(o, spatial), o.name(1), o.names[2], dilations=list(dilation),
        group=groups, kernel_shape=list(o.type(1).shape[2:]), pads=[*before, *after],
        strides=list(stride),
    )  # fmt: skip
    return _without_batch(o, name, spatial)


@row(convolution.transposed_convolution)
def _transposed_convolution(o: Operands) -> str:
    stride, pads, extra, dilation, groups = o.attributes
    spatial = len(stride)
    name = o.w.node(
        "ConvTranspose", _with_batch(o, spatial), o.name(1), o.names[2], dilations=list(dilation),
        group=groups, kernel_shape=list(o.type(1).shape[2:]), output_padding=list(extra),
        pads=[*pads, *pads], strides=list(stride),
    )  # fmt: skip
    return _without_batch(o, name, spatial)


@row(pooling.max_pool)
def _max_pool(o: Operands) -> str:
    kernel, stride, pads, dilation, ceil_mode = o.attributes
    spatial = len(kernel)
    name = o.w.node(
        "MaxPool", _with_batch(o, spatial), kernel_shape=list(kernel), strides=list(stride),
        pads=[*pads, *pads], dilations=list(dilation), ceil_mode=int(ceil_mode),
    )  # fmt: skip
    return _without_batch(o, name, spatial)


@row(pooling.average_pool)
def _average_pool(o: Operands) -> str | None:
    kernel, stride, pads, ceil_mode, include, divisor = o.attributes
    spatial = len(kernel)
    # Runtimes differ in what a last partial window counts.
    if divisor is not None or (ceil_mode and include and any(pads)):
        return None
    name = o.w.node(
        "AveragePool", _with_batch(o, spatial), kernel_shape=list(kernel), strides=list(stride),
        pads=[*pads, *pads], ceil_mode=int(ceil_mode), count_include_pad=int(include),
    )  # fmt: skip
    return _without_batch(o, name, spatial)


@row(pooling.adaptive_average_pool)
def _adaptive_average_pool(o: Operands) -> str | None:
    output = o.attributes[0]
    spatial = len(output)
    if all(one == 1 for one in output):
        axes = list(range(o.ndim - spatial, o.ndim))
        return o.w.reduce("ReduceMean", o.name(0), axes, True)
    extents = o.type(0).shape[-spatial:]
    if not all(isinstance(n, int) and n % out == 0 for n, out in zip(extents, output)):
        return None
    size = [n // out for n, out in zip(extents, output)]
    name = o.w.node("AveragePool", _with_batch(o, spatial), kernel_shape=size, strides=size)
    return _without_batch(o, name, spatial)


@row(interpolation.nearest)
def _nearest(o: Operands) -> str | None:
    output, _, exact = o.attributes
    return None if exact else _resized(o, output, "nearest", "asymmetric", nearest_mode="floor")


@row(interpolation.interpolate)
def _interpolate(o: Operands) -> str | None:
    output, scales, corners, kind, antialias = o.attributes
    extents = o.type(0).shape[-len(output) :]
    if antialias or kind != "linear":
        return None
    # A given factor may differ from the ratio of the sizes.
    for extent, size, scale in zip(extents, output, scales):
        if isinstance(extent, int) and isinstance(size, int) and isinstance(scale, float):
            if abs(scale - extent / size) > 1e-6:
                return None
    mode = "align_corners" if corners else "half_pixel"
    return _resized(o, output, "linear", mode)


def _resized(
    o: Operands, output: Sequence[Any], mode: str, coordinates: str, **options: Any
) -> str:
    lead = list(o.type(0).shape[: o.ndim - len(output)])
    return o.w.node(
        "Resize", o.name(0), None, None, o.w.integers([*lead, *output]), mode=mode,
        coordinate_transformation_mode=coordinates, **options,
    )  # fmt: skip


@row(sampling.pixel_shuffle)
def _pixel_shuffle(o: Operands) -> str | None:
    if o.ndim != 4:
        return None
    return o.w.node("DepthToSpace", o.name(0), blocksize=o.attributes[0], mode="CRD")
