"""The DataLoader under the name of PyTorch's module."""

from metaop.data.collate import default_collate, default_convert
from metaop.data.loader import DataLoader
from metaop.data.worker import get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
