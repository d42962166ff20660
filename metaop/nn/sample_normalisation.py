"""Normalisation within each sample: over layers, groups and neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn import init
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.arguments import sizes
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty


class LayerNorm(Module):
    """Normalises the last dimensions (`normalized_shape`), then scales and shifts.

    The result has the shape of the input. Raises ShapeError when the last dimensions differ.

    >>> nn.LayerNorm(2)(metaop.tensor([[1.0, 3.0]])).round().tolist()
    [[-1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = sizes((normalized_shape,))
        self.normalized_shape = tuple(shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        options = {"device": device, "dtype": dtype}
        scale = Parameter(empty(self.normalized_shape, **options)) if elementwise_affine else None
        self.register_parameter("weight", scale)
        shift = (
            Parameter(empty(self.normalized_shape, **options))
            if scale is not None and bias
            else None
        )
        self.register_parameter("bias", shift)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides the last dimensions by their root mean square, then scales.

    The result has the shape of the input.

    >>> nn.RMSNorm(2)(metaop.tensor([[3.0, -3.0]])).round().tolist()
    [[1.0, -1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = sizes((normalized_shape,))
        self.normalized_shape = tuple(shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            self.weight = Parameter(empty(self.normalized_shape, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the scale to 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """Normalises groups of channels within each sample (Wu & He 2018).

    The input is (N, num_channels, …), and so is the result.

    >>> nn.GroupNorm(2, 4)(metaop.randn(3, 4, 8, 8)).shape
    metaop.Size([3, 4, 8, 8])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ArgumentError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})",
                fix="change one of them",
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            value = empty(num_channels, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, None if value is None else Parameter(value))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Divides each channel by a power of the mean square of its neighbours (AlexNet).

    Each element of (N, C, *) is divided by `(k + alpha · m) ** beta`, where `m` is the mean
    square over the `size` channels around it. The result has the shape of the input.

    >>> nn.LocalResponseNorm(1, alpha=3.0, beta=1.0)(metaop.ones(1, 2, 1)).tolist()
    [[[0.25], [0.25]]]
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """LocalResponseNorm under its older name.

    Like `LocalResponseNorm`; the result has the shape (N, C, H, W) of the input.

    >>> nn.CrossMapLRN2d(3)(metaop.ones(1, 4, 2, 2)).shape
    metaop.Size([1, 4, 2, 2])
    """
