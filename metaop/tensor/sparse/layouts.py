"""Layouts and memory formats: names that programs pass. A Tensor is always strided."""

from __future__ import annotations


class layout:
    """How the elements of a tensor are kept."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"metaop.{self._name}"


class memory_format:
    """In which order the dimensions lie in memory: a hint that the compiler does not need."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"metaop.{self._name}"


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
