"""`Beta` under the name of PyTorch's module."""

from metaop.distributions.continuous import Beta

__all__ = ["Beta"]
