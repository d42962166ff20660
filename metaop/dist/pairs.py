"""Worlds of two ranks, for what one of them sends to the other."""

from __future__ import annotations

from functools import cache

from metaop.dist.collectives import MPIWorld, communicator_of
from metaop.dist.job import job
from metaop.dist.memory import Memory


def pair_of(first: int, second: int, memory: Memory, way: int = 0) -> MPIWorld:
    """Two ranks of the job, of which this is one; the other has to ask for it too, alike.

    What goes one `way` never waits for what goes another one.
    """
    return _pair(first, second, memory, way, job.losses)


# All are kept: a rank that had forgotten one would wait for the other to make it again.
@cache
def _pair(first: int, second: int, memory: Memory, way: int, losses: int) -> MPIWorld:
    return MPIWorld(communicator_of((first, second)), memory)
