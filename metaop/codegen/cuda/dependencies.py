"""Which launches of a program must wait for which, from the memory that they read and write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np


class Access(NamedTuple):
    """Bytes that a launch reads or writes."""

    start: int
    stop: int
    writes: bool


def predecessors(launches: Sequence[Sequence[Access]]) -> Iterator[list[int]]:
    """For each launch the earlier ones that it waits for, given the accesses of all in order.

    Two launches that touch the same bytes keep their order, unless both only read them. Those that
    another predecessor waits for already are left out.
    """
    count = sum(map(len, launches))
    starts, stops, owners = (np.zeros(count, np.int64) for _ in range(3))
    writes = np.zeros(count, bool)
    known = 0
    # As bits, all launches that each waits for, itself included.
    awaited: list[int] = []
    for number, accesses in enumerate(launches):
        conflicts: set[int] = set()
        for access in accesses:
            meet = (starts[:known] < access.stop) & (stops[:known] > access.start)
            if not access.writes:
                meet &= writes[:known]
            conflicts.update(owners[:known][meet].tolist())
        direct, covered = [], 1 << number
        for earlier in sorted(conflicts, reverse=True):
            if not covered >> earlier & 1:
                direct.append(earlier)
                covered |= awaited[earlier]
        awaited.append(covered)
        for access in accesses:
            starts[known], stops[known], writes[known] = access
            owners[known] = number
            known += 1
        yield direct
