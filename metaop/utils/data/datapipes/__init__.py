"""`metaop.data.pipes` under its PyTorch name."""

from metaop.utils.data.datapipes import iter

__all__ = ["iter"]
