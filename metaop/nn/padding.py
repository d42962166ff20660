"""Padding layers: one class for every way of padding and number of dimensions."""

from __future__ import annotations

from typing import ClassVar

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn.module import Module
from metaop.nn.sizes import Size, many
from metaop.tensor.core import Tensor


class _Pad(Module):
    """`padding` is (before, after) of the last dimension, then of the one before it, …"""

    dimensions: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: Size) -> None:
        super().__init__()
        self.padding = many(padding, 2 * self.dimensions)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """A number around the input."""

    def __init__(self, padding: Size, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """A number around the last dimension.

    `padding` counts left and right: both are added to the length.

    >>> nn.ConstantPad1d((1, 2), 7.0)(metaop.ones(1, 2)).tolist()
    [[7.0, 1.0, 1.0, 7.0, 7.0]]
    """

    dimensions = 1


class ConstantPad2d(_ConstantPad):
    """A number around the last two dimensions.

    `padding` counts left, right, top and bottom: they are added to the sizes.

    >>> nn.ConstantPad2d(2, 1.5)(metaop.ones(1, 3, 4, 4)).shape
    metaop.Size([1, 3, 8, 8])
    """

    dimensions = 2


class ConstantPad3d(_ConstantPad):
    """A number around the last three dimensions.

    `padding` counts left, right, top, bottom, front and back: they are added to the sizes.

    >>> nn.ConstantPad3d(1, 1.5)(metaop.ones(1, 3, 4, 4, 4)).shape
    metaop.Size([1, 3, 6, 6, 6])
    """

    dimensions = 3


class _ZeroPad(_ConstantPad):
    """Zeros around the input."""

    def __init__(self, padding: Size) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad):
    """Zeros around the last dimension.

    `padding` counts left and right: they are added to the size.

    >>> nn.ZeroPad1d((1, 2))(metaop.ones(1, 3, 4)).shape
    metaop.Size([1, 3, 7])
    """

    dimensions = 1


class ZeroPad2d(_ZeroPad):
    """Zeros around the last two dimensions.

    `padding` counts left, right, top and bottom: (N, C, H, W) becomes (N, C, H + top + bottom,
    W + left + right).

    >>> nn.ZeroPad2d((1, 2, 0, 0))(metaop.ones(1, 1, 1, 2)).tolist()
    [[[[0.0, 1.0, 1.0, 0.0, 0.0]]]]
    """

    dimensions = 2


class ZeroPad3d(_ZeroPad):
    """Zeros around the last three dimensions.

    `padding` counts left, right, top, bottom, front and back: they are added to the sizes.

    >>> nn.ZeroPad3d((1, 1, 0, 0, 2, 0))(metaop.ones(1, 3, 4, 4, 4)).shape
    metaop.Size([1, 3, 6, 4, 6])
    """

    dimensions = 3


class _ReflectionPad(_Pad):
    """The input mirrored at its edges."""

    mode = "reflect"


class ReflectionPad1d(_ReflectionPad):
    """(N, C, L) or (C, L) mirrored at the ends.

    `padding` counts left and right: both are added to the length, and are less than it.

    >>> nn.ReflectionPad1d(2)(metaop.arange(3.0).reshape(1, 1, 3)).tolist()
    [[[2.0, 1.0, 0.0, 1.0, 2.0, 1.0, 0.0]]]
    """

    dimensions = 1


class ReflectionPad2d(_ReflectionPad):
    """(N, C, H, W) or (C, H, W) mirrored at the edges.

    `padding` counts left, right, top and bottom, each smaller than the adjacent size.

    >>> nn.ReflectionPad2d(2)(metaop.ones(1, 3, 4, 4)).shape
    metaop.Size([1, 3, 8, 8])
    """

    dimensions = 2


class ReflectionPad3d(_ReflectionPad):
    """(N, C, D, H, W) or (C, D, H, W) mirrored at the faces.

    `padding` counts left, right, top, bottom, front and back: they are added to the sizes, and are
    less than these.

    >>> nn.ReflectionPad3d(1)(metaop.ones(1, 3, 4, 4, 4)).shape
    metaop.Size([1, 3, 6, 6, 6])
    """

    dimensions = 3


class _ReplicationPad(_Pad):
    """The outermost elements repeated outwards."""

    mode = "replicate"


class ReplicationPad1d(_ReplicationPad):
    """(N, C, L) or (C, L) with repeated ends.

    `padding` counts left and right: both are added to the length.

    >>> nn.ReplicationPad1d(1)(metaop.arange(3.0).reshape(1, 1, 3)).tolist()
    [[[0.0, 0.0, 1.0, 2.0, 2.0]]]
    """

    dimensions = 1


class ReplicationPad2d(_ReplicationPad):
    """(N, C, H, W) or (C, H, W) with repeated edges.

    `padding` counts left, right, top and bottom: they are added to the sizes.

    >>> nn.ReplicationPad2d(2)(metaop.ones(1, 3, 4, 4)).shape
    metaop.Size([1, 3, 8, 8])
    """

    dimensions = 2


class ReplicationPad3d(_ReplicationPad):
    """(N, C, D, H, W) or (C, D, H, W) with repeated faces.

    `padding` counts left, right, top, bottom, front and back: they are added to the sizes.

    >>> nn.ReplicationPad3d(1)(metaop.ones(1, 3, 4, 4, 4)).shape
    metaop.Size([1, 3, 6, 6, 6])
    """

    dimensions = 3


class _CircularPad(_Pad):
    """Pads circularly: what leaves on one side enters on the other."""

    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self.dimensions + 1, self.dimensions + 2):
            raise ArgumentError(
                f"expected {self.dimensions + 1}D or {self.dimensions + 2}D input "
                f"(got {input.ndim}D input)",
                fix="add or remove dimensions",
            )
        return super().forward(input)


class CircularPad1d(_CircularPad):
    """(N, C, L) or (C, L) as a ring.

    `padding` counts left and right: both are added to the length.

    >>> nn.CircularPad1d(1)(metaop.arange(3.0).reshape(1, 1, 3)).tolist()
    [[[2.0, 0.0, 1.0, 2.0, 0.0]]]
    """

    dimensions = 1


class CircularPad2d(_CircularPad):
    """(N, C, H, W) or (C, H, W) as a torus.

    `padding` counts left, right, top and bottom: they are added to the sizes.

    >>> nn.CircularPad2d((1, 1, 2, 0))(metaop.ones(1, 3, 4, 4)).shape
    metaop.Size([1, 3, 6, 6])
    """

    dimensions = 2


class CircularPad3d(_CircularPad):
    """(N, C, D, H, W) or (C, D, H, W) as a torus.

    `padding` counts left, right, top, bottom, front and back: they are added to the sizes.

    >>> nn.CircularPad3d(1)(metaop.ones(1, 3, 4, 4, 4)).shape
    metaop.Size([1, 3, 6, 6, 6])
    """

    dimensions = 3
