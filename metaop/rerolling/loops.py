"""The loops of a recorded program: runs of calls that repeat, cut into copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metaop.rerolling.elements import Element, Stacked, Value, Whole
from metaop.rerolling.loop import Loop
from metaop.rerolling.periods import FEWEST_COPIES, Run
from metaop.rerolling.recorded import Recorded
from metaop.rerolling.steps import FEWEST_CALLS, Steps
from metaop.unified_graph.node import topological
from metaop.unified_graph.recording import Call

# A run is cut into copies at so many places at most, those where the fewest values cross first.
_MOST_CUTS = 8
_MOST_WORK = 1 << 14
# Copies with more calls take long to compile.
_LONG = 1 << 10
# Values of fewer elements stay in the nearest caches.
_SMALL = 1 << 14
# A contraction has at least so many products for each element of its result.
_CONTRACTION = 8


class Loops:
    """The loops of a recorded program; `home` is the place of their calls: loop, copy, number."""

    def __init__(self, recorded: Recorded, runs: Sequence[Run]) -> None:
        self.recorded = recorded
        self.found: list[Loop] = []
        self.home: dict[Call, tuple[Loop, int, int]] = {}
        self._places = {call: place for place, call in enumerate(recorded.calls)}
        for run in runs:
            self._take(run)

    def _take(self, run: Run) -> None:
        """Finds the longest loop of a run, then others in what is left of it."""
        if run.end - run.start < FEWEST_COPIES * run.period:
            return
        for copies in self._cuts(run):
            loop = Steps(self.recorded, self.element, copies).loop(len(self.found))
            if loop is not None and _pays(loop) and not self._keeps_results(loop):
                self._add(loop)
                start, end = self._places[loop.copies[0][0]], self._places[loop.copies[-1][-1]]
                self._take(run._replace(end=start))
                self._take(run._replace(start=end + 1))
                return

    def element(self, value: Value) -> Element | None:
        """A value as an element of a stack or of another tensor, if it is one."""
        place = self.home.get(value[0])
        if place is None:
            return self.recorded.elements.get(value)
        loop, copy, call = place
        if call not in loop.sources:
            return self.recorded.elements.get(value)
        return Element(Whole(Stacked(loop.number, call, value[1])), 0, loop.position(copy))

    def gradient_part(self, value: Value) -> Element | None:
        """What a value is taken from if its own call is not needed, because it is a gradient."""
        signature = value[0].signature
        assert signature is not None
        is_gradient = signature.composite.derivation is not None
        return self.recorded.elements.get(value) if is_gradient else None

    def _keeps_results(self, loop: Loop) -> bool:
        """Whether most copies have results that outlive the program, and none depends on another.

        So layers of a network are made. As parts of one stack their memory could not be reused.
        """
        if loop.is_recurrent():
            return False
        kept = {call for call, _ in self.recorded.outputs}
        return sum(not kept.isdisjoint(calls) for calls in loop.copies) * 2 > len(loop.copies)

    def _add(self, loop: Loop) -> None:
        self.found.append(loop)
        for copy, calls in enumerate(loop.copies):
            for number, call in enumerate(calls):
                self.home[call] = loop, copy, number

    def _cuts(self, run: Run) -> Iterator[list[Sequence[Call]]]:
        """The ways to cut a run into copies, those with the fewest carried values first."""
        calls, period = self.recorded.calls[run.start : run.end], run.period
        if (len(calls) // period - 1) * period < FEWEST_CALLS:
            return
        starts = range(len(calls) % period + 1)
        if len(starts) * period > _MOST_WORK:
            starts = range(1)
        middle = len(calls) // period // 2 * period
        where = {call: number for number, call in enumerate(calls)}

        def crossing(start: int) -> int:
            crossed = set()
            for call in calls[start + middle - period : start + middle]:
                for value in self.recorded.operands[call]:
                    if where.get(value[0], middle) < start + middle - period:
                        crossed.add(value)
            return len(crossed)

        for start in sorted(starts, key=crossing)[:_MOST_CUTS]:
            count = (len(calls) - start) // period
            yield [calls[start + k * period : start + (k + 1) * period] for k in range(count)]


def _pays(loop: Loop) -> bool:
    """Whether a loop is likely to be at least as fast as its copies, or much quicker to compile.

    Between copies values stay in registers where no contraction is, which a loop passes through
    memory; that costs nothing as long as they are small.
    """
    calls = [loop.copies[0][number] for number in loop.sources]
    if len(calls) * len(loop.copies) > _LONG:
        return True
    templates = [call.signature.outputs for call in calls]  # type: ignore[union-attr]
    largest = max((node.size for made in templates for node in made), default=0)
    work = max((node.size for made in templates for node in topological(made)), default=0)
    return largest <= _SMALL or work >= _CONTRACTION * largest
