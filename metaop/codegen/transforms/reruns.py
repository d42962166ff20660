"""Rematerialisation: launches run again, so that their results need not stay in memory.

The launches of a program run in order under a limit of bytes. If the next one does not fit, a value
that is not needed yet is evicted: the one that is cheapest to compute again, relative to its bytes
and to the time that it would wait. Just before a launch reads an evicted value, the launches that
make it run again, on other buffers. Where there is a file for it, a value may be spilled instead,
once, and fetched as often as it is read. After M. Kirisame and others, "Dynamic tensor
rematerialization", 2021; but here the next read of each value is known.

Only the buffers and the order of launches change, so all results are bitwise the same.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from metaop.codegen.estimate import program_work
from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.lowering.contractions.prepacked import Prepacked
from metaop.codegen.schedule import Schedule, donations, pairs_of
from metaop.codegen.transforms.spilling import copied, in_file
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.code import Code
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import Input, Node

# The bytes that move in the time of a multiplication, and a launch in multiplications.
_BYTES = 0.2
_LAUNCH = 1 << 17
# The same for a disk, a tenth as fast as memory.
_BYTES_OF_DISK = 0.02
# Steps of an order that are no launches of the program.
_SPILL, _FETCH = -1, -2


class Unit(NamedTuple):
    """The launches that write a temporary, which run again together.

    `operands` are the temporaries that they read, `results` all that they write, of which they
    complete those in `made`; `cost` is in multiplications. They can run again until the launch with
    the number `deadline`, which overwrites an input of theirs.
    """

    launches: tuple[int, ...]
    operands: tuple[Node, ...]
    results: tuple[Node, ...]
    made: frozenset[Node]
    cost: float
    deadline: float


class Program:
    """The facts about the launches of a schedule before any runs again.

    `read` and `written` have the buffers of each launch without inputs, and `pairs` says which of
    its results may take the memory of which operand. For each temporary, `touched` has the launches
    that use it, and `unit` those that can make it again, if any. `times` is the start of each
    launch in multiplications, and `cost` the end of the last one.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.launches = schedule.launches
        self.outputs = set(schedule.outputs)
        self.read = [_without_inputs(launch.read) for launch in self.launches]
        self.written = [_without_inputs(launch.written) for launch in self.launches]
        self.pairs = [
            [
                (launch.buffers[result], launch.buffers[operand])
                for result, operand in pairs_of(launch)
            ]
            for launch in self.launches
        ]
        self.touched: dict[Node, list[int]] = {}
        for number, launch in enumerate(self.launches):
            for node in set(launch.buffers):
                if self.is_temporary(node):
                    self.touched.setdefault(node, []).append(number)
        costs = [
            work.operations + work.nbytes / _BYTES + _LAUNCH
            for work in program_work(schedule).kernels
        ]
        self.times = [0.0, *accumulate(costs)]
        self.cost = self.times[-1]
        self._writers: dict[Node, tuple[int, ...]] = {}
        for number, nodes in enumerate(self.written):
            for node in nodes:
                self._writers[node] = (*self._writers.get(node, ()), number)
        self._overwritten = {
            source: self.written_last(output) for output, source in donations(schedule).items()
        }
        made: dict[tuple[int, ...], Unit | None] = {}
        self.unit: dict[Node, Unit] = {}
        for node, numbers in self._writers.items():
            if self.is_temporary(node) and self._is_whole(node, numbers):
                if numbers not in made:
                    made[numbers] = self._unit(numbers, costs)
                unit = made[numbers]
                if unit is not None:
                    self.unit[node] = unit

    def is_temporary(self, node: Node) -> bool:
        """Whether a buffer is neither an input nor an output."""
        return not isinstance(node.op, Input) and node not in self.outputs

    def next_use(self, node: Node, now: int) -> int | None:
        """The first launch, from a number on, that uses a temporary."""
        touched = self.touched[node]
        place = bisect_left(touched, now)
        return touched[place] if place < len(touched) else None

    def written_last(self, node: Node) -> int:
        """The launch after which a buffer is complete."""
        return self._writers[node][-1]

    def _is_whole(self, node: Node, numbers: tuple[int, ...]) -> bool:
        """Whether all launches that write a buffer have run before another reads it."""
        readers = range(numbers[0], numbers[-1])
        return not any(k not in numbers and node in self.read[k] for k in readers)

    def _unit(self, numbers: tuple[int, ...], costs: Sequence[float]) -> Unit | None:
        """The unit of some launches; None if running them again would not give the same."""
        launches = [self.launches[number] for number in numbers]
        results = list(dict.fromkeys(node for k in numbers for node in self.written[k]))
        if any(isinstance(node.op, (Code, Loop)) for node in results):
            return None
        for number in numbers:
            for node in set(results).intersection(self.read[number]):
                if any(k <= number and k not in numbers for k in self._writers[node]):
                    return None
        buffers = {node for launch in launches for node in launch.buffers}
        read = dict.fromkeys(node for number in numbers for node in self.read[number])
        return Unit(
            numbers,
            tuple(node for node in read if node not in results and self.is_temporary(node)),
            tuple(results),
            frozenset(
                node
                for node in results
                if self.is_temporary(node) and set(self._writers[node]).issubset(numbers)
            ),
            sum(costs[number] for number in numbers),
            min((k for x, k in self._overwritten.items() if x in buffers), default=math.inf),
        )


