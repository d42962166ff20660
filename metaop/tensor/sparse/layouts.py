"""Layouts and memory formats, which programs pass by name. A Tensor is always strided."""

from __future__ import annotations


class layout:
    """How elements are stored: strided in all dimensions, sparse_coo, sparse_csr or sparse_csc.

    >>> metaop.ones(1).layout
    metaop.strided
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"metaop.{self._name}"


class memory_format:
    """The order of the dimensions in memory: a hint that the compiler does not need.

    >>> metaop.channels_last
    metaop.channels_last
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"metaop.{self._name}"


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
SPARSE_LAYOUTS = (sparse_coo, sparse_csr, sparse_csc)
contiguous_format = memory_format("contiguous_format")
legacy_contiguous_format = contiguous_format
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
