"""What a process reads from its launcher, and the variables that it sets for other libraries.

Only environment variables are read, so `import metaop` does not need MPI.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from functools import partialmethod
from typing import NamedTuple

from metaop import settings


class Launched(NamedTuple):
    """The position of this process in its job."""

    rank: int
    size: int
    local_rank: int
    local_size: int


# Rank, size, local rank and local size, as set by Open MPI, MPICH and Slurm.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)  # fmt: skip


def launched(environment: MutableMapping[str, str] = os.environ) -> Launched | None:
    """The position that an MPI launcher gave this process; None if no launcher started it."""
    for names in _LAUNCHERS:
        if environment.get(names[0], "").isdigit() and environment.get(names[1], "").isdigit():
            rank, size = int(environment[names[0]]), int(environment[names[1]])
            local = [environment.get(name, "") for name in names[2:]]
            return Launched(
                rank,
                size,
                int(local[0]) if local[0].isdigit() else rank,
                int(local[1]) if local[1].isdigit() else size,
            )
    return None


def adopt(environment: MutableMapping[str, str] = os.environ) -> None:
    """Configures a process that MPI started as one of several; called by `import metaop`.

    PyTorch's variables (RANK, WORLD_SIZE, LOCAL_RANK, …) are set for programs that read them. Each
    rank gets its share of the host's cores, one of which may help it to compile. Only rank 0 shows
    progress bars and log messages below warnings, unless METAOP_ALL_RANKS_TALK is set.
    Variables that are already set keep their values, except that ranks never tune, because they
    would disturb each other's timings.
    """
    place = launched(environment)
    if place is None or place.size == 1:
        return
    cores = os.cpu_count() or 1
    defaults = {
        "RANK": place.rank,
        "WORLD_SIZE": place.size,
        "LOCAL_RANK": place.local_rank,
        "LOCAL_WORLD_SIZE": place.local_size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": 29500,
        "METAOP_NUM_THREADS": max(1, cores // place.local_size),
        "METAOP_COMPILE_PROCESSES": int(cores >= 2 * place.local_size),
    }
    if place.size == place.local_size:
        # On one host, use the shared-memory transport and skip the search for networks.
        defaults |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm", "OMPI_MCA_osc": "^ucx"}
    if place.rank and not settings.get("METAOP_ALL_RANKS_TALK"):
        defaults["TQDM_DISABLE"] = 1
        logging.disable(logging.INFO)
        if "tqdm" in sys.modules:
            # tqdm has already read the variable.
            bar = sys.modules["tqdm"].tqdm
            bar.__init__ = partialmethod(bar.__init__, disable=True)
    if environment.get("METAOP_TUNE") == "search":
        environment["METAOP_TUNE"] = "stored"
    for name, value in defaults.items():
        environment.setdefault(name, str(value))
