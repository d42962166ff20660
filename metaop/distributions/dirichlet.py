"""`Dirichlet` under the name of PyTorch's module."""

from metaop.distributions.multivariate import Dirichlet

__all__ = ["Dirichlet"]
