"""Where global tensors live: the ranks of a placement, and the device that represents it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.dist.collectives import MPIWorld, communicator_of, everyone
from metaop.dist.memory import HOST_MEMORY, Memory, own_gpu
from metaop.dist.mesh_world import AbsentMesh, MeshWorld, MPIMesh, SimulatedMesh
from metaop.dist.program import ShardedBuffer
from metaop.dist.sbp import BROADCAST
from metaop.errors import ArgumentError, DistributedError
from metaop.unified_graph.tensor_type import Device


class PlacementDevice(Device):
    """The device of the tensors on one placement, all of whose ranks run calls on it."""

    __slots__ = ("placement",)
    placement: Placement

    def __new__(cls, placement: Placement) -> PlacementDevice:
        device = object.__new__(cls)
        device.type, device.index, device.placement = placement.type, None, placement
        return device

    def __reduce__(self) -> tuple:
        return (_device_of, (self.placement,))

    def __str__(self) -> str:
        return str(self.placement)

    def __repr__(self) -> str:
        return f"device({self.placement!r})"


class Placement:
    """A mesh of ranks that hold tensors; equal placements are the same object.

    `ranks` is an array of distinct rank numbers; its dimensions are the axes of the mesh, outermost
    first. `simulate` keeps all ranks in this process, for tests and experiments. On "cuda", every
    rank holds its parts on a GPU of its host, and NCCL moves them. `names` names the axes; tensors
    on placements with different names do not mix.

    Raises ArgumentError for ranks that are named twice, and unless every axis has a name of its
    own.

    >>> metaop.placement("cpu", ranks=[[0, 1], [2, 3]], simulate=True)
    placement(type="cpu", ranks=[[0, 1], [2, 3]])
    """

    _table: dict[tuple, Placement] = {}
    type: str
    ranks: np.ndarray
    simulated: bool
    names: tuple[str, ...] | None
    memory: Memory
    device: PlacementDevice
    _world: MeshWorld | None

    def __new__(
        cls,
        type: str,
        ranks: Sequence[Any],
        simulate: bool = False,
        names: Sequence[str] | None = None,
    ) -> Placement:
        array = np.atleast_1d(np.asarray(ranks, np.int64))
        words = None if names is None else tuple(names)
        key = (type, array.shape, tuple(array.ravel().tolist()), simulate, words)
        found = cls._table.get(key)
        if found is not None:
            return found
        if type not in ("cpu", "cuda"):
            raise ArgumentError(f"a placement of type {type!r}", fix='use "cpu" or "cuda"')
        if array.size == 0 or np.unique(array).size != array.size or array.min() < 0:
            raise ArgumentError(
                f"a placement on ranks {array.tolist()}", fix="name every rank once, from 0"
            )
        if words is not None and not len(words) == len(set(words)) == array.ndim:
            raise ArgumentError(
                f"a placement of {array.ndim} axes whose names are {list(words)}",
                fix="give every axis a name of its own",
            )
        found = object.__new__(cls)
        found.type, found.ranks, found.simulated = type, array, simulate
        found.memory = own_gpu() if type == "cuda" else HOST_MEMORY
        found.names = words
        found._world = SimulatedMesh(array.shape, found.memory) if simulate else None
        found.device = PlacementDevice(found)
        cls._table[key] = found
        return found

    @staticmethod
    def all(type: str = "cpu") -> Placement:
        """All ranks of the job, in one line."""
        return Placement(type, range(everyone().size))

    @classmethod
    def forget_ranks(cls) -> None:
        """Makes all placements look up their ranks again after ranks have been renumbered."""
        for placement in cls._table.values():
            if not placement.simulated:
                placement._world = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the mesh."""
        return self.ranks.shape

    @property
    def world(self) -> MeshWorld:
        """The world of the ranks; its first use is collective over the placement."""
        if self._world is None:
            self._world = self._connect()
        return self._world

    def connect_along(self, line: MPIWorld) -> None:
        """Takes over the communicator of a line of ranks, which are those of this placement."""
        if self._world is None:
            self._world = MPIMesh(line.communicator, self.shape, self.memory)

    def nothing(self, shape: Sequence[int], dtype: Any) -> ShardedBuffer:
        """The buffer of a tensor on a process that has no rank in the placement."""
        return ShardedBuffer({}, (BROADCAST,) * self.ranks.ndim, self.world, shape, dtype)

    def everywhere(self, value: np.ndarray) -> ShardedBuffer:
        """A replicated buffer of a value that every rank already has."""
        world, states = self.world, (BROADCAST,) * self.ranks.ndim
        parts = {rank: self.memory.put(value) for rank in world.owned}
        return ShardedBuffer(parts, states, world, value.shape, value.dtype)

    def _connect(self) -> MeshWorld:
        communicator = everyone()
        if self.ranks.max() >= communicator.size:
            raise DistributedError(
                f"rank {communicator.rank} of {communicator.size} uses {self}",
                fix=f"start the program with mpirun -np {self.ranks.max() + 1} or more",
            )
        if communicator.rank not in self.ranks:
            return AbsentMesh(self.shape)
        members = communicator_of(self.ranks.ravel().tolist())
        return MPIMesh(members, self.shape, self.memory)

    def __reduce__(self) -> tuple:
        return (Placement, (self.type, self.ranks.tolist(), self.simulated, self.names))

    def __repr__(self) -> str:
        names = "" if self.names is None else f", names={list(self.names)}"
        return f'placement(type="{self.type}", ranks={self.ranks.tolist()}{names})'


def _device_of(placement: Placement) -> PlacementDevice:
    return placement.device
