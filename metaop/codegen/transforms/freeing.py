"""Runs launches that free memory early, such as a weight's gradient once its factors exist."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.schedule import Schedule, donations, last_failure
from metaop.unified_graph.node import Input, Node

# The most launches that run earlier for the sake of one.
_MOST = 4


def free_early(schedule: Schedule) -> Schedule:
    """The launches in an order in which those that free more memory than they take run early.

    A launch that overwrites an input stays after all that read it, and after all that may fail.
    """
    return schedule._replace(launches=_Early(schedule).launches())


class _Early:
    """Builds the order; launches are numbers, and `_left` has those that still use a temporary."""

    def __init__(self, schedule: Schedule) -> None:
        self._launches = schedule.launches
        outputs = set(schedule.outputs)
        self._left: dict[Node, set[int]] = {}
        for number, launch in enumerate(self._launches):
            for node in launch.buffers:
                if not isinstance(node.op, Input) and node not in outputs:
                    self._left.setdefault(node, set()).add(number)
        self._needs = [_earlier(self._launches, number) for number in range(len(self._launches))]
        self._keep_donations(schedule)
        self._there: set[Node] = set()
        self._done: dict[int, None] = {}

    def launches(self) -> tuple[LoweredKernel, ...]:
        for number in range(len(self._launches)):
            self._run([number])
        return tuple(self._launches[number] for number in self._done)

    def _keep_donations(self, schedule: Schedule) -> None:
        """Makes launches that overwrite an input wait for all that must come before."""
        failures = set(range(last_failure(self._launches) + 1))
        for output, source in donations(schedule).items():
            writers = [k for k, one in enumerate(self._launches) if output in one.buffers]
            readers = {k for k, one in enumerate(self._launches) if source in one.buffers}
            for number in writers:
                self._needs[number] |= (failures | readers).difference(writers)

    def _run(self, numbers: list[int]) -> None:
        """Runs launches, and after them those that then free memory."""
        pending = numbers
        while pending:
            number = pending.pop(0)
            if number in self._done:
                continue
            self._done[number] = None
            touched = [node for node in self._launches[number].buffers if node in self._left]
            self._there.update(touched)
            for node in touched:
                self._left[node].discard(number)
            following = sorted({k for node in touched for k in self._left[node]})
            for other in following:
                wanted = self._missing(other)
                if wanted and self._taken(wanted) <= 0:
                    pending = wanted + pending
                    break

    def _missing(self, number: int) -> list[int]:
        """A launch after those that it needs and that have not run; empty if they are many."""
        found, stack = {number}, [number]
        while stack and len(found) <= _MOST:
            new = self._needs[stack.pop()].difference(self._done, found)
            found |= new
            stack.extend(new)
        return sorted(found) if len(found) <= _MOST else []

    def _taken(self, numbers: Sequence[int]) -> int:
        """The bytes that launches allocate, less those that they free."""
        touched = {x for k in numbers for x in self._launches[k].buffers if x in self._left}
        taken = sum(node.nbytes for node in touched if node not in self._there)
        return taken - sum(x.nbytes for x in touched if self._left[x].issubset(numbers))


def _earlier(launches: Sequence[LoweredKernel], number: int) -> set[int]:
    """The launches that must run before another: they share a buffer that one of them writes."""
    roles = dict(zip(launches[number].buffers, launches[number].nest.parameters))
    found = set()
    for other in range(number):
        for node, parameter in zip(launches[other].buffers, launches[other].nest.parameters):
            shared = roles.get(node)
            if shared is not None and (shared.role != "read" or parameter.role != "read"):
                found.add(other)
    return found
