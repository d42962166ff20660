"""Ranks with a communicator of their own, between which PyTorch's collectives run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.dist.collectives import MPIWorld
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

    def rank_of(self, number: int) -> int:
        """The rank within the job of a member of the group."""
        if not 0 <= number < len(self.ranks):
            raise DistributedError(
                f"the group of ranks {self.ranks} has no number {number}",
                fix=f"the numbers of its members are 0 to {len(self.ranks) - 1}",
            )
        return self.ranks[number]

    def chosen(self, rank: int | None, number: int | None, default: int | None = None) -> int:
        """The number of a rank that is named within the job (`rank`) or the group (`number`)."""
        if number is None:
            named = default if rank is None else rank
            if named is None:
                raise ArgumentError("no rank is named", fix="name its rank in the job or group")
            return self.number_of(named)
        if rank is not None:
            raise ArgumentError(
                f"one rank is named twice: {rank} of the job and {number} of the group",
                fix="name one of them",
            )
        self.rank_of(number)
        return number

    def agree(self, what: str) -> None:
        """Returns once all members have agreed that they run the same collective."""
        self.world.agree(what, "collectives")
