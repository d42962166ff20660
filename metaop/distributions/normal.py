"""`Normal` under the name of PyTorch's module."""

from metaop.distributions.continuous import Normal

__all__ = ["Normal"]
