"""Markers of where PyTorch's models enter and leave quantised tensors."""

from __future__ import annotations

from metaop.ao.quantization.qconfig import QConfig
from metaop.nn.module import Module
from metaop.tensor.core import Tensor


class QuantStub(Module):
    """Returns its input, because layers round their inputs themselves."""

    def __init__(self, qconfig: QConfig | None = None) -> None:
        super().__init__()
        if qconfig is not None:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class DeQuantStub(QuantStub):
    """Returns its input, because layers return floats."""
