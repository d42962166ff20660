"""The static memory plan, which gives every temporary of a program an offset in one arena."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from metaop.unified_graph.symbolic import greatest, hint_of, is_symbolic

_ALIGNMENT = 64


class Lifetime(NamedTuple):
    """A temporary of `nbytes` that is first written in step `first` and last read in `last`."""

    nbytes: int
    first: int
    last: int


def plan(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Offsets for the temporaries, and the size of the arena.

    The largest are placed first, each at the lowest offset that is free during its whole life:
    the result is near the lower bound, the peak of the bytes alive in any step.
    """
    if any(is_symbolic(life.nbytes) for life in lifetimes):
        return _symbolic_plan(lifetimes)
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, int, int]] = []
    size = 0
    by_size = sorted(range(len(lifetimes)), key=lambda k: (-lifetimes[k].nbytes, k))
    for k in by_size:
        life = lifetimes[k]
        nbytes = -(-life.nbytes // _ALIGNMENT) * _ALIGNMENT
        offset = 0
        for start, end, first, last in placed:
            if first <= life.last and life.first <= last:
                if offset + nbytes <= start:
                    break
                offset = max(offset, end)
        offsets[k] = offset
        size = max(size, offset + nbytes)
        placed.append((offset, offset + nbytes, life.first, life.last))
        placed.sort()
    return offsets, size


def _symbolic_plan(lifetimes: Sequence[Lifetime]) -> tuple[list[Any], Any]:
    """The plan for the hints, with offsets as sums of sizes, so that it holds for all sizes."""
    hints = [life._replace(nbytes=hint_of(life.nbytes)) for life in lifetimes]
    places, _ = plan(hints)
    sizes = [-(-life.nbytes // _ALIGNMENT) * _ALIGNMENT for life in lifetimes]
    upwards = sorted(range(len(lifetimes)), key=lambda k: places[k])
    offsets: list[Any] = [0] * len(lifetimes)
    ends: list[Any] = [0] * len(lifetimes)
    highest = dict.fromkeys(upwards)
    for k in upwards:
        below: list[int] = []
        for j in reversed(upwards):
            is_below = places[j] + hints[j].nbytes <= places[k] and _meet(hints[j], hints[k])
            if is_below and not any(_meet(hints[i], hints[j]) for i in below):
                below.append(j)
                highest.pop(j, None)
        offsets[k] = greatest([ends[j] for j in below])
        ends[k] = offsets[k] + sizes[k]
    return offsets, greatest([ends[k] for k in highest])


def _meet(one: Lifetime, other: Lifetime) -> bool:
    return one.first <= other.last and other.first <= one.last


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes alive in any one step: no plan needs less."""
    changes: dict[int, int] = {}
    for life in lifetimes:
        nbytes = -(-life.nbytes // _ALIGNMENT) * _ALIGNMENT
        changes[life.first] = changes.get(life.first, 0) + nbytes
        changes[life.last + 1] = changes.get(life.last + 1, 0) - nbytes
    peak = alive = 0
    for step in sorted(changes):
        alive += changes[step]
        peak = max(peak, alive)
    return peak
