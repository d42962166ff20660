"""Marks in a model where PyTorch's quantised values begin and end."""

from __future__ import annotations

from metaop.ao.quantization.qconfig import QConfig
from metaop.nn.module import Module
from metaop.tensor.core import Tensor


class QuantStub(Module):
    """Returns its input: layers round their inputs themselves."""

    def __init__(self, qconfig: QConfig | None = None) -> None:
        super().__init__()
        if qconfig is not None:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class DeQuantStub(QuantStub):
    """Returns its input: results of layers are floats."""
