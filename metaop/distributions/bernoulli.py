"""`Bernoulli` under the name of PyTorch's module."""

from metaop.distributions.counts import Bernoulli

__all__ = ["Bernoulli"]
