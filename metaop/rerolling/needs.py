"""What the outputs of a subgraph need of its calls and loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from metaop.operators import shaping
from metaop.rerolling.elements import Stacked, Value
from metaop.rerolling.loop import Carried, Delayed, Loop, Own, Singles, Slices, Source
from metaop.rerolling.loops import Loops
from metaop.rerolling.periods import FEWEST_COPIES
from metaop.unified_graph.recording import Call


class RefusedError(Exception):
    """Something is needed that a loop cannot give."""


class Needs:
    """The `calls` outside of loops that are needed, and the loops that are `running`, by number.

    `gathering` has the numbers of the calls whose gathered results are needed, by loop. `joins` are
    the pieces of which a `stack` or `concatenate` is made: consecutive elements, and other values.
    Loops learn which of their results are needed. Raises RefusedError.
    """

    def __init__(self, loops: Loops) -> None:
        self._loops, self._recorded = loops, loops.recorded
        self.calls: set[Call] = set()
        self.running: set[int] = set()
        self.gathering: dict[int, set[int]] = defaultdict(set)
        self.joins: dict[Call, list[Slices | Value]] = {}
        self._follow()

    def _follow(self) -> None:
        waiting: list[Source] = list(self._recorded.outputs)
        seen: set[Source] = set()
        while waiting:
            source = waiting.pop()
            if source not in seen:
                seen.add(source)
                waiting.extend(self._behind(source))

    def _behind(self, source: Source) -> Iterator[Source]:
        """What a source is computed from; notes what loops must return for it."""
        if isinstance(source, Slices):
            origin = source.whole.source
            if isinstance(origin, Stacked):
                loop, *own = origin
                yield from self._stack(self._loops.found[loop], Own(*own))
            else:
                yield origin
        elif isinstance(source, Singles):
            return
        elif isinstance(source, Delayed):
            yield source.carried
            yield source.first
        elif isinstance(source, Carried):
            if source.first is not None:
                yield source.first
        elif not isinstance(source, Own):
            yield from self._behind_value(source)

    def _behind_value(self, value: Value) -> Iterator[Source]:
        if self._recorded.is_leaf(value):
            return
        call, output = value
        place = self._loops.home.get(call)
        if place is not None:
            loop, copy, number = place
            if number in loop.sources:
                if copy == len(loop.copies) - 1:
                    loop.finals[Own(number, output)] = None
                    yield from self._loop(loop)
                else:
                    yield from self._stack(loop, Own(number, output))
                return
            if call not in self._recorded.takes:
                if output:
                    raise RefusedError
                yield from self._gather(loop, number)
                return
        element = self._loops.gradient_part(value)
        if element is not None:
            assert not isinstance(element.whole.source, Stacked)
            yield element.whole.source
            return
        if call in self.calls:
            return
        self.calls.add(call)
        join = self._join(call)
        if join is not None:
            self.joins[call] = join
            yield from join
        else:
            yield from self._recorded.operands[call]

    def _loop(self, loop: Loop) -> Iterator[Source]:
        if loop.number not in self.running:
            self.running.add(loop.number)
            yield from loop.read()

    def _stack(self, loop: Loop, own: Own) -> Iterator[Source]:
        loop.stacks[own] = None
        yield from self._loop(loop)

    def _gather(self, loop: Loop, number: int) -> Iterator[Source]:
        (gathered,) = (one for one in loop.gathered if one.call == number)
        self.gathering[loop.number].add(number)
        yield gathered.first
        if isinstance(gathered.element, Own):
            yield from self._stack(loop, gathered.element)
        else:
            yield gathered.element

    def _join(self, call: Call) -> list[Slices | Value] | None:
        """The pieces of a `stack` or `concatenate`, if many operands follow each other."""
        signature, values = call.signature, self._recorded.operands[call]
        assert signature is not None
        if signature.composite not in (shaping.stack, shaping.concatenate):
            return None
        if len(values) < FEWEST_COPIES:
            return None
        kinds = [self._recorded.kind(value) for value in values]
        if len(set(kinds)) > 1 or kinds[0].dtype is not signature.types[0].dtype:
            return None
        pieces: list[Slices | Value] = []
        for value in values:
            element = self._loops.element(value)
            last = pieces[-1] if pieces else None
            if element is None:
                pieces.append(value)
            elif isinstance(last, Slices) and last[:2] == element[:2]:
                stride = element.at - (last.start + (last.length - 1) * last.stride)
                if last.length == 1 or stride == last.stride:
                    pieces[-1] = last._replace(length=last.length + 1, stride=stride)
                else:
                    pieces.append(Slices(*element, 1, 1))
            else:
                pieces.append(Slices(*element, 1, 1))
        if any(isinstance(one, Slices) and not one.stride for one in pieces):
            return None
        # What stands alone is read as it is.
        position, found = 0, []
        for piece in pieces:
            count = piece.length if isinstance(piece, Slices) else 1
            found.append(piece if count > 1 else values[position])
            position += count
        return found if len(found) <= len(values) // 2 else None
