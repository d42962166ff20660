"""`Gamma` under the name of PyTorch's module."""

from metaop.distributions.continuous import Gamma

__all__ = ["Gamma"]
