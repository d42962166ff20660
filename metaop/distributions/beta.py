"""`Beta` under the name of PyTorch's module."""

from metaop.distributions.gamma_family import Beta

__all__ = ["Beta"]
