"""`Normal` under the name of PyTorch's module."""

from metaop.distributions.location_scale import Normal

__all__ = ["Normal"]
