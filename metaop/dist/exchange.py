"""Asynchronous reshards: a rank computes until it needs the result.

Resharding along one mesh axis takes one collective. It makes progress only when it is tested, so
code that computes in the meantime must poll `is_done`. Blocks may be uneven. Arrays are NumPy
arrays, or cupy arrays on the current GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from metaop.dist.packing import Packed
from metaop.dist.sbp import Broadcast, Partial, Sbp, Split, block
from metaop.dist.transports import Transport


class Exchange:
    """A collective in progress; `sent` is the number of bytes that this rank sends for it."""

    def __init__(self, request: Any, finish: Callable[[], np.ndarray], sent: int) -> None:
        self.request = request
        self.sent = sent
        self._finish = finish

    def is_done(self) -> bool:
        """Whether the result has arrived; makes progress."""
        done: bool = self.request.Test()
        return done

    def result(self) -> np.ndarray:
        """This rank's new part; call it when the collective is done."""
        return self._finish()


def start(
    transport: Transport, part: np.ndarray, source: Sbp, target: Sbp, shape: Sequence[int]
) -> Exchange:
    """Starts the collective that changes `part` from `source` to `target` on every rank."""
    part = in_order(part)
    if isinstance(source, Partial):
        if isinstance(target, Split):
            return _reduce_scatter(transport, part, source, target)
        return _all_reduce(transport, part, source)
    assert isinstance(source, Split)
    if isinstance(target, Broadcast):
        return _all_gather(transport, part, source, shape)
    assert isinstance(target, Split)
    return _all_to_all(transport, part, source, target, shape)


def _extents(extent: int, ranks: int) -> list[int]:
    blocks = [block(extent, ranks, rank) for rank in range(ranks)]
    return [stop - start for start, stop in blocks]


def _all_reduce(transport: Transport, part: np.ndarray, source: Partial) -> Exchange:
    total = np.empty_like(part)
    request = transport.all_reduce(Packed.alone(part), total.reshape(-1), source.op)
    # Counted as a reduce-scatter in blocks of elements, and an all-gather of these blocks.
    mine = _extents(part.size, transport.size)[transport.rank] * part.itemsize
    sent = part.nbytes - mine + mine * (transport.size - 1)
    return Exchange(request, lambda: total, sent)


def _reduce_scatter(
    transport: Transport, part: np.ndarray, source: Partial, target: Split
) -> Exchange:
    moved = in_order(np.moveaxis(part, target.axis, 0))
    extents = _extents(moved.shape[0], transport.size)
    mine = np.empty_like(moved, shape=(extents[transport.rank], *moved.shape[1:]))
    counts = [moved[:1].size * extent for extent in extents]
    request = transport.reduce_scatter(moved.reshape(-1), mine.reshape(-1), counts, source.op)

    def finish() -> np.ndarray:
        return in_order(np.moveaxis(mine, 0, target.axis))

    return Exchange(request, finish, part.nbytes - mine.nbytes)


def _all_gather(
    transport: Transport, part: np.ndarray, source: Split, shape: Sequence[int]
) -> Exchange:
    moved = in_order(np.moveaxis(part, source.axis, 0))
    whole = np.empty_like(moved, shape=(shape[source.axis], *moved.shape[1:]))
    row = int(np.prod(whole.shape[1:], dtype=np.int64))
    counts = [row * extent for extent in _extents(shape[source.axis], transport.size)]
    request = transport.all_gather(moved.reshape(-1), whole.reshape(-1), counts)
    return Exchange(
        request,
        lambda: in_order(np.moveaxis(whole, 0, source.axis)),
        moved.nbytes * (transport.size - 1),
    )


def _all_to_all(
    transport: Transport, part: np.ndarray, source: Split, target: Split, shape: Sequence[int]
) -> Exchange:
    """Every rank cuts its block along the new dimension and sends each rank one piece."""
    ranks, rank = transport.size, transport.rank
    ranges = [block(shape[target.axis], ranks, k) for k in range(ranks)]
    before = (slice(None),) * target.axis
    pieces = [part[before + (slice(low, high),)] for low, high in ranges]
    low, high = ranges[rank]
    shapes = []
    for extent in _extents(shape[source.axis], ranks):
        piece = list(part.shape)
        piece[target.axis], piece[source.axis] = high - low, extent
        shapes.append(piece)
    sizes = [int(np.prod(piece)) for piece in shapes]
    received = np.empty_like(part, shape=(sum(sizes),))
    given = np.concatenate([piece.reshape(-1) for piece in pieces])
    request = transport.all_to_all(given, [piece.size for piece in pieces], received, sizes)

    def finish() -> np.ndarray:
        stops = list(accumulate(sizes))
        blocks = [
            received[stop - size : stop].reshape(one)
            for stop, size, one in zip(stops, sizes, shapes)
        ]
        return np.concatenate(blocks, axis=source.axis)

    return Exchange(request, finish, given.nbytes - pieces[rank].nbytes)


def in_order(array: Any) -> Any:
    """The array if it is contiguous, otherwise a contiguous copy."""
    return array if array.flags.c_contiguous else array.copy(order="C")
