"""The sampler of distributed programs under the name of PyTorch's module."""

from metaop.data.sampler import DistributedSampler

__all__ = ["DistributedSampler"]
