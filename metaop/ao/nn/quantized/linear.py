"""Linear layers on quantised values."""

from __future__ import annotations

from typing import Any

from metaop.ao.nn.quantized.values import QuantizedInput, observers_of
from metaop.nn import functional as F
from metaop.tensor.core import Tensor
from metaop.unified_graph.dtype import DType, int32, uint8


class Linear(QuantizedInput):
    """`y = x @ weight.T + bias` with inputs rounded to 8 bits and the weight in int8.

    Inputs and results are floats, (…, in_features) and (…, out_features); products are accumulated
    in int32.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        dtype: DType = uint8,
        device: Any = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._make_weight((out_features, in_features), bias, device)
        self._make_input(dtype, device)

    @classmethod
    def from_float(cls, layer: Any) -> Linear:
        """The quantised form of a prepared layer whose observers have seen data."""
        inputs, weights = observers_of(layer)
        made = cls(
            layer.in_features,
            layer.out_features,
            layer.bias is not None,
            inputs.dtype,
            layer.weight.device,
        )
        made._take_weight(layer, weights)
        made._take_input(inputs)
        return made

    def forward(self, input: Tensor) -> Tensor:
        sums = F.linear(self._rounded(input).to(int32), self.weight.to(int32))
        return self._in_floats(sums, self.scale, self.zero_point, -1).to(input.dtype)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, dtype={self.dtype}"
        )
