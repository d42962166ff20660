"""Memory for gradients that the ranks of a job reduce together.

On one host it is a window that all ranks see: each rank copies its gradients in, adds up one block
of everybody's, and reads the blocks of the others where they are. Between hosts MPI reduces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from metaop.dist.job import may_lose_ranks
from metaop.dist.sbp import block

Kind = tuple[tuple[int, ...], np.dtype]

_ALIGNMENT = 64
# Blocks are added up in pieces that stay in the cache.
_PIECE = 1 << 16


class GradientArena(Protocol):
    """Reduces gradients of fixed shapes."""

    def mean(self, gradients: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The means over the ranks, as arrays that belong to the caller."""


def gradient_arena(
    communicator: Any, kinds: Sequence[Kind], in_place: bool = False
) -> GradientArena:
    """The fastest arena for the ranks of `communicator`.

    With `in_place` the means may stay in the arena, where the next ones overwrite them.
    """
    numbers = all(dtype.kind == "f" and dtype.itemsize >= 4 for _, dtype in kinds)
    # Open MPI's shared windows do not survive the loss of a rank.
    if numbers and not may_lose_ranks() and is_one_host(communicator):
        return SharedArena(communicator, kinds, in_place)
    return MessageArena(communicator, kinds)


def is_one_host(communicator: Any) -> bool:
    """Whether all ranks can share memory; every rank has to ask."""
    from mpi4py import MPI

    host = communicator.Split_type(MPI.COMM_TYPE_SHARED)
    size: int = host.size
    host.Free()
    return size == communicator.size


def _by_dtype(kinds: Sequence[Kind]) -> dict[np.dtype, list[int]]:
    groups: dict[np.dtype, list[int]] = {}
    for position, (_, dtype) in enumerate(kinds):
        groups.setdefault(dtype, []).append(position)
    return groups


class _Bucket:
    """Gradients of one type side by side: their positions and where each starts."""

    def __init__(self, kinds: Sequence[Kind], positions: Sequence[int]) -> None:
        self.positions = positions
        self.shapes = [kinds[k][0] for k in positions]
        self.sizes = [int(np.prod(shape)) for shape in self.shapes]
        # Each starts at an aligned address, so that it can be used where it lies.
        rooms = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in self.sizes]
        self.starts = [0, *np.cumsum(rooms).tolist()]
        self.size = self.starts[-1]

    def fill(self, flat: np.ndarray, gradients: Sequence[np.ndarray]) -> None:
        """Copies the gradients in."""
        for start, size, position in zip(self.starts, self.sizes, self.positions):
            flat[start : start + size] = gradients[position].reshape(-1)

    def take(self, flat: np.ndarray, results: list[Any]) -> None:
        """Gives every gradient its part of `flat`."""
        for k, position in enumerate(self.positions):
            part = flat[self.starts[k] : self.starts[k] + self.sizes[k]]
            results[position] = part.reshape(self.shapes[k])


class MessageArena:
    """Buckets that MPI reduces: works between hosts and for every type."""

    def __init__(self, communicator: Any, kinds: Sequence[Kind]) -> None:
        self.communicator = communicator
        self.kinds = list(kinds)
        self.buckets = [
            (dtype, _Bucket(kinds, positions)) for dtype, positions in _by_dtype(kinds).items()
        ]

    def mean(self, gradients: Sequence[np.ndarray]) -> list[np.ndarray]:
        results: list[Any] = [None] * len(self.kinds)
        for dtype, bucket in self.buckets:
            # MPI has no 16-bit floats.
            wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
            flat = np.empty(bucket.size, wide)
            bucket.fill(flat, gradients)
            total = np.empty_like(flat)
            self.communicator.Allreduce(flat, total)
            total /= self.communicator.size
            bucket.take(total.astype(dtype, copy=False), results)
        return results


class SharedArena:
    """Buckets in memory that all ranks of one host see."""

    def __init__(self, communicator: Any, kinds: Sequence[Kind], in_place: bool) -> None:
        self.communicator = communicator
        self.kinds = list(kinds)
        self.in_place = in_place
        self.buckets: list[tuple[_Bucket, SharedSum]] = []
        for dtype, positions in _by_dtype(kinds).items():
            bucket = _Bucket(kinds, positions)
            self.buckets.append((bucket, SharedSum(communicator, bucket.size, dtype)))

    def mean(self, gradients: Sequence[np.ndarray]) -> list[np.ndarray]:
        results: list[Any] = [None] * len(self.kinds)
        for bucket, shared in self.buckets:
            bucket.fill(shared.mine, gradients)
            shared.reduce(1.0 / self.communicator.size)
            bucket.take(shared.collect(shared.mine if self.in_place else None), results)
        return results


class SharedSum:
    """One array on each rank of a host, in a window that all see, and their sum.

    Every rank writes `mine`, calls `reduce`, and finds the result with `collect`.
    """

    def __init__(self, communicator: Any, size: int, dtype: Any) -> None:
        from mpi4py import MPI

        self.communicator = communicator
        self.dtype = np.dtype(dtype)
        nbytes = -(-max(size, 1) * self.dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        self.window = MPI.Win.Allocate_shared(nbytes, 1, comm=communicator)
        self.arrays: list[np.ndarray] = []
        for rank in range(communicator.size):
            memory, _ = self.window.Shared_query(rank)
            self.arrays.append(np.asarray(memory).view(self.dtype)[:size])
        self.mine = self.arrays[communicator.rank]
        self.size = size
        self.blocks = [block(size, communicator.size, rank) for rank in range(communicator.size)]

    def reduce(self, factor: float = 1.0) -> None:
        """Adds up this rank's block of all arrays, in its own array, times `factor`."""
        self.communicator.Barrier()
        start, stop = self.blocks[self.communicator.rank]
        others = [a for k, a in enumerate(self.arrays) if k != self.communicator.rank]
        for low in range(start, stop, _PIECE):
            high = min(low + _PIECE, stop)
            total = self.mine[low:high]
            for other in others:
                total += other[low:high]
            if factor != 1.0:
                total *= self.dtype.type(factor)
        self.communicator.Barrier()

    def collect(self, result: np.ndarray | None = None) -> np.ndarray:
        """The whole sum in `result`, which may be `mine`, or in a new array.

        No rank may write `mine` before all have called it.
        """
        if result is None:
            result = np.empty(self.size, self.dtype)
        for array, (start, stop) in zip(self.arrays, self.blocks):
            if array is not result:
                result[start:stop] = array[start:stop]
        self.communicator.Barrier()
        return result
