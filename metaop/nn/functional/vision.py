"""Padding, resizing, sampling and shuffling of images and volumes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from metaop.errors import ArgumentError, ArgumentTypeError, ShapeError, UnsupportedError
from metaop.nn.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)
from metaop.operators import interpolation, padding, sampling
from metaop.tensor.casting import casts_on_cpu, in_float32
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.recording import record

Numbers = int | float | Sequence[int | float] | None

_DIMENSIONS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
_AREA_POOLS = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Pads a tensor; `pad` lists widths from the last dimension backwards: (left, right, top, …).

    mode is "constant" (filled with `value`; negative widths crop), "reflect", "replicate" or
    "circular". Reflected widths must be less than the size of the dimension.

    >>> F.pad(metaop.tensor([[1, 2, 3]]), (1, 2))
    tensor([[0, 1, 2, 3, 0, 0]])
    >>> F.pad(metaop.tensor([[1, 2, 3]]), (1, 2), mode="reflect")
    tensor([[2, 1, 2, 3, 2, 1]])
    """
    widths = tuple(pad)
    if len(widths) % 2 or len(widths) > 2 * input.ndim:
        raise ArgumentError(
            f"pad: {list(widths)} must be pairs of widths for at most {input.ndim} dimensions of "
            f"input {list(input.shape)}",
            fix="give (before, after) for the last dimension first",
        )
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise UnsupportedError(f"pad: unknown mode {mode!r}", fix="use 'constant' or 'reflect'")
    if mode != "constant" and value:
        raise ArgumentError(f"pad: mode {mode!r} takes no value", fix="leave value out")
    untouched = (0,) * (input.ndim - len(widths) // 2)
    before, after = (*untouched, *widths[-2::-2]), (*untouched, *widths[::-2])
    attributes = (before, after, mode, 0 if value is None else value)
    # PyTorch's CPU autocast lists `replication_pad` of all ranks, `reflection_pad` of 1 and 2.
    listed = mode == "replicate" or (mode == "reflect" and len(widths) < 6)
    return (_padded_in_float32 if listed else _padded)(input, attributes)


def _padded(input: Tensor, attributes: tuple[Any, ...]) -> Tensor:
    return wrap(record(padding.pad, (input.call,), attributes))


_padded_in_float32 = casts_on_cpu(in_float32)(_padded)


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: Numbers = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resizes the last dimensions of (N, C, *extents) to `size` or by `scale_factor`.

    mode: "nearest", "nearest-exact", "linear" (3-D input), "bilinear", "bicubic" (4-D), "trilinear"
    (5-D) or "area". `antialias` (bilinear, bicubic) averages when shrinking.

    >>> F.interpolate(metaop.tensor([[[0.0, 4.0]]]), size=4, mode="linear")
    tensor([[[0., 1., 3., 4.]]])
    """
    spatial = input.ndim - 2
    _check_mode(input, mode, align_corners, antialias)
    output, factors = _output(input, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return _AREA_POOLS[spatial](input, output)
    corners = bool(align_corners)
    scales = tuple(1.0 / factor if factor and not corners else None for factor in factors)
    if mode in ("nearest", "nearest-exact"):
        attributes: tuple = (output, scales, mode == "nearest-exact")
        return wrap(record(interpolation.nearest, (input.call,), attributes))
    kernel = "cubic" if mode == "bicubic" else "linear"
    attributes = (output, scales, corners, kernel, antialias)
    return wrap(record(interpolation.interpolate, (input.call,), attributes))


def _check_mode(input: Tensor, mode: str, align_corners: bool | None, antialias: bool) -> None:
    if mode not in (*_DIMENSIONS, "nearest", "nearest-exact", "area"):
        raise UnsupportedError(f"interpolate: unknown mode {mode!r}", fix="use 'bilinear'")
    spatial = input.ndim - 2
    if spatial not in (1, 2, 3) or _DIMENSIONS.get(mode, spatial) != spatial:
        raise UnsupportedError(
            f"interpolate: mode {mode!r} does not take input {list(input.shape)}",
            fix="linear takes 3-D input, bilinear and bicubic 4-D, trilinear 5-D",
        )
    if mode not in _DIMENSIONS and align_corners is not None:
        raise ArgumentError(
            f"interpolate: align_corners does not apply to mode {mode!r}", fix="leave it out"
        )
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError(
            f"interpolate: antialias does not apply to mode {mode!r}", fix="leave it out"
        )


def _output(
    input: Tensor,
    size: int | Sequence[int] | None,
    scale_factor: Numbers,
    recompute: bool | None,
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """The output's extents, and the scale factors to use (None: from the extents)."""
    spatial = input.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ArgumentError(
            "interpolate: exactly one of size and scale_factor must be given", fix="drop one"
        )
    given = size if size is not None else scale_factor
    listed = tuple(given) if isinstance(given, (tuple, list)) else (given,) * spatial
    if len(listed) != spatial:
        raise ArgumentError(
            f"interpolate: {given!r} must have {spatial} elements for input {list(input.shape)}",
            fix="give one per spatial dimension, or one number",
        )
    if size is not None:
        if recompute:
            raise ArgumentError(
                "interpolate: recompute_scale_factor needs scale_factor", fix="leave it out"
            )
        output = tuple(int(n) for n in listed)  # type: ignore[arg-type]
        factors: tuple[float | None, ...] = (None,) * spatial
    else:
        factors = tuple(float(f) for f in listed)  # type: ignore[arg-type]
        output = tuple(math.floor(n * f) for n, f in zip(input.shape[2:], factors))
        if recompute:
            factors = (None,) * spatial
    if min(output) < 1 or 0 in input.shape[2:]:
        raise ShapeError(
            f"interpolate: input and output extents must be positive, got input "
            f"{list(input.shape)} and output {list(output)}",
            fix="choose a larger size or scale_factor",
        )
    return output, factors


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: Numbers = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under its old name, for inputs (N, C, *extents).

    >>> F.upsample(metaop.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: Numbers = None
) -> Tensor:
    """`interpolate` with mode "nearest", for inputs (N, C, *extents).

    >>> F.upsample_nearest(metaop.tensor([[[1.0, 2.0]]]), size=4)
    tensor([[[1., 1., 2., 2.]]])
    """
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: Numbers = None
) -> Tensor:
    """`interpolate` with mode "bilinear" and aligned corners, for inputs (N, C, H, W).

    >>> F.upsample_bilinear(metaop.tensor([[[[0.0, 2.0]]]]), size=(1, 3))
    tensor([[[[0., 1., 2.]]]])
    """
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Samples the input (N, C, *extents) at the positions in `grid` (N, *output, 2 or 3).

    Positions are x, y(, z) from -1 to 1. mode is "bilinear", "nearest" or "bicubic" (2-D);
    padding_mode "zeros", "border" or "reflection". With `align_corners`, -1 and 1 are the centres
    of the corner elements, else their outer edges. The result is (N, C, *output).

    >>> grid = metaop.tensor([[[[0.0, 0.0], [1.0, 0.0]]]])
    >>> F.grid_sample(metaop.tensor([[[[1.0, 3.0]]]]), grid, align_corners=True)
    tensor([[[[2., 3.]]]])
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ArgumentError(f"grid_sample: unknown mode {mode!r}", fix="use 'bilinear'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ArgumentError(
            f"grid_sample: unknown padding_mode {padding_mode!r}", fix="use 'zeros'"
        )
    _warn_of_corners("grid_sample", align_corners)
    attributes = (mode, padding_mode, bool(align_corners))
    return wrap(record(sampling.grid_sample, (input.call, grid.call), attributes))


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The sampling grid of affine maps (N, D, D + 1) for an output of `size` (N, C, *extents).

    The result is (N, *extents, D), a `grid` for `grid_sample`; D is 2 or 3.

    >>> F.affine_grid(metaop.eye(2, 3)[None], (1, 1, 1, 2), align_corners=True)
    tensor([[[[-1.,  0.],
              [ 1.,  0.]]]])
    """
    if theta.dtype.kind != "float":
        raise ArgumentTypeError(
            f"affine_grid: theta must be floating point, got {theta.dtype.name}",
            fix="convert it with .float()",
        )
    _warn_of_corners("affine_grid", align_corners)
    attributes = (tuple(size), bool(align_corners))
    return wrap(record(sampling.affine_grid, (theta.call,), attributes))


def _warn_of_corners(operator: str, align_corners: bool | None) -> None:
    if align_corners is None:
        warnings.warn(f"{operator}: align_corners is False unless given", stacklevel=3)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Moves channels into space: (…, C * r**2, H, W) -> (…, C, H * r, W * r).

    r is `upscale_factor`. From Shi et al., "Real-time single image and video super-resolution"
    (2016).

    >>> F.pixel_shuffle(metaop.arange(4).reshape(4, 1, 1), 2)
    tensor([[[0, 1],
             [2, 3]]])
    """
    return wrap(record(sampling.pixel_shuffle, (input.call,), (upscale_factor,)))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Moves space into channels: (…, C, H * r, W * r) -> (…, C * r**2, H, W).

    r is `downscale_factor`, which must divide both extents. The inverse of `pixel_shuffle`.

    >>> F.pixel_unshuffle(metaop.arange(4).reshape(1, 2, 2), 2).flatten()
    tensor([0, 1, 2, 3])
    """
    return wrap(record(sampling.pixel_unshuffle, (input.call,), (downscale_factor,)))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleaves the channels (dimension 1) of `groups` groups; the shape is unchanged.

    From Zhang et al., "ShuffleNet" (2018).

    >>> F.channel_shuffle(metaop.arange(4).reshape(1, 4, 1), 2).flatten()
    tensor([0, 2, 1, 3])
    """
    return wrap(record(sampling.channel_shuffle, (input.call,), (groups,)))


native_channel_shuffle = channel_shuffle
