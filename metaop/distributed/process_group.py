"""Groups of ranks that take part in a collective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.dist.collectives import MPIWorld, everyone
from metaop.errors import ArgumentError, DistributedError


class ProcessGroup:
    """Some ranks of the job with a communicator of their own; `size()` counts them.

    >>> metaop.distributed.new_group([0]).size()
    1
    """

    def __init__(self, communicator: Any, ranks: Sequence[int]) -> None:
        self.world = MPIWorld(communicator)
        self.communicator = communicator
        self.ranks = list(ranks)

    def rank(self) -> int:
        """The number of this process within the group."""
        return self.world.rank

    def size(self) -> int:
        """The number of processes in the group."""
        return self.world.size

    def number_of(self, rank: int) -> int:
        """The number that a rank of the job has within the group."""
        if rank not in self.ranks:
            raise DistributedError(
                f"rank {rank} is not in the group of ranks {self.ranks}",
                fix="name a rank of the job that belongs to the group",
            )
        return self.ranks.index(rank)


class group:
    """`group.WORLD`: all ranks of the job; its `size()` counts them.

    >>> metaop.distributed.group.WORLD.size()  # a program of one rank
    1
    """

    WORLD: ProcessGroup | None = None


def world_group() -> ProcessGroup:
    """The group of all ranks; starts MPI if necessary."""
    if group.WORLD is None:
        communicator = everyone()
        group.WORLD = ProcessGroup(communicator, range(communicator.size))
    return group.WORLD


def forget_group(chosen: ProcessGroup | None) -> None:
    """Makes `group.WORLD` None if `chosen` is None or that group."""
    if chosen is None or chosen is group.WORLD:
        group.WORLD = None


def check_whole_group(chosen: ProcessGroup | None, owner: str) -> None:
    """Raises ArgumentError, which names `owner`, if a group lacks some ranks of the job."""
    if chosen is not None and chosen.size() != world_group().size():
        raise ArgumentError(
            f"{owner} got the group of ranks {chosen.ranks}",
            fix="omit it: all ranks of the job take part",
        )


def make_group(ranks: Sequence[int] | None = None) -> ProcessGroup | None:
    """A group of some ranks (by default all); None on a rank outside the group.

    Every rank of the job must call it, in the same order.
    """
    everyone = world_group()
    chosen = everyone.ranks if ranks is None else sorted(ranks)
    everyone.world.agree(f"new_group({chosen})", "collectives")
    communicator = everyone.communicator.Create(everyone.communicator.group.Incl(chosen))
    if everyone.rank() not in chosen:
        return None
    return ProcessGroup(communicator, chosen)
