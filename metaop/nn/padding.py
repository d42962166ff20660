"""Padding layers: one class per padding mode and number of dimensions."""

from __future__ import annotations

from typing import ClassVar

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn.module import Module
from metaop.nn.sizes import Size, many
from metaop.tensor.core import Tensor


class _Pad(Module):
    """`padding` is (before, after) for the last dimension, then for the one before it, …"""

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
    """Pads the input with a constant."""

    def __init__(self, padding: Size, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Pads the last dimension with a constant.

    `padding` is (left, right): both are added to the length.

    >>> nn.ConstantPad1d((1, 2), 7.0)(metaop.ones(1, 2)).tolist()
    [[7.0, 1.0, 1.0, 7.0, 7.0]]
    """

    dimensions = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two dimensions with a constant.

    `padding` is (left, right, top, bottom): they are added to the sizes.

    >>> nn.ConstantPad2d(2, 1.5)(metaop.ones(1, 3, 4, 4)).shape
    metaop.Size([1, 3, 8, 8])
    """

    dimensions = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last three dimensions with a constant.

    `padding` is (left, right, top, bottom, front, back): they are added to the sizes.

    >>> nn.ConstantPad3d(1, 1.5)(metaop.ones(1, 3, 4, 4, 4)).shape
    metaop.Size([1, 3, 6, 6, 6])
    """

    dimensions = 3


class _ZeroPad(_ConstantPad):
    """Pads the input with zeros."""

    def __init__(self, padding: Size) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad):
    """Pads the last dimension with zeros.

    `padding` is (left, right): they are added to the size.

    >>> nn.ZeroPad1d((1, 2))(metaop.ones(1, 3, 4)).shape
    metaop.Size([1, 3, 7])
    """

    dimensions = 1


class ZeroPad2d(_ZeroPad):
    """Pads the last two dimensions with zeros.

    `padding` is (left, right, top, bottom): (N, C, H, W) becomes (N, C, H + top + bottom,
    W + left + right).

    >>> nn.ZeroPad2d((1, 2, 0, 0))(metaop.ones(1, 1, 1, 2)).tolist()
    [[[[0.0, 1.0, 1.0, 0.0, 0.0]]]]
    """

    dimensions = 2


class ZeroPad3d(_ZeroPad):
    """Pads the last three dimensions with zeros.

    `padding` is (left, right, top, bottom, front, back): they are added to the sizes.

    >>> nn.ZeroPad3d((1, 1, 0, 0, 2, 0))(metaop.ones(1, 3, 4, 4, 4)).shape
    metaop.Size([1, 3, 6, 4, 6])
    """

    dimensions = 3


class _ReflectionPad(_Pad):
    """Pads by reflecting the input at its edges."""

    mode = "reflect"


class ReflectionPad1d(_ReflectionPad):
    """Pads (N, C, L) or (C, L) by reflection at the ends.

    `padding` is (left, right): both are added to the length, and must be less than it.

    >>> nn.ReflectionPad1d(2)(metaop.arange(3.0).reshape(1, 1, 3)).tolist()
    [[[2.0, 1.0, 0.0, 1.0, 2.0, 1.0, 0.0]]]
    """

    dimensions = 1


class ReflectionPad2d(_ReflectionPad):
    """Pads (N, C, H, W) or (C, H, W) by reflection at the edges.

    `padding` is (left, right, top, bottom), each smaller than the adjacent size.

    >>> nn.ReflectionPad2d(2)(metaop.ones(1, 3, 4, 4)).shape
    metaop.Size([1, 3, 8, 8])
    """

    dimensions = 2


class ReflectionPad3d(_ReflectionPad):
    """Pads (N, C, D, H, W) or (C, D, H, W) by reflection at the faces.

    `padding` is (left, right, top, bottom, front, back): they are added to the sizes,
    and must be less than them.

    >>> nn.ReflectionPad3d(1)(metaop.ones(1, 3, 4, 4, 4)).shape
    metaop.Size([1, 3, 6, 6, 6])
    """

    dimensions = 3


class _ReplicationPad(_Pad):
    """Pads by repeating the outermost elements."""

    mode = "replicate"


class ReplicationPad1d(_ReplicationPad):
    """Pads (N, C, L) or (C, L) by repeating its ends.

    `padding` is (left, right): both are added to the length.

    >>> nn.ReplicationPad1d(1)(metaop.arange(3.0).reshape(1, 1, 3)).tolist()
    [[[0.0, 0.0, 1.0, 2.0, 2.0]]]
    """

    dimensions = 1


class ReplicationPad2d(_ReplicationPad):
    """Pads (N, C, H, W) or (C, H, W) by repeating its edges.

    `padding` is (left, right, top, bottom): they are added to the sizes.

    >>> nn.ReplicationPad2d(2)(metaop.ones(1, 3, 4, 4)).shape
    metaop.Size([1, 3, 8, 8])
    """

    dimensions = 2


class ReplicationPad3d(_ReplicationPad):
    """Pads (N, C, D, H, W) or (C, D, H, W) by repeating its faces.

    `padding` is (left, right, top, bottom, front, back): they are added to the sizes.

    >>> nn.ReplicationPad3d(1)(metaop.ones(1, 3, 4, 4, 4)).shape
    metaop.Size([1, 3, 6, 6, 6])
    """

    dimensions = 3


class _CircularPad(_Pad):
    """Pads circularly, with elements from the opposite side."""

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
    """Pads (N, C, L) or (C, L) circularly.

    `padding` is (left, right): both are added to the length.

    >>> nn.CircularPad1d(1)(metaop.arange(3.0).reshape(1, 1, 3)).tolist()
    [[[2.0, 0.0, 1.0, 2.0, 0.0]]]
    """

    dimensions = 1


class CircularPad2d(_CircularPad):
    """Pads (N, C, H, W) or (C, H, W) circularly.

    `padding` is (left, right, top, bottom): they are added to the sizes.

    >>> nn.CircularPad2d((1, 1, 2, 0))(metaop.ones(1, 3, 4, 4)).shape
    metaop.Size([1, 3, 6, 6])
    """

    dimensions = 2


class CircularPad3d(_CircularPad):
    """Pads (N, C, D, H, W) or (C, D, H, W) circularly.

    `padding` is (left, right, top, bottom, front, back): they are added to the sizes.

    >>> nn.CircularPad3d(1)(metaop.ones(1, 3, 4, 4, 4)).shape
    metaop.Size([1, 3, 6, 6, 6])
    """

    dimensions = 3
