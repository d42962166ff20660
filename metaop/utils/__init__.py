"""Utilities under the names that PyTorch gives them."""

from metaop.utils import data

__all__ = ["data"]
