"""Pooling over windows, and global pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop.nn import functional as F
from metaop.onnx.operators.convolution import around, padded
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import Node, operator
from metaop.onnx.values import Host, integers
from metaop.tensor.core import Tensor

Sizes = Sequence[int]
_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _widths(
    x: Tensor,
    kernel: Sizes,
    strides: Sizes,
    dilations: Sizes,
    auto_pad: str,
    pads: Sizes | None,
    ceil_mode: int,
) -> tuple[list[int], list[int], list[int]]:
    """The padding before and after, and the extra elements that the last window may need."""
    extents = shape_of(x)[2:]
    before, after = around(auto_pad, pads, extents, kernel, strides, dilations)
    more = [0] * len(kernel)
    if ceil_mode:
        for k, extent in enumerate(extents):
            whole = extent + before[k] + after[k]
            reach = (kernel[k] - 1) * dilations[k] + 1
            outputs = -(-(whole - reach) // strides[k]) + 1
            # A window that starts in the padding after the image does not count.
            if (outputs - 1) * strides[k] >= extent + before[k]:
                outputs -= 1
            more[k] = max(0, (outputs - 1) * strides[k] + reach - whole)
    return before, after, more


def _lowest(x: Tensor) -> Any:
    return -math.inf if x.dtype.kind == "float" else x.dtype.lowest


@operator("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Sizes,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sizes | None = None,
    pads: Sizes | None = None,
    storage_order: int = 0,
    strides: Sizes | None = None,
    node: Node,
) -> Any:
    """Max pooling; the second result is the indices in the whole tensor."""
    spatial = len(kernel_shape)
    stride, dilation = strides or [1] * spatial, dilations or [1] * spatial
    before, after, more = _widths(x, kernel_shape, stride, dilation, auto_pad, pads, ceil_mode)
    after = [a + m for a, m in zip(after, more)]
    extents = shape_of(x)[2:]
    pool = _MAX[spatial]
    fits = all(b <= k // 2 for b, k in zip(before, kernel_shape))
    if before == after and fits and not node.wants(1):
        return pool(x, tuple(kernel_shape), tuple(stride), tuple(before), tuple(dilation))
    wide = padded(x, before, after, _lowest(x))
    options = (tuple(kernel_shape), tuple(stride), 0, tuple(dilation))
    if not node.wants(1):
        return pool(wide, *options)
    found, places = pool(wide, *options, return_indices=True)
    return found, _in_the_whole(places, x, before, shape_of(wide)[2:], extents, storage_order)


def _in_the_whole(
    places: Tensor, x: Tensor, before: Sizes, wide: Sizes, extents: Sizes, storage_order: int
) -> Tensor:
    """Positions in padded images as positions in a whole tensor."""
    coordinates = []
    rest: Any = places
    for extent, first in zip(reversed(wide), reversed(before)):
        coordinates.append(metaop.remainder(rest, extent) - first)
        rest = metaop.div(rest, extent, rounding_mode="floor")
    coordinates.reverse()
    sizes = list(extents)
    if storage_order:
        coordinates.reverse()
        sizes.reverse()
    flat: Any = coordinates[0]
    for coordinate, extent in zip(coordinates[1:], sizes[1:]):
        flat = flat * extent + coordinate
    n, c = shape_of(x)[:2]
    images = metaop.arange(n * c).reshape([n, c] + [1] * len(sizes)) * int(np.prod(sizes))
    return (flat + images.to(device=flat.device)).to(metaop.int64)


def _ones_like_image(x: Tensor) -> Tensor:
    return metaop.ones((1, 1, *shape_of(x)[2:]), dtype=x.dtype, device=x.device)


def _window_sums(x: Tensor, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Tensor:
    """Sums over windows: a convolution of each channel with ones, or a mean times a count."""
    spatial = len(kernel)
    if all(d == 1 for d in dilation):
        return _AVERAGE[spatial](x, tuple(kernel), tuple(stride)) * int(np.prod(kernel))
    n, c = shape_of(x)[:2]
    run = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[spatial]
    ones = metaop.ones((1, 1, *kernel), dtype=x.dtype, device=x.device)
    flat = x.reshape((n * c, 1, *shape_of(x)[2:]))
    found = run(flat, ones, None, tuple(stride), 0, tuple(dilation))
    return found.reshape((n, c, *shape_of(found)[2:]))


@operator("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Sizes,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Tensor:
    """Average pooling over pixels of the image, optionally including padding."""
    spatial = len(kernel_shape)
    stride, dilation = strides or [1] * spatial, dilations or [1] * spatial
    before, after, more = _widths(x, kernel_shape, stride, dilation, auto_pad, pads, ceil_mode)
    if before == after and not any(more) and all(d == 1 for d in dilation):
        if all(b <= k // 2 for b, k in zip(before, kernel_shape)):
            include = bool(count_include_pad) or not any(before)
            run = _AVERAGE[spatial]
            return run(x, tuple(kernel_shape), tuple(stride), tuple(before), False, include)
    whole = [a + m for a, m in zip(after, more)]
    total = _window_sums(padded(x, before, whole), kernel_shape, stride, dilation)
    counted = _ones_like_image(x)
    if count_include_pad:
        counted = padded(padded(counted, before, after, 1.0), [0] * spatial, more)
    else:
        counted = padded(counted, before, whole)
    return total / metaop.round(_window_sums(counted, kernel_shape, stride, dilation))


@operator("LpPool")
def power_pool(
    x: Tensor,
    *,
    kernel_shape: Sizes,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sizes | None = None,
    p: int = 2,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Tensor:
    """The norm of windows."""
    spatial = len(kernel_shape)
    stride, dilation = strides or [1] * spatial, dilations or [1] * spatial
    before, after, more = _widths(x, kernel_shape, stride, dilation, auto_pad, pads, ceil_mode)
    powers = padded(metaop.abs(x) ** p, before, [a + m for a, m in zip(after, more)])
    return _window_sums(powers, kernel_shape, stride, dilation) ** (1 / p)


def _spatial(x: Tensor) -> list[int]:
    return list(range(2, len(x.shape)))


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    """The mean of each channel."""
    return metaop.mean(x, _spatial(x), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    """The largest element of each channel."""
    return metaop.amax(x, _spatial(x), keepdim=True)


@operator("GlobalLpPool")
def global_power_pool(x: Tensor, *, p: int = 2) -> Tensor:
    """The norm of each channel."""
    return metaop.sum(metaop.abs(x) ** p, _spatial(x), keepdim=True) ** (1 / p)


@operator("MaxUnpool")
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Host | None = None,
    *,
    kernel_shape: Sizes,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Tensor:
    """Writes elements back to where max pooling found them.

    The indices refer to the result size that the pool implies, even if a larger one is requested.
    """
    spatial = len(kernel_shape)
    stride = strides or [1] * spatial
    widths = pads or [0] * (2 * spatial)
    implied = [
        (n - 1) * s + k - widths[i] - widths[i + spatial]
        for i, (n, s, k) in enumerate(zip(shape_of(x)[2:], stride, kernel_shape))
    ]
    inferred = (*shape_of(x)[:2], *implied)
    flat = metaop.zeros((int(np.prod(inferred)),), dtype=x.dtype, device=x.device)
    found = metaop.scatter(flat, 0, indices.reshape((-1,)).to(metaop.int64), x.reshape((-1,)))
    found = found.reshape(inferred)
    if output_shape is None:
        return found
    wanted = integers(output_shape)
    return padded(found, [0] * spatial, [w - n for w, n in zip(wanted[2:], implied)])
