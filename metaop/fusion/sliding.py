"""Windows that slide: contractions whose right factor sees a column and a tap as one position."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metaop.fusion.kernel import Indices, box_axes
from metaop.fusion.recognise import Contraction, axes_used
from metaop.unified_graph import index_expr
from metaop.unified_graph.node import Node, Shape

TAPS = 3


class Slide(NamedTuple):
    """A column axis and a reduced axis of `TAPS` on whose sum, or difference, the factor depends.

    The position of a window is `column + tap` with `sign` 1, `column - tap + TAPS - 1` with -1;
    both count from 0 to the extent of the column + `TAPS` - 2.
    """

    column: int
    tap: int
    sign: int


def slides(
    contraction: Contraction, shape: Shape, has_buffer: Callable[[Node], bool]
) -> tuple[Slide, ...]:
    """The windows that slide over the right factor with stride 1, one for each column at most.

    Convolutions and their gradients by the input are of this form, of any rank and padding.
    """
    found: list[Slide] = []
    for column in contraction.columns:
        for tap in contraction.depth:
            if shape[tap] != TAPS or any(tap == slide.tap for slide in found):
                continue
            sign = _sign(contraction.right, column, tap, box_axes(shape), has_buffer)
            if sign:
                found.append(Slide(column, tap, sign))
                break
    return tuple(found)


def _sign(
    factor: Node, column: int, tap: int, box: Indices, has_buffer: Callable[[Node], bool]
) -> int:
    """How a tap moves the window; 0 when the factor depends on the tap in another way too."""
    length = int(box[column].high) + TAPS
    # Where the window stands, under the name of an axis behind the box.
    position = index_expr.axis(f"i{len(box)}", length)
    for sign in (1, -1):
        at = list(box)
        at[column] = position - box[tap] if sign == 1 else position + box[tap] - (TAPS - 1)
        if tap not in axes_used(factor, tuple(at), has_buffer):
            return sign
    return 0
