"""Collectives that have been started: a rank goes on computing until it needs their results.

Each change of how a tensor lies along one mesh axis is one non-blocking MPI collective. MPI makes
progress only while it is called, so whoever computes in between calls `is_done` now and then.
Blocks may be uneven. 16-bit floats, which MPI does not know, travel as bits and are combined by
the receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metaop.dist.boxing import assemble, shard
from metaop.dist.sbp import Broadcast, Partial, Sbp, Split, block


class Exchange:
    """A collective under way; `sent` are the bytes that this rank sends for it.

    MPI reads and writes `memory` until the request is done, and holds no reference to it.
    """

    def __init__(
        self, request: Any, finish: Callable[[], np.ndarray], sent: int, *memory: np.ndarray
    ) -> None:
        self.request = request
        self.sent = sent
        self._finish = finish
        self._memory = memory

    def is_done(self) -> bool:
        """Whether the result is there; makes progress."""
        done: bool = self.request.Test()
        return done

    def result(self) -> np.ndarray:
        """What this rank holds afterwards, once the collective is done."""
        return self._finish()


def start(
    communicator: Any, part: np.ndarray, source: Sbp, target: Sbp, shape: Sequence[int]
) -> Exchange:
    """Starts the collective that takes `part` from `source` to `target` on every rank."""
    part = np.ascontiguousarray(part)
    if isinstance(source, Partial):
        if _is_narrow(part):
            return _combine_all(communicator, part, source, target)
        if isinstance(target, Split):
            return _reduce_scatter(communicator, part, source, target)
        return _all_reduce(communicator, part, source)
    assert isinstance(source, Split)
    if isinstance(target, Broadcast):
        return _all_gather(communicator, part, source, shape)
    assert isinstance(target, Split)
    return _all_to_all(communicator, part, source, target, shape)


def _is_narrow(part: np.ndarray) -> bool:
    return part.dtype.kind not in "iub" and part.dtype.itemsize == 2


def _carried(array: np.ndarray) -> np.ndarray:
    """The same memory as a type that MPI knows."""
    return array.view(np.uint16) if _is_narrow(array) else array


def _extents(extent: int, ranks: int) -> list[int]:
    blocks = [block(extent, ranks, rank) for rank in range(ranks)]
    return [stop - start for start, stop in blocks]


def _operation(name: str) -> Any:
    from mpi4py import MPI

    names = {"add": "SUM", "mul": "PROD", "max": "MAX", "min": "MIN", "and": "LAND", "or": "LOR"}
    return getattr(MPI, names[name])


def _all_reduce(communicator: Any, part: np.ndarray, source: Partial) -> Exchange:
    total = np.empty_like(part)
    request = communicator.Iallreduce(part, total, _operation(source.op))
    # As if by blocks of elements, which are then gathered.
    mine = _extents(part.size, communicator.size)[communicator.rank] * part.itemsize
    sent = part.nbytes - mine + mine * (communicator.size - 1)
    return Exchange(request, lambda: total, sent, part, total)


def _reduce_scatter(
    communicator: Any, part: np.ndarray, source: Partial, target: Split
) -> Exchange:
    moved = np.ascontiguousarray(np.moveaxis(part, target.axis, 0))
    extents = _extents(moved.shape[0], communicator.size)
    mine = np.empty((extents[communicator.rank], *moved.shape[1:]), part.dtype)
    counts = [moved[:1].size * extent for extent in extents]
    request = communicator.Ireduce_scatter(moved, mine, counts, _operation(source.op))

    def finish() -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(mine, 0, target.axis))

    return Exchange(request, finish, part.nbytes - mine.nbytes, moved, mine)


def _all_gather(
    communicator: Any, part: np.ndarray, source: Split, shape: Sequence[int]
) -> Exchange:
    moved = np.ascontiguousarray(np.moveaxis(part, source.axis, 0))
    whole = np.empty((shape[source.axis], *moved.shape[1:]), part.dtype)
    row = int(np.prod(whole.shape[1:], dtype=np.int64))
    counts = [row * extent for extent in _extents(shape[source.axis], communicator.size)]
    request = communicator.Iallgatherv(_carried(moved), [_carried(whole), counts])
    return Exchange(
        request,
        lambda: np.ascontiguousarray(np.moveaxis(whole, 0, source.axis)),
        moved.nbytes * (communicator.size - 1),
        moved,
        whole,
    )


def _all_to_all(
    communicator: Any, part: np.ndarray, source: Split, target: Split, shape: Sequence[int]
) -> Exchange:
    """Every rank cuts its block for the others along the new dimension."""
    ranks, rank = communicator.size, communicator.rank
    ranges = [block(shape[target.axis], ranks, k) for k in range(ranks)]
    pieces = [np.take(part, range(low, high), axis=target.axis) for low, high in ranges]
    low, high = ranges[rank]
    shapes = []
    for extent in _extents(shape[source.axis], ranks):
        piece = list(part.shape)
        piece[target.axis], piece[source.axis] = high - low, extent
        shapes.append(piece)
    sizes = [int(np.prod(piece)) for piece in shapes]
    received = np.empty(sum(sizes), part.dtype)
    given = np.concatenate([piece.ravel() for piece in pieces])
    request = communicator.Ialltoallv(
        [_carried(given), [piece.size for piece in pieces]], [_carried(received), sizes]
    )

    def finish() -> np.ndarray:
        parts = np.split(received, np.cumsum(sizes)[:-1])
        blocks = [one.reshape(size) for one, size in zip(parts, shapes)]
        return np.concatenate(blocks, axis=source.axis)

    return Exchange(request, finish, given.nbytes - pieces[rank].nbytes, given, received)


def _combine_all(communicator: Any, part: np.ndarray, source: Partial, target: Sbp) -> Exchange:
    """Every rank gets all summands of a type that MPI cannot add."""
    all_parts = np.empty((communicator.size, *part.shape), part.dtype)
    request = communicator.Iallgather(_carried(part), _carried(all_parts))

    def finish() -> np.ndarray:
        whole = assemble(list(all_parts), source)
        return shard(whole, target, communicator.size, communicator.rank).copy()

    return Exchange(request, finish, part.nbytes * (communicator.size - 1), part, all_parts)
