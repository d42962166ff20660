"""Helpers of the DataLoader that programs import from PyTorch's private module."""

from metaop.utils.data._utils import collate

__all__ = ["collate"]
