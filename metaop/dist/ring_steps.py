"""Reductions in rounds through the slots of a host: see `host_window`.

Arrays are flat and cut into one part for each rank that combines. A slot is divided into *lanes*,
one for each part, and a round takes the next piece of every part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.dist.boxing import COMBINE
from metaop.dist.host_window import SLOT_BYTES
from metaop.dist.packing import Packed

# For each rank or part: its start and end.
Ranges = Sequence[tuple[int, int]]

_LINE = 64


def _rounds(ranges: Ranges, room: int) -> int:
    return -(-max((stop - start for start, stop in ranges), default=0) // room)


def _piece(span: tuple[int, int], number: int, room: int) -> tuple[int, int]:
    start, stop = span
    low = min(start + number * room, stop)
    return low, min(low + room, stop)


def room_of(dtype: np.dtype, lanes: int) -> int:
    """The number of elements in a lane: whole cache lines."""
    return SLOT_BYTES // lanes // _LINE * _LINE // dtype.itemsize


def _add_up(op: str, parts: Sequence[np.ndarray], total: np.ndarray) -> None:
    """Combines `parts` into `total`, which may be the first of them."""
    combine = COMBINE[op]
    if total.dtype.itemsize == 2 and total.dtype.kind not in "iub":
        # 16-bit floats are accumulated in higher precision and rounded at the end.
        wide = parts[0].astype(np.float32)
        for part in parts[1:]:
            combine(wide, part, out=wide)
        total[...] = wide
        return
    if len(parts) == 1:
        total[...] = parts[0]
    first = parts[0]
    for part in parts[1:]:
        combine(first, part, out=total)
        first = total


class _Lanes:
    """What collectives with one part per rank share: `put` from `given`."""

    combines = False

    def __init__(self, given: Packed, ranges: Ranges, rank: int) -> None:
        self.given, self.ranges, self.rank = given, ranges, rank
        self.room = room_of(given.dtype, len(ranges))
        self.count = _rounds(ranges, self.room)

    def put(self, number: int, slot: np.ndarray) -> None:
        """Writes the others' pieces into their lanes."""
        lanes = slot.view(self.given.dtype)
        for lane, span in enumerate(self.ranges):
            if lane == self.rank:
                continue
            low, high = _piece(span, number, self.room)
            self.given.copy(low, high, lanes[lane * self.room :])

    def lane(self, slot: np.ndarray, lane: int, size: int) -> np.ndarray:
        """The first `size` elements of a lane."""
        start = lane * self.room
        return slot.view(self.given.dtype)[start : start + size]

    def parts(self, low: int, high: int, slots: list[np.ndarray]) -> list[np.ndarray]:
        """Elements `low` to `high` from every rank, in this rank's part; its own come first."""
        size = high - low
        own = self.given.piece(low, high, self.lane(slots[self.rank], self.rank, size))
        others = (slot for rank, slot in enumerate(slots) if rank != self.rank)
        return [own, *(self.lane(slot, self.rank, size) for slot in others)]

    def combine(self, number: int, slots: list[np.ndarray]) -> Any:
        """Combines nothing."""


class AllReduce(_Lanes):
    """Combines `given` over the ranks, times `factor`, into `total` of every rank.

    The first ranks of the host, one for each of `ranges`, combine one part each. If there are other
    hosts, `across` connects the ranks that have the same number on each host.
    """

    combines = True

    def __init__(
        self,
        given: Packed,
        total: np.ndarray,
        op: str,
        ranges: Ranges,
        rank: int,
        factor: float = 1.0,
        across: Any = None,
    ) -> None:
        super().__init__(given, ranges, rank)
        self.total, self.op, self.factor, self.across = total, op, factor, across

    def combine(self, number: int, slots: list[np.ndarray]) -> Any:
        """Combines this rank's part in its own slot."""
        if self.rank >= len(self.ranges):
            return None
        low, high = _piece(self.ranges[self.rank], number, self.room)
        own = self.lane(slots[self.rank], self.rank, high - low)
        _add_up(self.op, self.parts(low, high, slots), own)
        if self.factor != 1.0:
            own *= own.dtype.type(self.factor)
        return self.across.reduce_in_place(own, self.op) if self.across is not None else None

    def take(self, number: int, slots: list[np.ndarray]) -> None:
        """Copies every part from the rank that has combined it."""
        for rank, span in enumerate(self.ranges):
            low, high = _piece(span, number, self.room)
            self.total[low:high] = self.lane(slots[rank], rank, high - low)


class ReduceScatter(_Lanes):
    """Combines this rank's part of `given` over the ranks into `mine`."""

    def __init__(self, given: Packed, mine: np.ndarray, op: str, ranges: Ranges, rank: int) -> None:
        super().__init__(given, ranges, rank)
        self.mine, self.op = mine, op

    def take(self, number: int, slots: list[np.ndarray]) -> None:
        """Combines this rank's lane of all slots."""
        span = self.ranges[self.rank]
        low, high = _piece(span, number, self.room)
        mine = self.mine[low - span[0] : high - span[0]]
        _add_up(self.op, self.parts(low, high, slots), mine)
