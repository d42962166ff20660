"""Layers in floats that round their inputs and weights, to be trained for quantisation."""

from __future__ import annotations

from typing import Any

from metaop import nn
from metaop.nn import functional as F
from metaop.nn.module import Module
from metaop.tensor.core import Tensor


class Linear(nn.Linear):
    """`nn.Linear` of rounded inputs with a rounded weight."""

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight_fake_quant(self.weight)
        return F.linear(self.activation_pre_process(input), weight, self.bias)


class Conv1d(nn.Conv1d):
    """`nn.Conv1d` of rounded inputs with a rounded weight."""

    def forward(self, input: Tensor) -> Tensor:
        return _convolved(self, input)


class Conv2d(nn.Conv2d):
    """`nn.Conv2d` of rounded inputs with a rounded weight."""

    def forward(self, input: Tensor) -> Tensor:
        return _convolved(self, input)


class Embedding(nn.Embedding):
    """`nn.Embedding` with a rounded weight."""

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight_fake_quant(self.weight), self.padding_idx)


def _convolved(layer: Any, input: Tensor) -> Tensor:
    weight = layer.weight_fake_quant(layer.weight)
    return layer._conv_forward(layer.activation_pre_process(input), weight, layer.bias)


def trained(layer: Any, kind: type[Module]) -> Any:
    """A layer as one of this module, with the same parameters.

    It has a `qconfig` that makes fake quantisation of inputs and weights.
    """
    made: Any = object.__new__(kind)
    made.__dict__ = dict(layer.__dict__)
    for table in ("_parameters", "_buffers", "_modules"):
        made.__dict__[table] = dict(layer.__dict__[table])
    device = layer.weight.device
    if not isinstance(layer, nn.Embedding):
        made.activation_pre_process = layer.qconfig.activation().to(device)
    made.weight_fake_quant = layer.qconfig.weight().to(device)
    return made
