"""Reshards on a mesh, as changes along one mesh axis at a time.

If the outer axis changes, the inner blocks move too, so an axis that splits a dimension changes
only while no axis inside it splits the same one. Everything else is a shortest path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count, product
from math import inf, prod
from typing import NamedTuple

from metaop.dist.cost import Cluster, collective_seconds, is_local
from metaop.dist.sbp import BROADCAST, Mesh, NdSbp, Partial, Sbp, Split, replaced
from metaop.unified_graph.node import Shape


class Move(NamedTuple):
    """A change of the state of one mesh axis."""

    axis: int
    source: NdSbp
    target: NdSbp

    @property
    def is_local(self) -> bool:
        """Whether every rank makes the move by itself, as part of its program."""
        return is_local(self.source[self.axis], self.target[self.axis])


class Priced(NamedTuple):
    """A state that can be reached by changing one mesh axis, and the cost."""

    axis: int
    target: NdSbp
    seconds: float
    is_local: bool


def fits(shape: Sequence[int], states: NdSbp, mesh: Mesh) -> bool:
    """Whether every rank gets a part of each split dimension."""
    return all(shape[axis] >= parts for axis, parts in _parts(states, mesh).items())


def _parts(states: NdSbp, mesh: Mesh) -> dict[int, int]:
    """The number of parts into which each split dimension is cut."""
    found: dict[int, int] = {}
    for state, ranks in zip(states, mesh):
        if isinstance(state, Split):
            found[state.axis] = found.get(state.axis, 1) * ranks
    return found


def room_for(shape: Sequence[int], mesh: Mesh, states: Iterable[NdSbp]) -> Shape:
    """For each dimension, its extent, or the number of parts that some states need if larger.

    A dimension shorter than its number of ranks leaves some ranks with nothing. The search never
    chooses that, but it can be given and requested: paths use only states that fit this shape.
    """
    room = list(shape)
    for one in states:
        for axis, parts in _parts(one, mesh).items():
            room[axis] = max(room[axis], parts)
    return tuple(room)


def shared_out(states: NdSbp, shape: Sequence[int], mesh: Mesh) -> NdSbp:
    """`states` with dimension 0 split along every axis that replicates the value, if that fits."""
    for axis, state in enumerate(states):
        cut = replaced(states, axis, Split(0))
        if state == BROADCAST and shape and fits(shape, cut, mesh):
            states = cut
    return states


@lru_cache(maxsize=4096)
def states_of(shape: Shape, mesh: Mesh) -> tuple[NdSbp, ...]:
    """All non-partial states of a tensor of this shape."""
    single: list[Sbp] = [BROADCAST, *(Split(axis) for axis in range(len(shape)))]
    found = product(*([BROADCAST] if ranks == 1 else single for ranks in mesh))
    return tuple(states for states in found if fits(shape, states, mesh))


def _may_change(source: NdSbp, axis: int, target: Sbp) -> bool:
    inner = source[axis + 1 :]
    return not any(isinstance(state, Split) and state in inner for state in (source[axis], target))


@lru_cache(maxsize=1 << 15)
def moves_from(
    source: NdSbp, shape: Shape, itemsize: int, mesh: Mesh, cluster: Cluster, room: Shape
) -> tuple[Priced, ...]:
    """The states that one move reaches from `source` and that fit `room` (see `room_for`).

    Broadcast never becomes partial here; `path` adds such moves if they are requested.
    """
    found = []
    for axis, ranks in enumerate(mesh):
        part = _part_shape(source, axis, shape, mesh)
        splits = [Split(dim) for dim in range(len(shape))]
        for state in (BROADCAST, Partial(), *splits):
            target = replaced(source, axis, state)
            if state == source[axis] or not _may_change(source, axis, state):
                continue
            if not fits(room, target, mesh):
                continue
            seconds = _seconds(source[axis], state, part, itemsize, ranks, cluster, axis)
            if seconds < inf:
                found.append(Priced(axis, target, seconds, is_local(source[axis], state)))
    return tuple(found)


def _part_shape(source: NdSbp, axis: int, shape: Shape, mesh: Mesh) -> Shape:
    """The shape that the ranks along one axis hold together, for the first and longest part."""
    part = list(shape)
    for k, (state, ranks) in enumerate(zip(source, mesh)):
        if k != axis and isinstance(state, Split):
            part[state.axis] = -(-part[state.axis] // ranks)
    return tuple(part)


def _seconds(
    source: Sbp,
    target: Sbp,
    shape: Shape,
    itemsize: int,
    ranks: int,
    cluster: Cluster,
    axis: int,
) -> float:
    if isinstance(target, Partial):
        # Padding with zeros sends nothing, but takes memory traffic, as does the sum that follows.
        whole = 2 * prod(shape) * itemsize / cluster.memory_bandwidth
        return whole if isinstance(source, Split) else inf
    return collective_seconds(source, target, shape, itemsize, ranks, cluster.link(axis))


@lru_cache(maxsize=1 << 14)
def path(
    source: NdSbp, target: NdSbp, shape: Shape, itemsize: int, mesh: Mesh, cluster: Cluster
) -> tuple[Move, ...]:
    """The cheapest sequence of moves between two states; those to partial come last."""
    steps: list[Move] = []
    state = target
    for axis, (old, new) in enumerate(zip(source, target)):
        if isinstance(new, Partial) and old != new:
            previous = replaced(state, axis, BROADCAST)
            steps.insert(0, Move(axis, previous, state))
            state = previous
    return (*_cheapest(source, state, shape, itemsize, mesh, cluster), *steps)


def _cheapest(
    source: NdSbp, target: NdSbp, shape: Shape, itemsize: int, mesh: Mesh, cluster: Cluster
) -> list[Move]:
    best: dict[NdSbp, float] = {source: 0.0}
    before: dict[NdSbp, Move] = {}
    numbers = count()
    room = room_for(shape, mesh, (source, target))
    queue = [(0.0, next(numbers), source)]
    while queue:
        cost, _, state = heappop(queue)
        if state == target:
            break
        if cost > best[state]:
            continue
        for step in moves_from(state, shape, itemsize, mesh, cluster, room):
            total = cost + step.seconds
            if total < best.get(step.target, inf):
                best[step.target] = total
                before[step.target] = Move(step.axis, state, step.target)
                heappush(queue, (total, next(numbers), step.target))
    steps: list[Move] = []
    while target != source:
        steps.insert(0, before[target])
        target = before[target].source
    return steps
