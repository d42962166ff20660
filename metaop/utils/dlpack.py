"""Exchange of memory with other libraries, under PyTorch's names."""

from metaop.tensor.host.dlpack import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
