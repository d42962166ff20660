"""Groups of ranks: who takes part in a collective."""

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
        """How many processes the group has."""
        return self.world.size

    def number_of(self, rank: int) -> int:
        """The number within the group of a rank of the job."""
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
    """The group of all ranks; MPI is started when it has not been yet."""
    if group.WORLD is None:
        communicator = everyone()
        group.WORLD = ProcessGroup(communicator, range(communicator.size))
    return group.WORLD


def forget_group(chosen: ProcessGroup | None) -> None:
    """Makes `group.WORLD` None when that is meant (by None, or by itself)."""
    if chosen is None or chosen is group.WORLD:
        group.WORLD = None


def check_whole_group(chosen: ProcessGroup | None, owner: str) -> None:
    """ArgumentError for a group of some of the ranks, given to what is for all."""
    if chosen is not None and chosen.size() != world_group().size():
        raise ArgumentError(
            f"{owner} got the group of ranks {chosen.ranks}",
            fix="leave it out: all ranks of the job take part",
        )


def make_group(ranks: Sequence[int] | None = None) -> ProcessGroup | None:
    """The group of some ranks (all of them without `ranks`); None on a rank outside of it.

    Every rank of the job has to call it, in the same order.
    """
    everyone = world_group()
    chosen = everyone.ranks if ranks is None else sorted(ranks)
    everyone.world.agree(f"new_group({chosen})", "collectives")
    communicator = everyone.communicator.Create(everyone.communicator.group.Incl(chosen))
    if everyone.rank() not in chosen:
        return None
    return ProcessGroup(communicator, chosen)
