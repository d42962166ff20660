"""Copies of calls as the steps of a loop: whether each reads as the one before."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from metaop.differentiation.tape import add_cotangents
from metaop.rerolling.elements import Element, Stacked, Value, Whole
from metaop.rerolling.loop import Carried, Delayed, Gathered, Loop, Own, Singles, Slices, Source
from metaop.rerolling.periods import FEWEST_COPIES
from metaop.rerolling.recorded import Recorded
from metaop.unified_graph.recording import Call

# Loops of fewer calls are not worth a change.
FEWEST_CALLS = 12
# Values are carried for so many steps at most.
_LONGEST_LAG = 2


class Steps:
    """Copies that may be steps: looks for the longest range of them that read alike."""

    def __init__(
        self,
        recorded: Recorded,
        element: Callable[[Value], Element | None],
        copies: list[Sequence[Call]],
    ) -> None:
        self.recorded, self.element, self.copies = recorded, element, copies
        self.period = len(copies[0])
        self.inside = {
            call: (copy, number)
            for copy, calls in enumerate(copies)
            for number, call in enumerate(calls)
        }
        middle = len(copies) // 2
        self.taking = {k for k in range(self.period) if self._takes(middle, k)}
        self.writing = {k for k in range(self.period) if self._writes(middle, k)}
        # What places an element in zeros, and what adds that up.
        self.adding = dict(self._sums(middle))
        removed = self.taking.union(self.writing, self.adding, self.adding.values())
        self.body = [k for k in range(self.period) if k not in removed]

    def _takes(self, copy: int, number: int) -> bool:
        """Whether a call takes the elements of something outside, one after another."""
        one, other = self._taken(copy - 1, number), self._taken(copy, number)
        if one is None or other is None or one.whole != other.whole:
            return False
        source = one.whole.source
        return isinstance(source, Stacked) or source[0] not in self.inside

    def _taken(self, copy: int, number: int) -> Element | None:
        call = self.copies[copy][number]
        output = self.recorded.takes.get(call)
        return None if output is None else self.recorded.elements[call, output]

    def _writes(self, copy: int, number: int) -> bool:
        """Whether a call writes into what the same call has written before, which only it reads."""
        one, other = self.copies[copy - 1][number], self.copies[copy][number]
        if other not in self.recorded.written or one.signature is other.signature:
            return False
        return self._is_passed_on(one, other)

    def _is_passed_on(self, one: Call, other: Call) -> bool:
        is_read = (one, 0) in self.recorded.operands[other]
        return is_read and self.recorded.users[one, 0] == [other]

    def _sums(self, copy: int) -> Iterator[tuple[int, int]]:
        """The calls that place elements at indices of their own, and those that add them up."""
        for number, call in enumerate(self.copies[copy]):
            if call not in self.recorded.placed:
                continue
            users = self.recorded.users[call, 0]
            place = self.inside.get(users[0]) if len(users) == 1 and users[0] else None
            is_alike = call.signature is self.copies[copy - 1][number].signature
            if place is None or place[0] != copy or is_alike:
                continue
            total = self.copies[copy][place[1]]
            is_sum = total.signature.composite is add_cotangents  # type: ignore[union-attr]
            if is_sum and self._is_passed_on(self.copies[copy - 1][place[1]], total):
                yield number, place[1]

    def loop(self, number: int) -> Loop | None:
        """Loop number `number`, or None if too few copies read alike."""
        codes = [self._code(copy) for copy in range(1, len(self.copies))]
        first, last = _longest_of_equals(codes)
        # The codes describe how a copy follows the one before.
        copies = self.copies[first : last + 1] if last > first else []
        if copies and not self._starts(first):
            copies = copies[1:]
            first += 1
        if len(copies) < FEWEST_COPIES or (len(copies) - 1) * self.period < FEWEST_CALLS:
            return None
        strides = [
            relation.stride
            for relations in codes[first]  # type: ignore[union-attr]
            for relation in relations
            if isinstance(relation, _Following)
        ]
        reverse = sum(stride < 0 for stride in strides) > sum(stride > 0 for stride in strides)
        loop = Loop(number, copies, reverse, {}, [])
        for call in self.body:
            count = len(self.recorded.operands[copies[0][call]])
            loop.sources[call] = [self._source(copies, call, k) for k in range(count)]
        places = [(place, adds, True) for place, adds in self.adding.items()]
        places += [(number, number, False) for number in self.writing]
        for place, call, adds in places:
            gathered = self._gathered(copies, place, call, adds)
            if gathered is None:
                return None
            loop.gathered.append(gathered)
        return loop

    # --- how a copy follows the one before ----------------------------------------------------

    def _code(self, copy: int) -> tuple[tuple[Hashable, ...], ...] | None:
        """What the calls of a copy read; None if it does not follow the copy before.

        Copies with the same code are steps of one loop.
        """
        found = []
        for number in range(self.period):
            relations = self._relations(copy, number)
            if None in relations:
                return None
            found.append(tuple(relations))
        return tuple(found)

    def _relations(self, copy: int, number: int) -> list[Hashable]:
        one, other = self.copies[copy - 1][number], self.copies[copy][number]
        if number in self.taking:
            output = self.recorded.takes[other]
            return [self._following((one, output), (other, output))]
        if number in self.adding:
            placed = self.recorded.placed
            stride = placed[other].at - placed[one].at
            is_added = self.recorded.users[other, 0] == [self.copies[copy][self.adding[number]]]
            return [self._relation(copy, number, 0), stride or None, is_added or None]
        if number in self.writing:
            written = self.recorded.written
            stride = written[other].at - written[one].at
            # Only the last result may be read by others.
            base, _ = self.recorded.operands[other]
            is_next = base == (one, 0) and self._is_passed_on(one, other)
            return [self._relation(copy, number, 1), stride or None, is_next or None]
        if number in self.adding.values():
            (place,) = (k for k, adds in self.adding.items() if adds == number)
            expected = {(one, 0), (self.copies[copy][place], 0)}
            is_sum = set(self.recorded.operands[other]) == expected
            return [(is_sum and self._is_passed_on(one, other)) or None]
        if one.signature is not other.signature:
            return [None]
        count = len(self.recorded.operands[other])
        return [self._relation(copy, number, k) for k in range(count)]

    def _relation(self, copy: int, number: int, operand: int) -> Hashable:
        """How a copy's operand follows that of the copy before; None for in no way.

        A result of a call of the steps is a `_Result`.
        """
        value = self.recorded.operands[self.copies[copy][number]][operand]
        place = self.inside.get(value[0])
        if place is not None and place[1] not in self.taking:
            lag = copy - place[0]
            is_near = place[1] in self.body and lag <= _LONGEST_LAG
            return _Result(lag, place[1], value[1]) if is_near else None
        before = self.recorded.operands[self.copies[copy - 1][number]][operand]
        return self._following(before, value)

    def _following(self, before: Value, value: Value) -> Hashable:
        if before == value:
            return "same"
        if _is_number(before[0]) and _is_number(value[0]):
            return "number"
        one, other = self.element(before), self.element(value)
        if one is None or other is None or one[:2] != other[:2]:
            return None
        if one == other:
            return "same"
        source = one.whole.source
        if not isinstance(source, Stacked) and source[0] in self.inside:
            return None
        return _Following(other.whole, other.dim, other.at - one.at)

    def _starts(self, first: int) -> bool:
        """Whether a copy can be the first: what it makes itself it reads as the others do."""
        read = [
            (number, operand)
            for number in self.body
            for operand in range(len(self.recorded.operands[self.copies[first][number]]))
        ]
        read += [(number, 0) for number in self.adding] + [(number, 1) for number in self.writing]
        for number, operand in read:
            value = self.recorded.operands[self.copies[first][number]][operand]
            place = self.inside.get(value[0])
            relation = self._relation(first + 1, number, operand)
            if isinstance(relation, _Result) and not relation.lag:
                if place != (first, relation.call) or value[1] != relation.output:
                    return False
            elif place and place[0] >= first and place[1] not in self.taking:
                return False
        for place_number, adds in self.adding.items():
            placed, total = (self.copies[first][k] for k in (place_number, adds))
            if self.recorded.operands[total].count((placed, 0)) != 1:
                return False
            if self.recorded.users[placed, 0] != [total]:
                return False
        return True

    # --- what steps read ----------------------------------------------------------------------

    def _source(self, copies: list[Sequence[Call]], number: int, operand: int) -> Source:
        second = self.inside[copies[1][number]][0]
        relation = self._relation(second, number, operand)
        values = [self.recorded.operands[calls[number]][operand] for calls in copies]
        if isinstance(relation, _Following):
            element = self.element(values[0])
            assert element is not None
            return Slices(*element, relation.stride, len(copies))
        if relation == "number":
            return Singles(tuple(values))
        if relation == "same":
            return values[0]
        assert isinstance(relation, _Result)
        lag, call, output = relation
        if not lag:
            return Own(call, output)
        carried = Carried(call, output, values[lag - 1])
        return carried if lag == 1 else Delayed(carried, values[0])

    def _gathered(
        self, copies: list[Sequence[Call]], place: int, call: int, adds: bool
    ) -> Gathered | None:
        element = self._source(copies, place, 0 if adds else 1)
        known = self.recorded.placed if adds else self.recorded.written
        first, second = known[copies[0][place]], known[copies[1][place]]
        stride = second.at - first.at
        if not isinstance(element, Own | Slices) or (first.length > 1 < abs(stride)):
            return None
        operands = self.recorded.operands[copies[0][call]]
        before = operands[0]
        if adds:
            (before,) = (value for value in operands if value != (copies[0][place], 0))
        return Gathered(call, adds, before, first, stride, element)


class _Result(NamedTuple):
    """A result of a call of the same step, or of one so many steps before."""

    lag: int
    call: int
    output: int


class _Following(NamedTuple):
    """Elements of a whole that follow each other at a distance."""

    whole: Whole
    dim: int
    stride: int


def _is_number(call: Call) -> bool:
    return call.scalar is not None


def _longest_of_equals(codes: Sequence[object]) -> tuple[int, int]:
    """The first and the last position of the longest range of equal codes, plus one copy before.

    Code number `k` belongs to copy `k + 1`, so the copies are those from `first` to `last`.
    """
    best = 0, 0
    start = 0
    for end in range(1, len(codes) + 1):
        if end == len(codes) or codes[end] is None or codes[end] != codes[start]:
            if codes[start] is not None and end - start > best[1] - best[0]:
                best = start, end
            start = end
    return best
