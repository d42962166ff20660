"""Batching functions under the name of PyTorch's module."""

from metaop.data.collate import default_collate, default_convert

__all__ = ["default_collate", "default_convert"]
