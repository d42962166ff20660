"""Quantised embedding tables."""

from __future__ import annotations

from typing import Any

from metaop.ao.nn.quantized.values import weight_observer
from metaop.ao.quantization.affine import quantize_per_channel
from metaop.ao.quantization.scheme import per_channel_affine_float_qparams
from metaop.errors import UnsupportedError
from metaop.nn import functional as F
from metaop.nn.module import Module
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import full, zeros
from metaop.tensor.grad_mode import no_grad
from metaop.unified_graph.dtype import float32, uint8


class Embedding(Module):
    """A table of uint8 rows to look up by index; each row has a scale and a zero point.

    Results are floats (…, embedding_dim). The zero points are floats too.
    """

    weight: Tensor
    scale: Tensor
    zero_point: Tensor

    def __init__(self, num_embeddings: int, embedding_dim: int, device: Any = None) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        shape = (num_embeddings, embedding_dim)
        self.register_buffer("weight", zeros(shape, dtype=uint8, device=device))
        self.register_buffer("scale", full((num_embeddings,), 1.0, device=device))
        self.register_buffer("zero_point", zeros(num_embeddings, device=device))

    @classmethod
    @no_grad()
    def from_float(cls, layer: Any) -> Embedding:
        """The quantised form of a float table, whose `qconfig` says how to round the weight."""
        observer = weight_observer(layer)
        if observer.qscheme is not per_channel_affine_float_qparams:
            raise UnsupportedError(
                f"an embedding cannot be quantised by {observer.qscheme.value}",
                fix="use metaop.ao.quantization.float_qparams_weight_only_qconfig",
            )
        if layer.max_norm is not None:
            raise UnsupportedError(
                "an embedding with max_norm changes its vectors, which quantised ones cannot",
                fix="leave it in floats",
            )
        weight = layer.weight.detach().to(float32)
        made = cls(layer.num_embeddings, layer.embedding_dim, weight.device)
        made.scale, made.zero_point = (x.clone() for x in observer.calculate_qparams())
        made.weight = quantize_per_channel(weight, made.scale, made.zero_point, 0, uint8)
        return made

    def forward(self, input: Tensor) -> Tensor:
        values = F.embedding(input, self.weight).to(float32)
        scale, zero_point = (x[input].unsqueeze(-1) for x in (self.scale, self.zero_point))
        return (values - zero_point) * scale

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"
