"""Utilities under the names that PyTorch gives them."""

from metaop.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
