"""Where a sequence repeats itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

# Fewer copies stay as they are: loops of few steps are unrolled anyway.
FEWEST_COPIES = 4
# Longer periods are not looked for, because the time to find one grows with the longest.
_LONGEST = 1 << 11
# Another period must cover this much more to be better: its multiples cover nearly as much.
_BETTER = 1.1


class Run(NamedTuple):
    """Elements from `start` to `end`, each of which equals the one a `period` before it."""

    start: int
    end: int
    period: int


def periodic_runs(tokens: Sequence[int]) -> list[Run]:
    """Disjoint runs with at least four copies of their period, in order; the longest are found."""
    return list(_runs(np.asarray(tokens), 0, len(tokens)))


def _runs(tokens: np.ndarray, first: int, last: int) -> Iterator[Run]:
    found = _longest(tokens[first:last])
    if found is not None:
        start, end = first + found.start, first + found.end
        yield from _runs(tokens, first, start)
        yield Run(start, end, found.period)
        yield from _runs(tokens, end, last)


def _longest(tokens: np.ndarray) -> Run | None:
    best, covered = None, 0.0
    for period in range(1, min(len(tokens) // FEWEST_COPIES, _LONGEST) + 1):
        # The places between which all elements equal those one period later.
        ends = np.flatnonzero(tokens[:-period] != tokens[period:])
        bounds = np.concatenate(([-1], ends, [len(tokens) - period]))
        lengths = np.diff(bounds) - 1
        where = int(lengths.argmax())
        length = int(lengths[where]) + period
        if length >= FEWEST_COPIES * period and length > covered:
            start = int(bounds[where]) + 1
            best, covered = Run(start, start + length, period), _BETTER * length
    return best
