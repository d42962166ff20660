"""The classes of storages under PyTorch's path (`torch.storage`)."""

from metaop.tensor.storage import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
