"""einops for metaop's tensors: the functions of the library, and its layers as modules.

Importing this module registers metaop with einops, after which functions imported from einops
itself accept metaop's tensors too.

Example: `from metaop.einops import rearrange`
"""

from __future__ import annotations

from typing import Any

import einops
from einops import asnumpy as asnumpy
from einops import einsum as einsum
from einops import pack as pack
from einops import parse_shape as parse_shape
from einops import rearrange as rearrange
from einops import reduce as reduce
from einops import repeat as repeat
from einops import unpack as unpack
from einops._backends import AbstractBackend
from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

import metaop
from metaop import nn
from metaop.tensor.core import Tensor

EinopsError = einops.EinopsError


class MetaopBackend(AbstractBackend):  # type: ignore[misc]
    """einops's interface to a framework; einops finds it among the subclasses of its base class."""

    framework_name = "metaop"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        return metaop.from_numpy(x)

    def to_numpy(self, x: Any) -> Any:
        return x.numpy(force=True)

    def arange(self, start: int, stop: int) -> Tensor:
        return metaop.arange(start, stop)

    def reduce(self, x: Any, operation: str, reduced_axes: Any) -> Tensor:
        axes = tuple(reduced_axes)
        if operation in ("min", "max"):
            return getattr(x, f"a{operation}")(axes)
        if operation in ("sum", "mean"):
            return getattr(x, operation)(axes)
        for axis in sorted(axes, reverse=True):
            x = getattr(x, operation)(axis)
        return x

    def transpose(self, x: Any, axes: Any) -> Tensor:
        return x.permute(axes)

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        return metaop.stack(tensors)

    def add_axis(self, x: Any, new_position: int) -> Tensor:
        return x.unsqueeze(new_position)

    def add_axes(self, x: Any, n_axes: int, pos2len: dict[int, int]) -> Tensor:
        extents = [-1] * n_axes
        for position, length in pos2len.items():
            x = x.unsqueeze(position)
            extents[position] = length
        return x.expand(extents)

    def tile(self, x: Any, repeats: Any) -> Tensor:
        return x.repeat(repeats)

    def concat(self, tensors: list[Tensor], axis: int) -> Tensor:
        return metaop.cat(tensors, axis)

    def is_float_type(self, x: Any) -> bool:
        return x.dtype.kind == "float"

    def einsum(self, pattern: str, *x: Any) -> Tensor:
        return metaop.einsum(pattern, *x)

    def layers(self) -> Any:
        import metaop.einops

        return metaop.einops


class Rearrange(RearrangeMixin, nn.Module):  # type: ignore[misc]
    """`rearrange` with a fixed pattern, as a module."""

    def forward(self, input: Tensor) -> Tensor:
        return self._apply_recipe(input)


class Reduce(ReduceMixin, nn.Module):  # type: ignore[misc]
    """`reduce` with a fixed pattern, as a module."""

    def forward(self, input: Tensor) -> Tensor:
        return self._apply_recipe(input)


class EinMix(_EinmixMixin, nn.Module):  # type: ignore[misc]
    """A linear layer whose pattern says what it mixes, as in `EinMix("b i -> b o", "i o", …)`."""

    def _create_parameters(
        self, weight_shape: Any, weight_bound: float, bias_shape: Any, bias_bound: float
    ) -> None:
        weight = metaop.empty(weight_shape).uniform_(-weight_bound, weight_bound)
        self.weight = nn.Parameter(weight)
        self.bias = None
        if bias_shape is not None:
            self.bias = nn.Parameter(metaop.empty(bias_shape).uniform_(-bias_bound, bias_bound))

    def _create_rearrange_layers(
        self,
        pre_reshape_pattern: str | None,
        pre_reshape_lengths: dict[str, int] | None,
        post_reshape_pattern: str | None,
        post_reshape_lengths: dict[str, int] | None,
    ) -> None:
        self.pre_rearrange = self.post_rearrange = None
        if pre_reshape_pattern is not None:
            self.pre_rearrange = Rearrange(pre_reshape_pattern, **(pre_reshape_lengths or {}))
        if post_reshape_pattern is not None:
            self.post_rearrange = Rearrange(post_reshape_pattern, **(post_reshape_lengths or {}))

    def forward(self, input: Tensor) -> Tensor:
        if self.pre_rearrange is not None:
            input = self.pre_rearrange(input)
        result = metaop.einsum(self.einsum_pattern, input, self.weight)
        if self.bias is not None:
            result = result + self.bias
        return result if self.post_rearrange is None else self.post_rearrange(result)
