"""Weights in 8 or 4 bits with float inputs, for text generation, which is bound by reading them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from metaop import nn
from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.operators.grouped_linear import linear_of_groups
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.creation import full, zeros
from metaop.tensor.functions.pointwise import round
from metaop.tensor.functions.selection import clamp, where
from metaop.tensor.grad_mode import no_grad
from metaop.unified_graph.dtype import float32, int8, uint8
from metaop.unified_graph.recording import record

_GROUPS = (32, 64, 128)


class WeightOnlyLinear(Module):
    """`y = x @ weight.T + bias` with the weight in integers of `bits` bits, 8 or 4.

    Each `group` of consecutive inputs has a scale per output; None makes all inputs one group.
    `weight_scale` is (groups, out_features). With 8 bits, `weight` is int8 (in_features,
    out_features). With 4 bits it is uint8 (in_features / 2, out_features): the low nibbles hold the
    first half of a group, the high nibbles the second half, both with an offset of 8. The kernel
    unpacks integers where it multiplies them.
    """

    weight: Tensor
    weight_scale: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        bits: int = 4,
        group: int | None = 64,
        device: Any = None,
    ) -> None:
        super().__init__()
        _check(bits, group)
        self.in_features, self.out_features = in_features, out_features
        self.bits, self.group = bits, group
        size = group or in_features
        if in_features % size or (size % 2 and bits == 4):
            raise ArgumentError(
                f"WeightOnlyLinear: {in_features} inputs are not a multiple of {size}",
                fix="choose another group, or leave the layer in floats",
            )
        rows, kind = (in_features, int8) if bits == 8 else (in_features // 2, uint8)
        self.register_buffer("weight", zeros((rows, out_features), dtype=kind, device=device))
        shape = (in_features // size, out_features)
        self.register_buffer("weight_scale", full(shape, 1.0, device=device))
        self.register_buffer("bias", zeros(out_features, device=device) if bias else None)

    @classmethod
    @no_grad()
    def from_float(
        cls, layer: nn.Linear, bits: int = 4, group: int | None = 64
    ) -> WeightOnlyLinear:
        """The layer with the rounded weight of a float layer."""
        weight, outputs = layer.weight.detach(), layer.out_features
        has_bias = layer.bias is not None
        made = cls(layer.in_features, outputs, has_bias, bits, group, weight.device)
        most = (1 << (bits - 1)) - 1
        grouped = weight.to(float32).T.reshape(made.weight_scale.shape[0], -1, outputs)
        largest = grouped.abs().amax(1)
        scale = where(largest == 0, 1.0, largest / most)
        numbers = clamp(round(grouped / scale.unsqueeze(1)), -most, most)
        made.weight_scale = scale
        made.weight = _packed(numbers, bits).reshape(made.weight.shape)
        made.bias = None if layer.bias is None else layer.bias.detach().to(float32).clone()
        return made

    def forward(self, input: Tensor) -> Tensor:
        calls = input.call, self.weight.call, self.weight_scale.call
        found = wrap(record(linear_of_groups, calls, (self.bits,)))
        return found if self.bias is None else found + self.bias.to(found.dtype)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, bits={self.bits}, group={self.group}"
        )


def quantize_weights(
    model: Module,
    bits: int = 8,
    group: int | None = None,
    inplace: bool = False,
    which: Callable[[str, nn.Linear], bool] | None = None,
) -> Module:
    """The model with the weights of its linear layers in 8 or 4 bits, and all else in floats.

    Each output has a scale, or with `group` (32, 64 or 128) a scale for each group of consecutive
    inputs. `which(name, layer)` selects layers; the default is all. A weight that another module
    shares, such as an embedding, is copied.

    Raises ArgumentError for a layer whose number of inputs is not a multiple of `group`.

    Example:
        small = quantize_weights(gpt, bits=4, group=64)
    """
    _check(bits, group)
    model = model if inplace else copy.deepcopy(model)
    if isinstance(model, nn.Linear):
        return WeightOnlyLinear.from_float(model, bits, group)
    for name, module in list(model.named_modules()):
        for key, child in module._modules.items():
            if type(child) is not nn.Linear:
                continue
            path = f"{name}.{key}" if name else key
            if which is None or which(path, child):
                made = WeightOnlyLinear.from_float(child, bits, group)
                module._modules[key] = made.train(child.training)
    return model


def _packed(numbers: Tensor, bits: int) -> Tensor:
    """Integers (groups, group, out) packed into bytes, one or two per byte."""
    if bits == 8:
        return numbers.to(int8)
    low, high = (numbers + 8).to(uint8).chunk(2, 1)
    return low | (high << 4)


def _check(bits: int, group: int | None) -> None:
    if bits not in (4, 8):
        raise ArgumentError(f"weights of {bits} bits are not supported", fix="use 8 or 4")
    if group is not None and group not in _GROUPS:
        raise ArgumentError(
            f"groups of {group} are not supported", fix=f"use one of {_GROUPS}, or None"
        )
