"""Windows that move over images, and the padding around the images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metaop.nn import functional as F
from metaop.tensor.core import Tensor

Sizes = Sequence[int]
SAME = ("SAME_UPPER", "SAME_LOWER")


class Window(NamedTuple):
    """A window, and the padding before and after images.

    `more` is what the last window needs behind the padding.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: list[int]
    after: list[int]
    more: list[int]

    @property
    def end(self) -> list[int]:
        """All that is added after an image."""
        return [a + m for a, m in zip(self.after, self.more)]

    @property
    def fits(self) -> bool:
        """Whether the pooling functions take the padding."""
        return all(b <= k // 2 for b, k in zip(self.before, self.kernel))


def window(
    extents: Sizes,
    kernel: Sizes,
    strides: Sizes | None,
    dilations: Sizes | None,
    pads: Sizes | None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Window:
    """The window of an operator with these attributes, over images of these extents."""
    ones, zeros = [1] * len(kernel), [0] * len(kernel)
    stride, dilation = tuple(strides or ones), tuple(dilations or ones)
    reaches = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    if auto_pad in SAME:
        sizes = zip(extents, stride, reaches)
        totals = [max(0, (-(-n // s) - 1) * s + r - n) for n, s, r in sizes]
        before, after = halves(totals, auto_pad)
    elif auto_pad == "VALID" or pads is None:
        before, after = zeros, zeros
    else:
        before, after = list(pads[: len(kernel)]), list(pads[len(kernel) :])
    more = list(zeros)
    for k, extent in enumerate(extents if ceil_mode else ()):
        whole = extent + before[k] + after[k]
        outputs = -(-(whole - reaches[k]) // stride[k]) + 1
        # A window that starts in the padding after the image does not count.
        if (outputs - 1) * stride[k] >= extent + before[k]:
            outputs -= 1
        more[k] = max(0, (outputs - 1) * stride[k] + reaches[k] - whole)
    return Window(tuple(kernel), stride, dilation, before, after, more)


def halves(totals: Sizes, auto_pad: str) -> tuple[list[int], list[int]]:
    """The totals in two parts; the first is the smaller one for SAME_UPPER."""
    small = [total // 2 for total in totals]
    large = [total - half for total, half in zip(totals, small)]
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)


def padded(x: Tensor, before: Sizes, after: Sizes, fill: float = 0) -> Tensor:
    """Pads the spatial dimensions."""
    if not any(before) and not any(after):
        return x
    flat = [w for k in reversed(range(len(before))) for w in (before[k], after[k])]
    return F.pad(x, flat, value=fill)
