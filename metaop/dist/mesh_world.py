"""The ranks of a mesh and the lines of ranks along each of its axes.

A reshard is done one mesh axis at a time, by the collectives of the lines along that axis
(`moves` determines the order). A `Line` is the world of one such line.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from metaop.dist.boxing import Parts, SimulatedWorld, box_alone, shard
from metaop.dist.boxing import World as Line
from metaop.dist.collectives import MPIWorld
from metaop.dist.cost import HOST
from metaop.dist.exchange import Exchange
from metaop.dist.memory import HOST_MEMORY, Memory
from metaop.dist.moves import Move, path
from metaop.dist.sbp import BROADCAST, Mesh, NdSbp, Partial, Split, mesh_shape, replaced

Place = tuple[int, ...]


class MeshWorld(Protocol):
    """The ranks of a mesh, numbered row by row; this process owns those in `owned`."""

    mesh: Mesh
    size: int
    owned: tuple[int, ...]
    memory: Memory

    def line(self, axis: int, place: Place) -> Line:
        """The line of ranks along one axis through a place."""

    def box(self, parts: Parts, source: NdSbp, target: NdSbp, shape: Sequence[int]) -> Parts:
        """Reshards the parts of a tensor of logical `shape` from `source` to `target`."""

    def start(self, parts: Parts, move: Move, shape: Sequence[int] | None) -> Moving:
        """Starts one move, which every rank of the mesh must make.

        Without `shape`, the parts are arrays that no axis splits, one for each line.
        """

    def place(self, rank: int) -> Place:
        """The coordinates of a rank on the mesh."""

    def whole_shape(self, part: Sequence[int], states: NdSbp) -> tuple[int, ...]:
        """The logical shape of a tensor of which this rank has a part of shape `part`."""

    def verify(self, plan: str, numbers: tuple = ()) -> None:
        """Raises DistributedError if the ranks are about to run different plans or numbers."""

    def first(self, value: np.ndarray) -> np.ndarray:
        """Broadcasts the value of the first rank."""

    def equal(self, part: np.ndarray, states: NdSbp) -> np.ndarray:
        """The part, copied from the first rank along each axis on which it is replicated."""


class Moving:
    """A move that is done or in progress."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def is_done(self) -> bool:
        """Whether the result has arrived; makes progress."""
        return True

    def result(self) -> Parts:
        """Waits for the move and returns its parts."""
        return self._parts


class _Exchanging(Moving):
    """A move of one process among others."""

    def __init__(self, exchange: Exchange, rank: int, line: MPIWorld, what: str) -> None:
        self.exchange, self.rank, self.line, self.what = exchange, rank, line, what

    def is_done(self) -> bool:
        return self.exchange.is_done()

    def result(self) -> Parts:
        return {self.rank: self.line.result(self.exchange, self.what)}


class _Lines:
    """What simulated and real meshes share: resharding along one axis after another."""

    mesh: Mesh
    size: int
    owned: tuple[int, ...]
    memory: Memory = HOST_MEMORY

    def line(self, axis: int, place: Place) -> Line:
        raise NotImplementedError

    def box(self, parts: Parts, source: NdSbp, target: NdSbp, shape: Sequence[int]) -> Parts:
        if source == target:
            return dict(parts)
        itemsize = next(iter(parts.values())).itemsize if parts else 1
        for move in path(source, target, tuple(shape), itemsize, self.mesh, HOST):
            parts = self.move(parts, move, shape)
        return parts

    def move(self, parts: Parts, move: Move, shape: Sequence[int]) -> Parts:
        """The parts after one move."""
        return self.start(parts, move, shape).result()

    def start(self, parts: Parts, move: Move, shape: Sequence[int] | None) -> Moving:
        """Makes one move at once."""
        axis = move.axis
        lines: dict[Place, Parts] = {}
        for rank, part in parts.items():
            place = self.place(rank)
            lines.setdefault(_first(place, axis), {})[place[axis]] = part
        result: Parts = {}
        for place, members in lines.items():
            together = self._together(move, shape, place, members)
            with self.memory.active():
                moved = self.line(axis, place).box(
                    members, move.source[axis], move.target[axis], together
                )
            for number, part in moved.items():
                result[self.rank_at((*place[:axis], number, *place[axis + 1 :]))] = part
        return Moving(result)

    def _together(
        self, move: Move, shape: Sequence[int] | None, place: Place, members: Parts
    ) -> tuple[int, ...]:
        """The shape of the tensor that a line holds; it is itself a part if other axes split it."""
        if shape is None:
            return next(iter(members.values())).shape
        others = replaced(move.source, move.axis, BROADCAST)
        return mesh_shape(shape, others, self.mesh, place)

    def whole_shape(self, part: Sequence[int], states: NdSbp) -> tuple[int, ...]:
        shape = list(part)
        place = self.place(self.owned[0])
        for axis in reversed(range(len(self.mesh))):
            state = states[axis]
            if isinstance(state, Split):
                shape[state.axis] = self.line(axis, place).total(shape[state.axis])
        return tuple(shape)

    def first(self, value: np.ndarray) -> np.ndarray:
        """The value of the first rank: by default the value itself."""
        return value

    def equal(self, part: np.ndarray, states: NdSbp) -> np.ndarray:
        """A rank's part: by default the part itself."""
        return part

    def place(self, rank: int) -> Place:
        """The coordinates of a rank on the mesh."""
        return tuple(int(k) for k in np.unravel_index(rank, self.mesh))

    def rank_at(self, place: Place) -> int:
        """The number of the rank at a place."""
        return int(np.ravel_multi_index(place, self.mesh))


