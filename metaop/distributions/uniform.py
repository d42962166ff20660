"""`Uniform` under the name of PyTorch's module."""

from metaop.distributions.continuous import Uniform

__all__ = ["Uniform"]
