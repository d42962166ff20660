"""`Categorical` under the name of PyTorch's module."""

from metaop.distributions.discrete import Categorical

__all__ = ["Categorical"]
