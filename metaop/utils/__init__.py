"""Utilities under the names that PyTorch gives them."""

from metaop.utils import _pytree, checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]
