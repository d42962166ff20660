"""Functions that PyTorch exports under the names of its C++ operators, in its main module."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.errors import ArgumentError, ShapeError
from metaop.nn.functional.vision import grid_sample
from metaop.nn.functional.vision import pad as pad_dimensions
from metaop.tensor.core import Tensor

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`F.pad` with a constant; `pad` lists widths before and after, last dimension first.

    Dimensions grow by both widths; negative widths crop.

    >>> metaop.constant_pad_nd(metaop.tensor([1, 2]), (1, 1), 7)
    tensor([7, 1, 2, 7])
    """
    return pad_dimensions(input, pad, "constant", float(value))


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sample` with its modes as integers.

    Interpolation is 0 (bilinear), 1 (nearest) or 2 (bicubic); padding 0 (zeros), 1 (border) or
    2 (reflection).

    Raises ArgumentError for other numbers. The shapes are those of `F.grid_sample`.

    >>> metaop.grid_sampler(metaop.tensor([[[[1.0, 3.0]]]]), metaop.zeros(1, 1, 1, 2), 0, 0, True)
    tensor([[[[2.]]]])
    """
    if not 0 <= interpolation_mode < len(_MODES) or not 0 <= padding_mode < len(_PADDINGS):
        raise ArgumentError(
            f"grid_sampler: unknown modes {interpolation_mode} and {padding_mode}",
            fix="pass 0, 1 or 2 for both",
        )
    modes = _MODES[interpolation_mode], _PADDINGS[padding_mode]
    return grid_sample(input, grid, *modes, align_corners)


def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sampler` for images (N, C, H, W).

    Raises ShapeError for an input without four dimensions.

    >>> x = metaop.tensor([[[[1.0, 3.0]]]])
    >>> metaop.grid_sampler_2d(x, metaop.zeros(1, 1, 1, 2), 0, 0, True)
    tensor([[[[2.]]]])
    """
    _check_dimensions("grid_sampler_2d", input, 4)
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sampler` for volumes (N, C, D, H, W).

    Raises ShapeError for an input without five dimensions.

    >>> x = metaop.tensor([[[[[1.0, 3.0]]]]])
    >>> metaop.grid_sampler_3d(x, metaop.zeros(1, 1, 1, 1, 3), 0, 0, True).item()
    2.0
    """
    _check_dimensions("grid_sampler_3d", input, 5)
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def _check_dimensions(name: str, input: Tensor, wanted: int) -> None:
    if input.ndim != wanted:
        raise ShapeError(
            f"{name}: expected {wanted}D input, but got input with sizes {list(input.shape)}",
            fix="call grid_sampler, which takes both",
        )
