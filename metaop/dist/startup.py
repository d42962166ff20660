"""Before MPI starts: the ranks wait for each other, or a single process isolates itself.

The start of MPI cannot be interrupted while it waits for all ranks, so they meet first.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from metaop import settings
from metaop.dist.environment import Launched
from metaop.errors import DistributedError, describe_location, user_location

# Open MPI's folder of the job on this host, which it removes, and the name of the job.
_FOLDER, _JOB = "PMIX_SERVER_TMPDIR", "PMIX_NAMESPACE"
# Prefixes of the variables that launchers set, including those whose ranks are unknown.
_LAUNCHED = ("PMIX_", "PMI_", "OMPI_COMM_WORLD_")
# In seconds.
_PAUSE, _LONGEST_PAUSE = 1e-4, 1e-2


def meet(place: Launched | None) -> None:
    """Returns when all ranks of this host have called it.

    After METAOP_WATCHDOG_SECONDS, and repeatedly after that, the missing ranks are reported; raises
    DistributedError after METAOP_TIMEOUT_SECONDS. Launchers without a folder in which the ranks of
    a host can meet are trusted.
    """
    if place is None or _FOLDER not in os.environ or not Path(os.environ[_FOLDER]).is_dir():
        return
    name = f"metaop-{os.environ.get(_JOB, '')}-"
    marks = [Path(os.environ[_FOLDER]) / f"{name}{k}" for k in range(place.local_size)]
    alone = place.size == place.local_size
    number = place.rank if alone else place.local_rank
    marks[number].touch()
    patience = settings.get("METAOP_WATCHDOG_SECONDS")
    timeout = settings.get("METAOP_TIMEOUT_SECONDS")
    started, pause = time.perf_counter(), _PAUSE
    while late := [rank for rank, mark in enumerate(marks) if not mark.exists()]:
        time.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE)
        waited = time.perf_counter() - started
        if waited < min(patience, timeout):
            continue
        kind = "rank" if alone else "local rank"
        names = ", ".join(f"{kind} {rank}" for rank in late)
        where = describe_location(user_location())
        text = f"rank {place.rank} has waited {waited:.0f} s for {names} to use MPI"
        text += f" at {where}" if where else ""
        if waited >= timeout:
            raise DistributedError(
                text, fix="let every rank reach it, or increase METAOP_TIMEOUT_SECONDS"
            )
        # One rank reports for all.
        if number == min(set(range(place.local_size)) - set(late)):
            print(f"metaop: {text}", file=sys.stderr, flush=True)
        patience *= 2


@contextmanager
def apart() -> Iterator[None]:
    """Lets a process that no launcher started use MPI without leaving files behind.

    Open MPI creates shared memory for other ranks, and a folder, and does not remove them at the
    end. A single process needs neither. Child processes do not inherit the settings.
    """
    if any(name.startswith(_LAUNCHED) for name in os.environ):
        yield
        return
    before = dict(os.environ)
    with TemporaryDirectory(prefix="metaop-") as folder:
        os.environ.setdefault("OMPI_MCA_pml", "ob1")
        os.environ.setdefault("OMPI_MCA_btl", "self")
        os.environ["TMPDIR"] = folder
        try:
            yield
        finally:
            for name in ("OMPI_MCA_pml", "OMPI_MCA_btl", "TMPDIR"):
                os.environ.pop(name)
                if name in before:
                    os.environ[name] = before[name]
