"""Layers with quantised weights; see metaop.ao.quantization."""

from metaop.ao.nn.quantized import dynamic
from metaop.ao.nn.quantized.convolution import Conv1d, Conv2d
from metaop.ao.nn.quantized.embedding import Embedding
from metaop.ao.nn.quantized.linear import Linear

__all__ = ["Conv1d", "Conv2d", "Embedding", "Linear", "dynamic"]
