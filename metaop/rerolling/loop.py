"""A loop: what each step reads and makes, and what becomes of its results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from metaop.rerolling.elements import Placed, Stacked, Value, Whole
from metaop.unified_graph.recording import Call


class Own(NamedTuple):
    """A result of a call of the same step, by the number of the call in the step."""

    call: int
    output: int


class Carried(NamedTuple):
    """A result of the step before; the first step reads `first`, any value if that is None."""

    call: int
    output: int
    first: Value | None


class Delayed(NamedTuple):
    """A result of the step before the last one; the first step reads `first`.

    The second step reads what `carried` is in the first.
    """

    carried: Carried
    first: Value


class Slices(NamedTuple):
    """The elements of a whole that steps read one after another: `start`, `start + stride`, …"""

    whole: Whole
    dim: int
    start: int
    stride: int
    length: int


class Singles(NamedTuple):
    """Numbers of the host, one for each step."""

    values: tuple[Value, ...]


Source = Own | Carried | Delayed | Slices | Singles | Value


class Gathered(NamedTuple):
    """A tensor into which each step puts an element, which happens after the loop.

    Elements are written, or added if `adds`. The result is that of call number `call` in the last
    step; `first` is the tensor before the first. `placed` is the place of the first step, and the
    indices follow each other at a `stride`.
    """

    call: int
    adds: bool
    first: Value
    placed: Placed
    stride: int
    element: Own | Slices


@dataclass
class Loop:
    """Copies of calls as one loop.

    `sources` gives for each call of a step what it reads; what is `gathered` and what takes
    elements has none. `finals` and `stacks` are the results that the program needs: of the last
    step, and of all.
    """

    number: int
    copies: list[Sequence[Call]]
    reverse: bool
    sources: dict[int, list[Source]]
    gathered: list[Gathered]
    finals: dict[Own, None] = field(default_factory=dict)
    stacks: dict[Own, None] = field(default_factory=dict)

    def position(self, copy: int) -> int:
        """The position of a copy in a stack."""
        return len(self.copies) - 1 - copy if self.reverse else copy

    def read(self) -> Iterator[Source]:
        """All that its steps read."""
        for sources in self.sources.values():
            yield from sources

    def is_recurrent(self) -> bool:
        """Whether what a step makes depends on all steps before.

        Otherwise copies may still depend on the last few, if they begin in the middle of a step.
        """
        waiting = {call: set(self._calls_behind(call)) for call in self.sources}
        while waiting:
            ready = [call for call, needed in waiting.items() if needed.isdisjoint(waiting)]
            if not ready:
                return True
            for call in ready:
                del waiting[call]
        return False

    def _calls_behind(self, call: int) -> Iterator[int]:
        for source in self.sources[call]:
            if isinstance(source, Delayed):
                yield source.carried.call
            elif isinstance(source, Own | Carried):
                yield source.call

    def stack_of(self, own: Own) -> Slices:
        """The results of a call in the order of the copies."""
        count = len(self.copies)
        start, stride = (count - 1, -1) if self.reverse else (0, 1)
        return Slices(Whole(Stacked(self.number, *own)), 0, start, stride, count)
