"""The ranks of the job: all that were started and have not been lost."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

Kept = TypeVar("Kept")


def may_lose_ranks() -> bool:
    """Whether MPI was started so that it survives the loss of ranks (`mpirun --with-ft ulfm`)."""
    return os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112


def attached(communicator: Any, make: Callable[[Any], Kept]) -> Kept:
    """The result of `make` for a communicator, cached as an attribute of the communicator."""
    key = _keyval(make)
    found: Kept | None = communicator.Get_attr(key)
    if found is None:
        found = make(communicator)
        communicator.Set_attr(key, found)
    return found


@lru_cache
def _keyval(make: Callable[[Any], Any]) -> int:
    from mpi4py import MPI

    number: int = MPI.Comm.Create_keyval()
    return number


class Job:
    """The state of the job, as this process knows it.

    `wish` is the rank and world size that `init_process_group` requested (None if it named none);
    `everyone` is the communicator of the ranks that are left (None before MPI is used);
    `goes_on` says that a lost rank does not end the job; `losses` counts how often that happened.
    """

    def __init__(self) -> None:
        self.wish: Any = None
        self.everyone: Any = None
        self.goes_on = False
        self.losses = 0
        self._worlds: weakref.WeakSet[Any] = weakref.WeakSet()

    def watch(self, world: Any) -> None:
        """Registers an object with a communicator that is revoked when a rank is lost."""
        self._worlds.add(world)

    def depart(self) -> None:
        """Tells the other ranks that this one has reached the end of its program."""
        for watchdog in {world.watchdog for world in self._worlds}:
            watchdog.depart()

    def shrink(self) -> None:
        """Excludes the lost ranks and renumbers the others from 0.

        Ranks that still wait for a lost one notice, because every communicator is revoked.
        """
        for communicator in (self.everyone, *(world.communicator for world in self._worlds)):
            if not communicator.Is_revoked():
                communicator.Revoke()
        self.everyone = self.everyone.Shrink()
        self._worlds.clear()
        self.losses += 1


job = Job()
