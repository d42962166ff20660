"""`Gamma` under the name of PyTorch's module."""

from metaop.distributions.gamma_family import Gamma

__all__ = ["Gamma"]
