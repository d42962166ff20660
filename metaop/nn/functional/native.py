"""Functions that PyTorch has under the names of its C++ operators, in its main module."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.errors import ArgumentError, ShapeError
from metaop.nn.functional.vision import grid_sample
from metaop.nn.functional.vision import pad as pad_dimensions
from metaop.tensor.core import Tensor

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`pad` with a constant: numbers of elements before and after, the last dimension first."""
    return pad_dimensions(input, pad, "constant", float(value))


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sample` with numbers for the modes.

    Interpolation is 0 (bilinear), 1 (nearest) or 2 (bicubic); padding 0 (zeros), 1 (border) or
    2 (reflection).
    """
    if not 0 <= interpolation_mode < len(_MODES) or not 0 <= padding_mode < len(_PADDINGS):
        raise ArgumentError(
            f"grid_sampler: no modes have the numbers {interpolation_mode} and {padding_mode}",
            fix="both are 0, 1 or 2",
        )
    modes = _MODES[interpolation_mode], _PADDINGS[padding_mode]
    return grid_sample(input, grid, *modes, align_corners)


def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sampler` of pictures (N, C, H, W)."""
    _check_dimensions("grid_sampler_2d", input, 4)
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sampler` of volumes (N, C, D, H, W)."""
    _check_dimensions("grid_sampler_3d", input, 5)
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def _check_dimensions(name: str, input: Tensor, wanted: int) -> None:
    if input.ndim != wanted:
        raise ShapeError(
            f"{name}: expected {wanted}D input, but got input with sizes {list(input.shape)}",
            fix="call grid_sampler, which takes both",
        )
