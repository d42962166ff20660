"""Convolutions."""

from __future__ import annotations

import math
from typing import Any

import metaop
from metaop.errors import UnsupportedError
from metaop.nn import functional as F
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import operator
from metaop.onnx.windows import SAME, Sizes, halves, padded, window
from metaop.tensor.core import Tensor

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@operator("Conv")
def convolution(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sizes | None = None,
    group: int = 1,
    kernel_shape: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Tensor:
    """Convolution over one to three spatial dimensions."""
    spatial = len(x.shape) - 2
    kernel = kernel_shape or shape_of(w)[2:]
    at = window(shape_of(x)[2:], kernel, strides, dilations, pads, auto_pad)
    padding = at.before
    if padding != at.after:
        x, padding = padded(x, padding, at.after), [0] * spatial
    run = _of(_CONV, spatial, "Conv")
    return run(x, w, b, at.stride, tuple(padding), at.dilation, group)


def _of(table: dict[int, Any], spatial: int, name: str) -> Any:
    if spatial not in table:
        raise UnsupportedError(f"{name} over {spatial} spatial dimensions", fix="use 1 to 3")
    return table[spatial]


@operator("ConvTranspose")
def transposed_convolution(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sizes | None = None,
    group: int = 1,
    kernel_shape: Sizes | None = None,
    output_padding: Sizes | None = None,
    output_shape: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Tensor:
    """Transposed convolution: computes the unpadded result, then crops its borders."""
    spatial = len(x.shape) - 2
    kernel = kernel_shape or shape_of(w)[2:]
    _, stride, dilation, before, after, _ = window(
        [0] * spatial, kernel, strides, dilations, pads, auto_pad
    )
    extra = list(output_padding or [0] * spatial)
    full = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(shape_of(x)[2:], stride, kernel, dilation)
    ]
    if output_shape is not None or auto_pad in SAME:
        wanted = output_shape or [n * s for n, s in zip(shape_of(x)[2:], stride)]
        sizes = zip(full, extra, list(wanted)[-spatial:])
        before, after = halves([have + more - extent for have, more, extent in sizes], auto_pad)
    run = _of(_TRANSPOSED, spatial, "ConvTranspose")
    if (
        before == after
        and min(before) >= 0
        and all(e < max(s, d) for e, s, d in zip(extra, stride, dilation))
    ):
        return run(x, w, b, stride, tuple(before), tuple(extra), group, dilation)
    found = run(x, w, b, stride, 0, 0, group, dilation)
    # Beyond the last product there is only the bias.
    cut = [e - a for e, a in zip(extra, after)]
    if b is None or all(c <= 0 for c in cut):
        return padded(found, [-n for n in before], cut)
    rest = run(x, w, None, stride, 0, 0, group, dilation)
    return padded(rest, [-n for n in before], cut) + b.reshape([1, -1] + [1] * spatial)


@operator("ConvInteger")
def convolution_of_integers(
    x: Tensor,
    w: Tensor,
    x_zero_point: Tensor | None = None,
    w_zero_point: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Convolution of small integers, exact in float64."""
    spatial = [1] * (len(x.shape) - 2)
    wide, kernel = x.to(metaop.float64), w.to(metaop.float64)
    if x_zero_point is not None:
        wide = wide - x_zero_point.to(metaop.float64)
    if w_zero_point is not None:
        zero = w_zero_point.to(metaop.float64)
        kernel = kernel - zero.reshape([-1, 1, *spatial] if len(zero.shape) else [])
    return convolution(wide, kernel, **options).to(metaop.int32)


@operator("DeformConv")
def deformable_convolution(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: Sizes = (1, 1),
    group: int = 1,
    kernel_shape: Sizes | None = None,
    offset_group: int = 1,
    pads: Sizes = (0, 0, 0, 0),
    strides: Sizes = (1, 1),
) -> Tensor:
    """Deformable convolution in two dimensions: offsets move the taps."""
    from metaop.vision.ops import deform_conv2d

    if len(x.shape) != 4:
        raise UnsupportedError("DeformConv over other than 2 spatial dimensions")
    before, after = list(pads[:2]), list(pads[2:])
    if before != after:
        # Offsets are relative to the padded border.
        x, before = padded(x, before, after), [0, 0]
    step, gap = (int(strides[0]), int(strides[1])), (int(dilations[0]), int(dilations[1]))
    padding = (before[0], before[1])
    return deform_conv2d(x, offset, w, b, stride=step, padding=padding, dilation=gap, mask=mask)


@operator("Col2Im")
def columns_to_image(
    x: Tensor,
    image_shape: Any,
    block_shape: Any,
    *,
    dilations: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Tensor:
    """Sums overlapping windows, over any number of spatial dimensions."""
    from metaop.onnx.values import integers

    image, block = integers(image_shape), integers(block_shape)
    _, stride, dilation, before, after, _ = window(image, block, strides, dilations, pads)
    # A transposed convolution with a one-hot kernel puts each column where its window was.
    taps = math.prod(block)
    steps = [
        (n + b + a - d * (k - 1) - 1) // s + 1
        for n, b, a, d, k, s in zip(image, before, after, dilation, block, stride)
    ]
    n, rows = shape_of(x)[:2]
    channels = rows // taps
    parts = x.reshape((n * channels, taps, *steps))
    units = metaop.eye(taps, dtype=x.dtype).reshape((taps, 1, *block))
    run = _of(_TRANSPOSED, len(image), "Col2Im")
    found = run(parts, units, None, stride, 0, 0, 1, dilation)
    whole = [a + b + n for a, b, n in zip(before, after, image)]
    grown = [w - f for w, f in zip(whole, shape_of(found)[2:])]
    found = padded(found, [-b for b in before], [g - a for g, a in zip(grown, after)])
    return found.reshape((n, channels, *image))
