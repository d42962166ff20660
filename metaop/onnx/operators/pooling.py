"""Pooling over windows, and global pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import metaop
from metaop.nn import functional as F
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import Node, operator
from metaop.onnx.values import Host, integers
from metaop.onnx.windows import Sizes, Window, padded, window
from metaop.tensor.core import Tensor

_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


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
    at = window(shape_of(x)[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    pool = _MAX[len(kernel_shape)]
    if at.before == at.end and at.fits and not node.wants(1):
        return pool(x, at.kernel, at.stride, tuple(at.before), at.dilation)
    wide = padded(x, at.before, at.end, _lowest(x))
    if not node.wants(1):
        return pool(wide, at.kernel, at.stride, 0, at.dilation)
    found, places = pool(wide, at.kernel, at.stride, 0, at.dilation, return_indices=True)
    return found, _in_the_whole(places, x, at.before, shape_of(wide)[2:], storage_order)


def _in_the_whole(
    places: Tensor, x: Tensor, before: Sizes, wide: Sizes, storage_order: int
) -> Tensor:
    """Positions in padded images as positions in a whole tensor."""
    coordinates = []
    rest: Any = places
    for extent, first in zip(reversed(wide), reversed(before)):
        coordinates.append(metaop.remainder(rest, extent) - first)
        rest = metaop.div(rest, extent, rounding_mode="floor")
    coordinates.reverse()
    sizes = list(shape_of(x)[2:])
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


def _window_sums(x: Tensor, at: Window) -> Tensor:
    """Sums over windows: a convolution of each channel with ones, or a mean times a count."""
    spatial = len(at.kernel)
    if all(d == 1 for d in at.dilation):
        return _AVERAGE[spatial](x, at.kernel, at.stride) * math.prod(at.kernel)
    n, c = shape_of(x)[:2]
    run = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[spatial]
    ones = metaop.ones((1, 1, *at.kernel), dtype=x.dtype, device=x.device)
    flat = x.reshape((n * c, 1, *shape_of(x)[2:]))
    found = run(flat, ones, None, at.stride, 0, at.dilation)
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
    at = window(shape_of(x)[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    if at.before == at.after and not any(at.more) and all(d == 1 for d in at.dilation) and at.fits:
        include = bool(count_include_pad) or not any(at.before)
        return _AVERAGE[spatial](x, at.kernel, at.stride, tuple(at.before), False, include)
    total = _window_sums(padded(x, at.before, at.end), at)
    # Only padding that the node asks for counts.
    counted = padded(_ones_like_image(x), at.before, at.after, float(bool(count_include_pad)))
    counted = padded(counted, [0] * spatial, at.more)
    return total / metaop.round(_window_sums(counted, at))


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
    at = window(shape_of(x)[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return _window_sums(padded(metaop.abs(x) ** p, at.before, at.end), at) ** (1 / p)


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
    at = window(shape_of(x)[2:], kernel_shape, strides, None, pads)
    implied = [
        (n - 1) * s + k - b - a
        for n, s, k, b, a in zip(shape_of(x)[2:], at.stride, at.kernel, at.before, at.after)
    ]
    inferred = (*shape_of(x)[:2], *implied)
    flat = metaop.zeros((int(np.prod(inferred)),), dtype=x.dtype, device=x.device)
    found = metaop.scatter(flat, 0, indices.reshape((-1,)).to(metaop.int64), x.reshape((-1,)))
    found = found.reshape(inferred)
    if output_shape is None:
        return found
    wanted = integers(output_shape)
    return padded(found, [0] * spatial, [w - n for w, n in zip(wanted[2:], implied)])
