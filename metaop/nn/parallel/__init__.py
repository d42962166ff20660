"""Modules on several devices."""

from metaop.nn.parallel.data_parallel import DataParallel, data_parallel
from metaop.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]