def _without_inputs(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes that are no inputs of the program, each once."""
    return tuple(dict.fromkeys(node for node in nodes if not isinstance(node.op, Input)))


class NoRoomError(Exception):
    """The operands and results of some launch do not fit the limit together."""


class Order:
    """The launches of a program under a `limit` of bytes for the values that they exchange.

    `patience` is the exponent of the time that a value would wait; `spills` says whether there is a
    file. Raises `NoRoomError`.
    """

    def __init__(self, program: Program, limit: int, patience: float, spills: bool = False) -> None:
        self.cost = 0.0
        self._spills = spills
        # The values in the file, each with what fetches it.
        self._in_file: dict[Node, Unit] = {}
        self._program = program
        self._limit, self._patience = limit, patience
        self._now = 0
        self._alive = 0
        # The values in memory, and the number of their copy; 0 is the original.
        self._there: dict[Node, int] = {}
        self._copies: Counter[Node] = Counter()
        # The number of launches about to run that read a value.
        self._pinned: Counter[Node] = Counter()
        # The launches, the copies on which they run, and whether they are reruns.
        self._order: list[tuple[int, dict[Node, int], bool]] = []
        for number in range(len(program.launches)):
            self._now = number
            self._next(number)

    def launches(self) -> tuple[LoweredKernel, ...]:
        """The launches with the buffers on which they run."""
        again: dict[tuple[Node, int], Node] = {}

        def copy(node: Node, number: int) -> Node:
            if not number:
                return node
            if (node, number) not in again:
                source, identity = copy(node, number - 1), IndexMap.identity(node.shape)
                again[node, number] = Node(Reindex(identity), (source,), node.shape, node.dtype)
            return again[node, number]

        found = []
        for number, copies, is_rerun in self._order:
            if number < 0:
                ((node, k),) = copies.items()
                near, far = copy(node, k), in_file(node)
                found.append(copied(near, far) if number == _SPILL else copied(far, near))
                continue
            launch = self._program.launches[number]
            if any(copies.values()):
                others = {node: copy(node, k) for node, k in copies.items()}
                launch = _on_others(launch, others, is_rerun)
            found.append(launch)
        return tuple(found)

    def _next(self, number: int) -> None:
        """Runs a launch, after the reruns for what it reads."""
        program = self._program
        operands = list(filter(program.is_temporary, program.read[number]))
        made = list(filter(program.is_temporary, program.written[number]))
        touched = list(dict.fromkeys((*operands, *made)))
        self._pinned.update(touched)
        # A launch may read what it has written itself.
        earlier = [node for node in operands if program.touched[node][0] < number]
        for unit in self._missing(earlier):
            self._run_again(unit)
        self._now = number + 1
        new = [node for node in made if node not in self._there]
        self._make_room(new, operands, program.pairs[number])
        self._there.update(dict.fromkeys(new, 0))
        self._order.append((number, {node: self._there[node] for node in touched}, False))
        self._release(touched)
        self._forget_dead(touched)

    def _missing(self, wanted: Iterable[Node]) -> list[Unit]:
        """The reruns that values need, in order; their operands are pinned."""
        found: dict[Unit, None] = {}
        stack = [(node, False) for node in wanted]
        while stack:
            node, is_ready = stack.pop()
            if node in self._there:
                continue
            unit = self._in_file.get(node) or self._program.unit[node]
            if is_ready:
                found[unit] = None
            elif unit not in found:
                stack.append((node, True))
                stack.extend((operand, False) for operand in unit.operands)
        for unit in found:
            self._pinned.update(unit.operands)
        return list(found)

    def _run_again(self, unit: Unit) -> None:
        is_launch = len(unit.launches) == 1 and unit.launches[0] >= 0
        pairs = self._program.pairs[unit.launches[0]] if is_launch else []
        self._make_room(unit.results, unit.operands, pairs)
        made = {}
        for node in unit.results:
            self._copies[node] += 1
            made[node] = self._copies[node]
        copies = {node: self._there[node] for node in unit.operands} | made
        for number in unit.launches:
            buffers = unit.results if number < 0 else self._program.launches[number].buffers
            self._order.append((number, {x: copies[x] for x in buffers if x in copies}, True))
        self.cost += unit.cost
        for node in unit.results:
            if node in unit.made and node not in self._there:
                self._there[node] = made[node]
            else:
                self._alive -= node.nbytes
        self._release(unit.operands)
        self._forget_dead((*unit.operands, *unit.results))

    def _make_room(
        self, new: Sequence[Node], operands: Sequence[Node], pairs: Sequence[tuple[Node, Node]]
    ) -> None:
        """Evicts values until those in `new` fit; they may take the memory of operands that die."""
        nbytes = sum(node.nbytes for node in new)
        taken: set[Node] = set()
        for result, operand in pairs:
            if result in new and operand in operands and self._dies(operand):
                if operand.nbytes == result.nbytes and operand not in taken:
                    taken.add(operand)
                    nbytes -= result.nbytes
                    new = [node for node in new if node is not result]
        while self._alive + nbytes > self._limit:
            node, is_spilled = self._cheapest()
            if is_spilled and node not in self._in_file:
                self._spill(node)
            self._forget(node)
        self._alive += nbytes + sum(operand.nbytes for operand in taken)

    def _dies(self, operand: Node) -> bool:
        """Whether the current launch is the last that reads a value."""
        is_last = self._program.next_use(operand, self._now) is None
        return is_last and self._pinned[operand] == 1

    def _release(self, operands: Iterable[Node]) -> None:
        for node in operands:
            self._pinned[node] -= 1

    def _forget_dead(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            is_used = self._pinned[node] or node not in self._there
            if not is_used and self._program.next_use(node, self._now) is None:
                self._forget(node)

    def _forget(self, node: Node) -> None:
        del self._there[node]
        self._alive -= node.nbytes

    def _spill(self, node: Node) -> None:
        """Copies a value to the file."""
        self._order.append((_SPILL, {node: self._there[node]}, False))
        self.cost += _transfer(node)
        alone = frozenset([node])
        self._in_file[node] = Unit((_FETCH,), (), (node,), alone, _transfer(node), math.inf)

    def _cheapest(self) -> tuple[Node, bool]:
        """The best value to evict, and whether it is spilled rather than made again.

        Raises NoRoomError if there is none.
        """
        best, least = None, math.inf
        for node in self._there:
            is_unfinished = self._program.written_last(node) >= self._now
            if self._pinned[node] or is_unfinished or not node.nbytes:
                continue
            use = self._program.next_use(node, self._now)
            assert use is not None
            times = self._program.times
            waits = (times[use] - times[max(self._now - 1, 0)]) ** self._patience
            if node not in self._in_file:
                cost = self._cost(node, use) / (self._freed(node, use) * waits)
                if cost < least:
                    best, least = (node, False), cost
            # A prepared factor has padding that nobody has written, and is soon made again.
            if self._spills and not isinstance(node.op, Prepacked):
                ways = 1 if node in self._in_file else 2
                cost = ways * _transfer(node) / (node.nbytes * waits)
                if cost < least:
                    best, least = (node, True), cost
        if best is None:
            raise NoRoomError
        return best

    def _freed(self, node: Node, use: int) -> int:
        """The bytes of a value, and of those that its rerun restores before they are needed."""
        unit = self._program.unit.get(node)
        others = () if unit is None else unit.made.intersection(self._there).difference([node])
        following = (other for other in others if not self._pinned[other])
        return node.nbytes + sum(x.nbytes for x in following if self._is_needed(x, use))

    def _is_needed(self, node: Node, use: int) -> bool:
        """Whether the next use of a value is not before a launch."""
        found = self._program.next_use(node, self._now)
        return found is not None and found >= use

    def _cost(self, node: Node, use: int) -> float:
        """The cost of making a value again just before a launch; infinite if that is impossible."""
        own = self._program.unit.get(node)
        gone = () if own is None else own.made.difference(self._there, self._in_file)
        for other in gone:
            found = self._program.next_use(other, self._now)
            if found is not None and found <= use:
                return 0.0  # it comes back with the other one
        total = 0.0
        units: set[Unit] = set()
        stack = [node]
        while stack:
            value = stack.pop()
            unit = self._in_file.get(value) or self._program.unit.get(value)
            if unit is None or unit.deadline < use:
                return math.inf
            if unit in units:
                continue
            units.add(unit)
            total += unit.cost
            stack.extend(x for x in unit.operands if not self._is_there_at(x, use))
        return total

    def _is_there_at(self, node: Node, use: int) -> bool:
        """Whether a value is in memory at the start of a launch that does not read it."""
        return node in self._there and self._program.touched[node][-1] >= use


def _transfer(node: Node) -> float:
    """The cost of copying a value to the file or back."""
    return node.nbytes / _BYTES_OF_DISK + _LAUNCH


def _on_others(launch: LoweredKernel, others: dict[Node, Node], is_rerun: bool) -> LoweredKernel:
    """A launch on other buffers."""

    def named(nodes: Iterable[Node]) -> tuple[Node, ...]:
        return tuple(others.get(node, node) for node in nodes)

    repetition = launch.repetition
    if repetition is not None:
        repetition = repetition._replace(operands=named(repetition.operands))
    return replace(launch, buffers=named(launch.buffers), repetition=repetition, is_rerun=is_rerun)
