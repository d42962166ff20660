"""Layers that compute the range of their inputs at each call."""

from __future__ import annotations

from typing import Any

from metaop.ao.nn.quantized.values import QuantizedWeight, weight_observer
from metaop.ao.quantization.affine import quantize_per_tensor
from metaop.ao.quantization.scheme import dynamic_parameters
from metaop.nn import functional as F
from metaop.tensor.core import Tensor
from metaop.unified_graph.dtype import int32, uint8


class Linear(QuantizedWeight):
    """`y = x @ weight.T + bias` with inputs rounded to uint8 by the range of the whole input.

    Inputs and results are floats, (…, in_features) and (…, out_features).
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._make_weight((out_features, in_features), bias, device)

    @classmethod
    def from_float(cls, layer: Any) -> Linear:
        """The quantised form of a float layer, whose `qconfig` says how to round the weight."""
        has_bias = layer.bias is not None
        made = cls(layer.in_features, layer.out_features, has_bias, layer.weight.device)
        made._take_weight(layer, weight_observer(layer))
        return made

    def forward(self, input: Tensor) -> Tensor:
        scale, zero_point = dynamic_parameters(input, (0, 255))
        values = quantize_per_tensor(input, scale, zero_point, uint8)
        sums = F.linear(values.to(int32), self.weight.to(int32))
        return self._in_floats(sums, scale, zero_point, -1).to(input.dtype)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
