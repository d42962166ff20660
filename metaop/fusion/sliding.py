"""Sliding windows: contractions whose right factor depends on the sum of a column and a tap."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from metaop.fusion.kernel import box_axes
from metaop.fusion.recognise import Contraction, axes_used
from metaop.unified_graph import index_expr
from metaop.unified_graph.node import Node, Shape


class Slide(NamedTuple):
    """A column axis and a reduced axis (tap) on whose sum or difference the factor depends.

    The position of a window is `column + tap` with `sign` 1, and `column - tap + (taps - 1)` with
    -1. Both run from 0 to the sum of the extents less two.
    """

    column: int
    tap: int
    sign: int


def slides(
    contraction: Contraction,
    shape: Shape,
    has_buffer: Callable[[Node], bool],
    taps: Collection[int],
    is_column: bool = False,
) -> tuple[Slide, ...]:
    """The windows that slide over the right factor with stride 1, one for each column at most.

    They have as many taps as one of `taps`. Convolutions and their gradients by the input are of
    this form, of any rank and padding. With `is_column` the columns have that extent and the
    reduced axes any: gradients by the weight.
    """
    found: list[Slide] = []
    for column in contraction.columns:
        for tap in contraction.depth:
            if not is_one_of(shape[column if is_column else tap], taps):
                continue
            if any(tap == slide.tap for slide in found):
                continue
            sign = _sign(contraction.right, column, tap, shape, has_buffer)
            if sign:
                found.append(Slide(column, tap, sign))
                break
    return tuple(found)


def is_one_of(extent: int, numbers: Collection[int]) -> bool:
    """Whether an extent is one of some numbers for all sizes."""
    return type(extent) is int and extent in numbers


def _sign(
    factor: Node, column: int, tap: int, shape: Shape, has_buffer: Callable[[Node], bool]
) -> int:
    """How a tap moves the window; 0 if the factor also depends on the tap in another way."""
    box = box_axes(shape)
    # Where the window stands, under the name of an axis behind the box.
    position = index_expr.axis(f"i{len(box)}", shape[column] + shape[tap] - 1)
    for sign in (1, -1):
        at = list(box)
        at[column] = position - box[tap] if sign == 1 else position + box[tap] - (shape[tap] - 1)
        if tap not in axes_used(factor, tuple(at), has_buffer):
            return sign
    return 0
