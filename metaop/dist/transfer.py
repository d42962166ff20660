"""Moving a tensor from one placement to another, whatever the sizes and shapes of their meshes.

Every rank of either placement computes the same list of messages: for each required part, the boxes
of it that others hold. If several ranks hold a box, it comes from the receiver if that is one of
them, otherwise from these ranks in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from metaop.dist.boxing import Parts
from metaop.dist.collectives import MPIWorld, communicator_of, everyone
from metaop.dist.job import job
from metaop.dist.memory import HOST_MEMORY, Memory
from metaop.dist.mesh_world import Place
from metaop.dist.moves import states_of
from metaop.dist.placement import Placement
from metaop.dist.program import ShardedBuffer
from metaop.dist.sbp import (
    BROADCAST,
    Mesh,
    NdSbp,
    Partial,
    local_box,
    mesh_shape,
    nd_text,
    replaced,
)
from metaop.errors import UnsupportedError
from metaop.reduce.reducers import REDUCERS
from metaop.unified_graph import dtype as dtypes

Box = tuple[tuple[int, int], ...]


class Message(NamedTuple):
    """A box of a tensor that rank `target` of the second placement gets from `source`."""

    source: int
    target: int
    box: Box


def intersection(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> Box | None:
    """The intersection of two boxes of indices; None if it is empty."""
    shared = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other))
    return None if any(low >= high for low, high in shared) else shared


def inside(box: Box, part: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    """The box as slices of an array that holds `part`."""
    return tuple(slice(low - start, high - start) for (low, high), (start, _) in zip(box, part))


def messages(
    shape: Sequence[int], source: tuple[NdSbp, Placement], target: tuple[NdSbp, Placement]
) -> list[Message]:
    """The messages, with job-wide rank numbers; the source must not be partial."""
    holders: dict[Box, list[int]] = {}
    for rank, place in _places(source[1]):
        box = tuple(local_box(shape, source[0], source[1].shape, place))
        holders.setdefault(box, []).append(rank)
    found = []
    for number, (rank, place) in enumerate(_places(target[1])):
        if not _wants(target[0], place):
            continue
        wanted = local_box(shape, target[0], target[1].shape, place)
        for box, ranks in holders.items():
            shared = intersection(box, wanted)
            if shared is not None:
                sender = rank if rank in ranks else ranks[number % len(ranks)]
                found.append(Message(sender, rank, shared))
    return found


def _places(placement: Placement) -> Iterator[tuple[int, Place]]:
    for place in np.ndindex(*placement.shape):
        yield int(placement.ranks[place]), place


def _wants(states: NdSbp, place: Place) -> bool:
    """Whether a place receives data: only the first rank of every line does, for partial values."""
    return not any(isinstance(state, Partial) and k for state, k in zip(states, place))


def transfer(
    buffer: ShardedBuffer, source: Placement, target: Placement, states: NdSbp
) -> ShardedBuffer:
    """The same value on another placement; every rank of either placement must call this."""
    if source.simulated != target.simulated:
        raise UnsupportedError(
            f"moving from {source} to {target}: only one of them is simulated",
            fix="simulate both, or none",
        )
    settled = _settled(buffer.states, buffer.shape, source.shape)
    parts = buffer.world.box(buffer.parts, buffer.states, settled, buffer.shape)
    memory = target.memory
    if source.type != target.type:
        # Between hosts and GPUs, values go through host memory.
        memory = HOST_MEMORY
        parts = {rank: source.memory.get(part) for rank, part in parts.items()}
    lists = messages(buffer.shape, (settled, source), (states, target))
    with memory.active():
        made = _Target(buffer, target, states, memory)
        if source.simulated:
            for message in lists:
                made.put(message, _cut(parts, buffer.shape, settled, source, message))
        else:
            text = f"move {list(buffer.shape)} {nd_text(settled)} {source}"
            text += f" -> {nd_text(states)} {target}"
            _exchange(lists, parts, (settled, source), made, text)
    if memory is not target.memory:
        made.parts = {rank: target.memory.put(part) for rank, part in made.parts.items()}
    return ShardedBuffer(made.parts, states, target.world, buffer.shape, buffer.dtype)


def _settled(states: NdSbp, shape: Sequence[int], mesh: Mesh) -> NdSbp:
    """`states` with splits in place of partial where possible, which is cheaper than broadcast."""
    for axis, state in enumerate(states):
        if isinstance(state, Partial):
            known = [
                option
                for option in states_of(tuple(shape), mesh)
                if replaced(option, axis, BROADCAST) == replaced(states, axis, BROADCAST)
            ]
            states = known[-1] if known else replaced(states, axis, BROADCAST)
    return states


class _Target:
    """The parts that this process will hold on the second placement, in some memory."""

    def __init__(
        self, buffer: ShardedBuffer, placement: Placement, states: NdSbp, memory: Memory
    ) -> None:
        self.placement, self.states, self.shape = placement, states, buffer.shape
        self.memory = memory
        self.world = placement.world
        self.dtype = buffer.dtype
        self.parts: Parts = {}
        for rank in self.world.owned:
            place = self.world.place(rank)
            extents = mesh_shape(buffer.shape, states, placement.shape, place)
            self.parts[rank] = memory.full(extents, _fill(states, self.dtype), self.dtype)

    def view(self, message: Message) -> np.ndarray:
        """The destination of the box of a message."""
        rank = _number(self.placement, message.target)
        part = local_box(self.shape, self.states, self.placement.shape, self.world.place(rank))
        return self.parts[rank][inside(message.box, part)]

    def put(self, message: Message, value: np.ndarray) -> None:
        """Writes the box of a message."""
        self.view(message)[...] = value


def _fill(states: NdSbp, dtype: np.dtype) -> object:
    known = dtypes.from_numpy_dtype(dtype)
    assert known is not None
    names = [state.op for state in states if isinstance(state, Partial)]
    return REDUCERS[names[0]].identity(known) if names else 0


def _cut(
    parts: Parts, shape: Sequence[int], states: NdSbp, source: Placement, message: Message
) -> np.ndarray:
    rank = _number(source, message.source)
    part = local_box(shape, states, source.shape, source.world.place(rank))
    return parts[rank][inside(message.box, part)]


def _number(placement: Placement, rank: int) -> int:
    """The number that a job-wide rank has within a placement."""
    return int(np.flatnonzero(placement.ranks.ravel() == rank)[0])


# Worlds are never dropped: creating one again is collective, and the others would not join.
@cache
def _union(ranks: tuple[int, ...], losses: int, memory: Memory) -> MPIWorld:
    """The ranks of two placements together; all of them must call this.

    `losses` is part of the key because a loss renumbers the ranks.
    """
    return MPIWorld(communicator_of(ranks), memory)


def _exchange(
    lists: Sequence[Message],
    parts: Parts,
    source: tuple[NdSbp, Placement],
    made: _Target,
    text: str,
) -> None:
    me = everyone().rank
    ranks = sorted({*source[1].ranks.ravel().tolist(), *made.placement.ranks.ravel().tolist()})
    if me not in ranks:
        return
    world = _union(tuple(ranks), job.losses, made.memory)
    world.verify(text)
    given, taken = [], []
    counts, arriving = [0] * len(ranks), [0] * len(ranks)
    # Messages on the same path are in the order of the list, which is the same on all ranks.
    for message in sorted(lists, key=lambda one: (one.source, one.target)):
        if message.source == me:
            value = _cut(parts, made.shape, *source, message)
            if message.target == me:
                made.put(message, value)
                continue
            world.sent += value.nbytes
            counts[ranks.index(message.target)] += value.size
            given.append(value.reshape(-1))
        elif message.target == me:
            arriving[ranks.index(message.source)] += made.view(message).size
            taken.append(message)
    nothing = made.memory.full((0,), 0, made.dtype)
    received = np.empty_like(nothing, shape=(sum(arriving),))
    flat = np.concatenate([nothing, *given])
    world.wait(world.transport.all_to_all(flat, counts, received, arriving), text)
    start = 0
    for message in taken:
        place = made.view(message)
        made.put(message, received[start : start + place.size].reshape(place.shape))
        start += place.size
