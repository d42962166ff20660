"""`Dirichlet` under the name of PyTorch's module."""

from metaop.distributions.gamma_family import Dirichlet

__all__ = ["Dirichlet"]
