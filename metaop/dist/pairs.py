"""Worlds of two ranks, for messages between them."""

from __future__ import annotations

from functools import cache

from metaop.dist.collectives import MPIWorld, communicator_of
from metaop.dist.job import job
from metaop.dist.memory import Memory


def pair_of(first: int, second: int, memory: Memory, way: int = 0) -> MPIWorld:
    """A world of two ranks of the job, including this one; the other must make the same call.

    Messages with different `way` numbers never wait for each other.
    """
    return _pair(first, second, memory, way, job.losses)


# Pairs are never dropped: creating one again is collective, and the other rank would not join.
@cache
def _pair(first: int, second: int, memory: Memory, way: int, losses: int) -> MPIWorld:
    return MPIWorld(communicator_of((first, second)), memory)
