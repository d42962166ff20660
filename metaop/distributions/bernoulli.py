"""`Bernoulli` under the name of PyTorch's module."""

from metaop.distributions.discrete import Bernoulli

__all__ = ["Bernoulli"]
