"""Tiled groups: launches that run slice by slice, so that their intermediate values stay small.

Attention scores are written by one launch, read by the next and dead after the third. If the tasks
of launches can be cut into slices such that every slice reads only what the same slice of an
earlier launch has written, one nest runs all of them on a slice before the next begins. Values
inside the group then need scratch memory for only one slice, which stays in the nearest cache.
Nothing here knows an operator: `nest/footprint.py` derives from indices whether slices match.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.lowering.contractions.prepacked import Prepacked
from metaop.codegen.nest import ir
from metaop.codegen.nest.footprint import Interval, number_of_slice, reach
from metaop.codegen.transforms.tiled_nest import InnerLoop, TiledGroup, inner_loop, joined
from metaop.elementwise.meta_op import Elementwise
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.node import Input, Node
from metaop.unified_graph.shape_env import ShapeEnv
from metaop.unified_graph.symbolic import (
    common_divisor,
    content_of,
    divides,
    hint_of,
    is_symbolic,
    surely_less,
)

# The memory that a group must save if its slices exceed the nearest cache, and the largest slice,
# which is still allocated from pooled memory.
_MUCH, _LARGEST_SLICE = 32 << 20, 16 << 20
# The largest slice that stays in the nearest cache, relative to its size: not all of a slice is in
# use at a time.
_ROOM = 2
# The bytes that slices exchange, which are loops of many vectors; if no such slices fit, fewer.
_SLICES = (2048, 256)
# The most launches from the start to the end of a group.
_LONGEST = 16
# A launch between two members runs before them if it makes at most one part in so many of what the
# member before it makes.
_LITTLE = 2
# The slices per thread from which on threads share them evenly.
_SLICES_PER_THREAD = 2


class _Cut(NamedTuple):
    """The number of slices, and of blocks per slice, into which tasks are cut; see `TiledGroup`."""

    slices: Any
    blocks: int
    inner: tuple[InnerLoop | None, ...]


def tiled_launches(
    launches: Sequence[LoweredKernel],
    outputs: Sequence[Node],
    threads: int,
    cache_bytes: int,
    least_bytes: int,
    env: ShapeEnv | None = None,
) -> list[LoweredKernel]:
    """The launches, with neighbours that gain from it fused to groups.

    The values inside a slice of a group stay in a cache of `cache_bytes`, unless the group saves
    much memory. A group pays if launches exchange at least `least_bytes`: less stays in a cache
    anyway. Symbolic sizes have an `env`: their slices match for all sizes, and pay for the current
    ones.
    """
    finder = _Finder(launches, outputs, threads, cache_bytes, least_bytes, env)
    result: list[LoweredKernel] = []
    position = 0
    while position < len(launches):
        group = finder.best(position)
        if group is None:
            result.append(launches[position])
            position += 1
        else:
            result += [*group.ahead, joined(group)]
            position += len(group.ahead) + len(group.launches)
    return result


class _Finder:
    """Finds the tiled groups that begin at a launch; caches what slices of launches access."""

    def __init__(
        self,
        launches: Sequence[LoweredKernel],
        outputs: Sequence[Node],
        threads: int,
        cache_bytes: int,
        least_bytes: int,
        env: ShapeEnv | None,
    ) -> None:
        self.launches = launches
        self.env = env
        self.threads = threads
        self.cache_bytes = cache_bytes
        self.least_bytes = least_bytes
        self.outside = set(outputs)
        # By node, the accesses of launches to it, in order.
        self.roles: dict[Node, dict[int, str]] = {}
        for position, launch in enumerate(launches):
            for node, parameter in zip(launch.buffers, launch.nest.parameters):
                if not isinstance(node.op, Input):
                    self.roles.setdefault(node, {})[position] = parameter.role
        # By launch, the nodes that others also access, and those of them that no later launch does.
        self.exchanged: list[list[Node]] = [[] for _ in launches]
        self.last: list[list[Node]] = [[] for _ in launches]
        for node, users in self.roles.items():
            if len(users) > 1:
                self.last[max(users)].append(node)
                for position in users:
                    self.exchanged[position].append(node)
        self.inner = [inner_loop(launch.nest) for launch in launches]
        self._bodies: dict[tuple[ir.Statement, ...], int] = {}
        self._reached: dict[tuple[int, int, int, str], dict[int, Interval | None]] = {}
        self._touches: dict[tuple[int, int, int, str], dict[Node, Interval | None]] = {}

    def best(self, start: int) -> TiledGroup | None:
        """The group from `start` on with the most internal bytes; the shortest of equal ones."""
        found: TiledGroup | None = None
        common = 0
        members: list[int] = []
        private: set[Node] = set()
        ahead: list[int] = []
        for position in range(start, min(start + _LONGEST, len(self.launches))):
            if self._prepares(position) or self._is_aside(position, members):
                # It runs before the members, unless it prepares what they have made.
                if not members or self._reads_made(position, members):
                    break
                ahead.append(position)
                continue
            common = common_divisor(common, self.launches[position].nest.tasks)
            if not self._are_enough(common):
                break
            members.append(position)
            private.update(self._enclosed(members))
            nbytes = hint_of(sum(node.nbytes for node in private))
            if nbytes < self.least_bytes or (found is not None and nbytes <= hint_of(found.nbytes)):
                continue
            if not self._may_match(members, common):
                break
            cut = self._cut(members, nbytes)
            if cut is not None:
                found = TiledGroup(
                    tuple(self.launches[k] for k in ahead),
                    tuple(self.launches[k] for k in members),
                    cut.slices,
                    frozenset(private),
                    cut.blocks,
                    cut.inner,
                )
        return found

    def _cut(self, members: Sequence[int], nbytes: int) -> _Cut | None:
        """A cut of the members' tasks into matching slices.

        Slices stay in the nearest cache if possible, if necessary with sums over rows of slices
        taken block by block. If the group saves much memory, slices may be larger.
        """
        loops = [self.inner[member] for member in members]
        numbers = {loop.extent for loop in loops if loop is not None and loop.sums}
        least = -(-nbytes // (_ROOM * self.cache_bytes))
        # A symbolic loop falls into no plain number of blocks.
        for blocks in (1, *sorted(numbers - {1})) if self.env is None else (1,):
            cut = self._finest(members, nbytes, -(-least // blocks), blocks)
            if cut is not None:
                return cut
        if nbytes < _MUCH:
            return None
        return self._finest(members, nbytes, -(-nbytes // _LARGEST_SLICE), 1)

    def _may_match(self, members: Sequence[int], tasks: Any) -> bool:
        """Whether any number of slices matches, in this group or in a longer one.

        A number of slices that matches has a prime factor that does, since neighbours can be
        merged. More members have fewer common divisors, and exchange more.
        """
        made = self._made(members)
        fewest = filter(None, (tasks if is_symbolic(tasks) else 0, *_primes(content_of(tasks))))
        return any(self._fitting(members, made, slices, 1) is not None for slices in fewest)

    def _made(self, members: Sequence[int]) -> set[Node]:
        """The nodes that a member writes and another one accesses."""
        return {
            node
            for member in members
            for node in self.exchanged[member]
            if self._is_passed_on(node, members)
        }

    def _enclosed(self, members: Sequence[int]) -> Iterator[Node]:
        """The nodes that the last member accesses, and otherwise only members do."""
        for node in self.last[members[-1]]:
            if node not in self.outside and self.roles[node].keys() <= set(members):
                yield node

    def _finest(self, members: Sequence[int], nbytes: int, least: int, blocks: int) -> _Cut | None:
        """The most matching slices of a number of blocks; None if `least` slices do not match.

        Slices that match still do when neighbours are merged. Each exchanges enough of all `nbytes`
        to be worth a loop.
        """
        made = self._made(members)
        common = 0
        for member in members:
            tasks = self.launches[member].nest.tasks
            if blocks > 1 and self._inner(member, blocks) is None:
                tasks, rest = divmod(tasks, blocks)
                if rest:
                    return None
            common = common_divisor(common, tasks)
        enough = list(filter(self._are_enough, _divisors(common, least)))
        choices = (
            [number for number in enough if hint_of(number) * blocks * size <= nbytes]
            for size in _SLICES
        )
        numbers = next(filter(None, choices), [])
        if not numbers or self._fitting(members, made, numbers[-1], blocks) is None:
            return None
        cuts = (self._fitting(members, made, slices, blocks) for slices in numbers)
        return next(cut for cut in cuts if cut is not None)

    def _fitting(
        self, members: Sequence[int], made: set[Node], slices: int, blocks: int
    ) -> _Cut | None:
        """The cut into a number of slices, if no slice accesses what another one makes."""
        found: list[InnerLoop | None] = []
        for member in members:
            launch = self.launches[member]
            touched = made.intersection(launch.buffers)
            for inner in (None, self._inner(member, blocks)):
                if inner is not None:
                    places = self._touched(member, slices, blocks, inner.axis)
                elif divides(slices * blocks, launch.nest.tasks):
                    places = self._touched(member, slices * blocks)
                else:
                    continue
                if all(self._is_sliced(node, places, slices * blocks) for node in touched):
                    found.append(inner)
                    break
            else:
                return None
        return _Cut(slices, blocks, tuple(found))

    def _inner(self, member: int, blocks: int) -> InnerLoop | None:
        """The loop inside a launch's tasks that can be cut into a number of parts."""
        inner = self.inner[member]
        if inner is None or blocks == 1 or inner.extent % blocks:
            return None
        return None if inner.sums and inner.extent != blocks else inner

    def _prepares(self, position: int) -> bool:
        """Whether a launch reorders a factor."""
        return any(isinstance(node.op, Prepacked) for node in self.launches[position].written)

    def _is_aside(self, position: int, members: Sequence[int]) -> bool:
        """Whether a launch maps what no member has made to little, as positions to biases."""
        if not members or self._reads_made(position, members):
            return False
        made = self.launches[position].written
        if not all(isinstance(node.op, (Elementwise, Reindex)) for node in made):
            return False
        others = self.launches[members[-1]].written
        sizes = [sum(node.nbytes for node in nodes) for nodes in (made, others)]
        return hint_of(sizes[0]) * _LITTLE <= hint_of(sizes[1])

    def _reads_made(self, position: int, members: Sequence[int]) -> bool:
        """Whether a launch shares a value with the members that is not an input of the program."""
        made = {node for member in members for node in self.launches[member].buffers}
        shared = made.intersection(self.launches[position].buffers)
        return not all(isinstance(node.op, Input) for node in shared)

    def _are_enough(self, slices: Any) -> bool:
        """Whether threads share a number of slices evenly."""
        return hint_of(slices) >= _SLICES_PER_THREAD * self.threads

    def _is_passed_on(self, node: Node, members: Sequence[int]) -> bool:
        """Whether a launch writes what another one accesses."""
        roles = {user: role for user, role in self.roles[node].items() if user in members}
        if len(roles) == 1 or set(roles.values()) == {"read"}:
            return False
        return set(roles.values()) != {"write"} or not self._lie_apart(node, list(roles))

    def _lie_apart(self, node: Node, members: Sequence[int]) -> bool:
        """Whether launches access disjoint ranges of a node."""
        stretches = [self._touched(member, 1)[node] for member in members]
        known = sorted(filter(None, stretches), key=lambda one: hint_of(_first(one.low)))
        apart = all(
            surely_less(_first(one.high), _first(other.low))
            for one, other in itertools.pairwise(known)
        )
        return apart and len(known) == len(stretches)

    def _is_sliced(self, node: Node, touched: Mapping[Node, Interval | None], slices: Any) -> bool:
        """Whether every slice of a launch accesses only its own slice of a node."""
        if node not in touched:
            return True
        interval = touched[node]
        if interval is None or not divides(slices, node.size):
            return False
        size = node.size // slices
        begin = number_of_slice(slices, self.env) * size
        return interval.is_inside(begin, begin + size)

    def _touched(
        self, position: int, slices: int, blocks: int = 1, inner: str = ""
    ) -> dict[Node, Interval | None]:
        """The elements of its nodes that each slice of a launch accesses."""
        key = position, slices, blocks, inner
        if key not in self._touches:
            launch = self.launches[position]
            found: dict[Node, Interval | None] = {}
            for number, interval in self._reach(launch.nest, slices, blocks, inner).items():
                node = launch.buffers[number]
                before = found.get(node, interval)
                is_known = before is not None and interval is not None
                found[node] = before.joined(interval) if is_known else None  # type: ignore
            self._touches[key] = found
        return self._touches[key]

    def _reach(
        self, nest: ir.LoopNest, slices: int, blocks: int, inner: str
    ) -> dict[int, Interval | None]:
        """`reach`, cached for launches that do the same with other buffers."""
        key = self._bodies.setdefault(nest.body, len(self._bodies)), slices, blocks, inner
        if key not in self._reached:
            self._reached[key] = reach(nest, slices, blocks, inner, self.env)
        return self._reached[key]


def _first(end: Any) -> Any:
    """The end of an interval in the first slice."""
    return int(end[0]) if isinstance(end, np.ndarray) else end


def _primes(number: int) -> Iterator[int]:
    """The prime factors of a number, the smallest first."""
    factor = 2
    while factor * factor <= number:
        if number % factor == 0:
            yield factor
            while number % factor == 0:
                number //= factor
        factor += 1
    if number > 1:
        yield number


def _divisors(number: Any, least: int) -> Iterator[Any]:
    """The divisors that are not below `least`, the largest first: plain ones, and all of it."""
    plain = content_of(number)
    if plain is not number and hint_of(number) >= least:
        yield number
    for k in range(1, plain // max(least, 1) + 1):
        if plain % k == 0:
            yield plain // k
