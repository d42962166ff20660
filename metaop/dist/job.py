"""The ranks of the job: all that were started, or those that are left when some have been lost."""

from __future__ import annotations

import os
import weakref
from typing import Any


def may_lose_ranks() -> bool:
    """Whether MPI was started to survive the loss of ranks (`mpirun --with-ft ulfm`)."""
    return os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112


class Job:
    """What is known of the job in this process.

    `everyone` is the communicator of the ranks that are left (None before MPI is used);
    `goes_on` says that a lost rank does not end the job; `losses` counts how often that happened.
    """

    def __init__(self) -> None:
        self.everyone: Any = None
        self.goes_on = False
        self.losses = 0
        self._worlds: weakref.WeakSet[Any] = weakref.WeakSet()

    def watch(self, world: Any) -> None:
        """Remembers something with a communicator, which is revoked when a rank is lost."""
        self._worlds.add(world)

    def shrink(self) -> None:
        """Leaves the lost ranks behind: all others get numbers of their own, from 0.

        Whoever still waits for a lost rank finds out, because every communicator is revoked.
        """
        for communicator in (self.everyone, *(world.communicator for world in self._worlds)):
            if not communicator.Is_revoked():
                communicator.Revoke()
        self.everyone = self.everyone.Shrink()
        self._worlds.clear()
        self.losses += 1


job = Job()
