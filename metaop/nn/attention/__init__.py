"""Attention: the layer, `flex_attention`, and the choice between implementations."""

from metaop.nn.attention import flex_attention
from metaop.nn.attention.backends import SDPBackend, sdpa_kernel
from metaop.nn.attention.multi_head import MultiheadAttention

__all__ = ["MultiheadAttention", "SDPBackend", "flex_attention", "sdpa_kernel"]
