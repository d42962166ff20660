"""Iterable data pipes under the name of PyTorch's module."""

from metaop.data.pipes import (
    Batcher,
    Collator,
    Concater,
    FileLister,
    FileOpener,
    Filter,
    IterableWrapper,
    Mapper,
    Shuffler,
    UnBatcher,
    Zipper,
)

__all__ = [
    "Batcher",
    "Collator",
    "Concater",
    "FileLister",
    "FileOpener",
    "Filter",
    "IterableWrapper",
    "Mapper",
    "Shuffler",
    "UnBatcher",
    "Zipper",
]