def _first(place: Place, axis: int) -> Place:
    return (*place[:axis], 0, *place[axis + 1 :])


class SimulatedMesh(_Lines):
    """All ranks of a mesh in this process; `sent` counts the bytes that each would have sent."""

    def __init__(self, mesh: Mesh, memory: Memory = HOST_MEMORY) -> None:
        self.mesh, self.memory = mesh, memory
        self.size = prod(mesh)
        self.owned = tuple(range(self.size))
        self._lines: dict[tuple[int, Place], SimulatedWorld] = {}

    def line(self, axis: int, place: Place) -> SimulatedWorld:
        key = (axis, _first(place, axis))
        if key not in self._lines:
            self._lines[key] = SimulatedWorld(self.mesh[axis])
        return self._lines[key]

    @property
    def sent(self) -> list[int]:
        """Bytes sent by each rank so far."""
        places = [self.place(rank) for rank in self.owned]
        return [
            sum(self.line(axis, place).sent[place[axis]] for axis in range(len(self.mesh)))
            for place in places
        ]

    def verify(self, plan: str, numbers: tuple = ()) -> None:
        """Does nothing: ranks in one process run the same plan."""


class MPIMesh(_Lines):
    """A mesh of processes; the communicator determines the rank of this one."""

    def __init__(self, communicator: Any, mesh: Mesh, memory: Memory = HOST_MEMORY) -> None:
        self.mesh, self.memory = mesh, memory
        self.all = MPIWorld(communicator, memory)
        self.size = communicator.size
        self.rank: int = communicator.rank
        self.owned = (self.rank,)
        place = self.place(self.rank)
        self._lines = [self.all] if len(mesh) == 1 else []
        while len(self._lines) < len(mesh):
            axis = len(self._lines)
            color = self.rank_at(_first(place, axis))
            self._lines.append(MPIWorld(communicator.Split(color, place[axis]), memory))

    def line(self, axis: int, place: Place) -> MPIWorld:
        return self._lines[axis]

    def start(self, parts: Parts, move: Move, shape: Sequence[int] | None) -> Moving:
        """Starts one move."""
        axis, place = move.axis, self.place(self.rank)
        line = self._lines[axis]
        members = {place[axis]: parts[self.rank]}
        together = self._together(move, shape, place, members)
        source, target = move.source[axis], move.target[axis]
        with self.memory.active():
            alone = box_alone(members, source, target, line.size, together)
        if alone is not None:
            return Moving({self.rank: alone[place[axis]]})
        exchange = line.start(members, source, target, together)
        return _Exchanging(exchange, self.rank, line, f"{source!r} -> {target!r}")

    @property
    def sent(self) -> list[int]:
        """The number of bytes that this rank has sent so far."""
        lines = set(self._lines)
        return [sum(line.sent for line in lines)]

    def verify(self, plan: str, numbers: tuple = ()) -> None:
        """Compares what the ranks are about to run; DistributedError on all if it differs."""
        self.all.verify(plan, numbers)

    def first(self, value: np.ndarray) -> np.ndarray:
        self.verify(f"the value of rank 0: {value.dtype}{list(value.shape)}")
        return self.all.first(value)

    def equal(self, part: np.ndarray, states: NdSbp) -> np.ndarray:
        for line, state in zip(self._lines, states):
            if state == BROADCAST and line.size > 1:
                part = line.first(part)
        return part


class AbsentMesh(_Lines):
    """A mesh that does not include this process; its operations do nothing here."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.size = prod(mesh)
        self.owned = ()

    def box(self, parts: Parts, source: NdSbp, target: NdSbp, shape: Sequence[int]) -> Parts:
        return {}

    def verify(self, plan: str, numbers: tuple = ()) -> None:
        """Does nothing."""


def mesh_shard(value: np.ndarray, states: NdSbp, mesh: Mesh, place: Place) -> np.ndarray:
    """The rank's part of a value; a partial value is held by the first rank of each line."""
    for state, ranks, rank in zip(states, mesh, place):
        value = shard(value, state, ranks, rank)
    return value


def nothing_partial(states: NdSbp) -> NdSbp:
    """`states` with broadcast in place of partial."""
    return tuple(BROADCAST if isinstance(state, Partial) else state for state in states)
