"""The handles that hooks give, under PyTorch's name of their module (`torch.utils.hooks`)."""

from metaop.tensor.handles import RemovableHandle

__all__ = ["RemovableHandle"]
