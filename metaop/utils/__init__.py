"""Utilities under the names that PyTorch gives them."""

from metaop.utils import _pytree, checkpoint, data, dlpack, hooks
from metaop.utils.swapping import swap_tensors

__all__ = ["checkpoint", "data", "dlpack", "hooks", "swap_tensors"]
