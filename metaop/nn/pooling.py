"""Pooling layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn.module import Module
from metaop.nn.sizes import Size, many
from metaop.tensor.core import Tensor


class _MaxPool(Module):
    """The maximum of each window; `return_indices` returns its index too."""

    function: ClassVar[Any]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return type(self).function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """Max pooling of (N, C, L).

    The result is (N, C, L'); the length follows the formula of `MaxPool2d`.

    >>> nn.MaxPool1d(2)(metaop.ones(1, 3, 8)).shape
    metaop.Size([1, 3, 4])
    """

    function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """Max pooling of (N, C, H, W).

    The result is (N, C, H', W'), with
    `H' = (H + 2 · padding - dilation · (kernel_size - 1) - 1) // stride + 1`; `stride` is
    `kernel_size` unless it is given.

    >>> nn.MaxPool2d(2)(metaop.arange(4.0).reshape(1, 1, 2, 2)).tolist()
    [[[[3.0]]]]
    """

    function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """Max pooling of (N, C, D, H, W).

    The result is (N, C, D', H', W'); the sizes follow the formula of `MaxPool2d`.

    >>> nn.MaxPool3d(2)(metaop.ones(1, 3, 4, 8, 8)).shape
    metaop.Size([1, 3, 2, 4, 4])
    """

    function = staticmethod(F.max_pool3d)


class _MaxUnpool(Module):
    """Writes max-pooled values back to their positions; other elements are zero."""

    dimensions: ClassVar[int]
    function: ClassVar[Any]

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        self.kernel_size = many(kernel_size, self.dimensions)
        self.stride = many(kernel_size if stride is None else stride, self.dimensions)
        self.padding = many(padding, self.dimensions)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return type(self).function(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The inverse of MaxPool1d.

    Takes (N, C, L) and the indices that MaxPool1d returned; all other elements are 0. The result is
    (N, C, L'), with `L' = (L - 1) · stride - 2 · padding + kernel_size`, or `output_size`.

    >>> values, places = nn.MaxPool1d(2, return_indices=True)(metaop.arange(4.0).reshape(1, 1, 4))
    >>> nn.MaxUnpool1d(2)(values, places).tolist()
    [[[0.0, 1.0, 0.0, 3.0]]]
    """

    dimensions = 1
    function = staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """The inverse of MaxPool2d.

    Takes (N, C, H, W) and the indices that MaxPool2d returned; all other elements are 0. The result
    is (N, C, H', W'), with `H' = (H - 1) · stride - 2 · padding + kernel_size`, or `output_size`.

    >>> values, places = nn.MaxPool2d(2, return_indices=True)(metaop.randn(1, 3, 4, 6))
    >>> nn.MaxUnpool2d(2)(values, places).shape
    metaop.Size([1, 3, 4, 6])
    """

    dimensions = 2
    function = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """The inverse of MaxPool3d.

    Takes (N, C, D, H, W) and the indices that MaxPool3d returned; all other elements are 0. The
    result is (N, C, D', H', W'), with `D' = (D - 1) · stride - 2 · padding + kernel_size`, or
    `output_size`.

    >>> values, places = nn.MaxPool3d(2, return_indices=True)(metaop.randn(1, 3, 4, 4, 6))
    >>> nn.MaxUnpool3d(2)(values, places).shape
    metaop.Size([1, 3, 4, 4, 6])
    """

    dimensions = 3
    function = staticmethod(F.max_unpool3d)


class _AvgPool(Module):
    """Means of windows."""

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """Average pooling of (N, C, L).

    The result is (N, C, L'); the length follows the formula of `AvgPool2d`.

    >>> nn.AvgPool1d(2)(metaop.ones(1, 3, 8)).shape
    metaop.Size([1, 3, 4])
    """

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = many(kernel_size, 1)
        self.stride = many(kernel_size if stride is None else stride, 1)
        self.padding = many(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class _WideAvgPool(_AvgPool):
    """Means of windows; `divisor_override` replaces the window's size as the divisor."""

    function: ClassVar[Any]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_WideAvgPool):
    """Average pooling of (N, C, H, W).

    The result is (N, C, H', W'), with `H' = (H + 2 · padding - kernel_size) // stride + 1`;
    `stride` is `kernel_size` unless it is given.

    >>> nn.AvgPool2d(2)(metaop.arange(4.0).reshape(1, 1, 2, 2)).tolist()
    [[[[1.5]]]]
    """

    function = staticmethod(F.avg_pool2d)


class AvgPool3d(_WideAvgPool):
    """Average pooling of (N, C, D, H, W).

    The result is (N, C, D', H', W'); the sizes follow the formula of `AvgPool2d`.

    >>> nn.AvgPool3d(2)(metaop.ones(1, 3, 4, 8, 8)).shape
    metaop.Size([1, 3, 2, 4, 4])
    """

    function = staticmethod(F.avg_pool3d)


class _LPPool(Module):
    """The p-norm of each window."""

    function: ClassVar[Any]

    def __init__(
        self,
        norm_type: float,
        kernel_size: Size,
        stride: Size | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """p-norm pooling of (N, C, L).

    The result is (N, C, L'), with `L' = (L - kernel_size) // stride + 1`; `stride` is
    `kernel_size` unless it is given.

    >>> nn.LPPool1d(2, 2)(metaop.tensor([[[3.0, 4.0]]])).tolist()
    [[[5.0]]]
    """

    function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """p-norm pooling of (N, C, H, W).

    The result is (N, C, H', W'), with `H' = (H - kernel_size) // stride + 1`; `stride` is
    `kernel_size` unless it is given.

    >>> nn.LPPool2d(2, 2)(metaop.ones(1, 1, 2, 2)).tolist()
    [[[[2.0]]]]
    """

    function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """p-norm pooling of (N, C, D, H, W).

    The result is (N, C, D', H', W'), with `D' = (D - kernel_size) // stride + 1`; `stride` is
    `kernel_size` unless it is given.

    >>> nn.LPPool3d(1, 2)(metaop.ones(1, 1, 2, 2, 2)).tolist()
    [[[[[8.0]]]]]
    """

    function = staticmethod(F.lp_pool3d)


class _FractionalMaxPool(Module):
    """Max pooling with randomly placed windows (Graham 2014)."""

    function: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(
                f"{type(self).__name__} requires specifying either an output size, or a pooling "
                "ratio",
                fix="pass exactly one of output_size and output_ratio",
            )
        self.kernel_size = many(kernel_size, self.dimensions)
        self.return_indices = return_indices
        self.output_size = None if output_size is None else many(output_size, self.dimensions)
        ratios = (output_ratio,) * self.dimensions if isinstance(output_ratio, float) else None
        self.output_ratio = ratios or output_ratio
        self.register_buffer("_random_samples", _random_samples)

    dimensions: ClassVar[int]

    def forward(self, input: Tensor) -> Any:
        return type(self).function(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """Max pooling of (N, C, H, W) with randomly placed windows.

    The result is (N, C, *output_size), or `output_ratio` of the input's sizes; with
    `return_indices` it includes the indices of the maxima. Raises ArgumentError unless one of
    `output_size` and `output_ratio` is given.

    >>> nn.FractionalMaxPool2d(2, output_size=(3, 4))(metaop.randn(1, 2, 8, 9)).shape
    metaop.Size([1, 2, 3, 4])
    """

    dimensions = 2
    function = staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """Max pooling of (N, C, D, H, W) with randomly placed windows.

    The result is (N, C, *output_size), or `output_ratio` of the input's sizes; with
    `return_indices` it includes the indices of the maxima. Raises ArgumentError unless one of
    `output_size` and `output_ratio` is given.

    >>> nn.FractionalMaxPool3d(2, output_ratio=0.5)(metaop.randn(1, 2, 8, 8, 8)).shape
    metaop.Size([1, 2, 4, 4, 4])
    """

    dimensions = 3
    function = staticmethod(F.fractional_max_pool3d)


class _AdaptivePool(Module):
    """Pooling to a given output size."""

    function: ClassVar[Any]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        return type(self).function(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPool(_AdaptivePool):
    """Means of windows that divide the input."""


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Average pooling of (N, C, L) to a given length.

    The result is (N, C, output_size).

    >>> nn.AdaptiveAvgPool1d(2)(metaop.ones(1, 3, 7)).shape
    metaop.Size([1, 3, 2])
    """

    function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Average pooling of (N, C, H, W) to a given size; None keeps a dimension.

    >>> nn.AdaptiveAvgPool2d((1, None))(metaop.ones(2, 3, 7, 5)).shape
    metaop.Size([2, 3, 1, 5])
    """

    function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Average pooling of (N, C, D, H, W) to a given size; None keeps a dimension.

    The result is (N, C, *output_size).

    >>> nn.AdaptiveAvgPool3d(1)(metaop.ones(1, 3, 4, 5, 6)).shape
    metaop.Size([1, 3, 1, 1, 1])
    """

    function = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return type(self).function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Max pooling of (N, C, L) to a given length.

    The result is (N, C, output_size), and the indices of the maxima with `return_indices`.

    >>> nn.AdaptiveMaxPool1d(2)(metaop.arange(6.0).reshape(1, 1, 6)).tolist()
    [[[2.0, 5.0]]]
    """

    function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Max pooling of (N, C, H, W) to a given size; None keeps a dimension.

    The result is (N, C, *output_size).

    >>> nn.AdaptiveMaxPool2d((1, None))(metaop.ones(2, 3, 7, 5)).shape
    metaop.Size([2, 3, 1, 5])
    """

    function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Max pooling of (N, C, D, H, W) to a given size; None keeps a dimension.

    The result is (N, C, *output_size), and the indices of the maxima with `return_indices`.

    >>> nn.AdaptiveMaxPool3d((2, 1, None))(metaop.randn(1, 3, 4, 4, 5)).shape
    metaop.Size([1, 3, 2, 1, 5])
    """

    function = staticmethod(F.adaptive_max_pool3d)
