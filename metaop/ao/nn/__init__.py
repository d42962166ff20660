"""Layers that compute with quantised values, and layers that learn to."""

from metaop.ao.nn import qat, quantized

__all__ = ["qat", "quantized"]
