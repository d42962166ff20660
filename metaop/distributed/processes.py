"""The processes of a job under PyTorch's names: starting MPI, and their ranks."""

from __future__ import annotations

import os
from datetime import timedelta

from metaop.dist.collectives import everyone
from metaop.dist.job import job
from metaop.dist.joining import check_place, wish_of
from metaop.distributed.backends import check_backend
from metaop.distributed.process_group import ProcessGroup, forget_group, group, world_group
from metaop.errors import ArgumentError
from metaop.tensor.sharded import data_parallel

Group = ProcessGroup | None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: None = None,
    group_name: str = "",
    pg_options: None = None,
    device_id: None = None,
) -> None:
    """Starts MPI; from now on, a rank that fails ends the job.

    Under mpirun or `metaop run`, MPI knows its processes, and rank and world size must match.
    Processes on one host that were started otherwise (`multiprocessing.spawn`, torchrun, a shell)
    meet through `init_method`: env:// (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT),
    tcp://host:port or file:///path. A program without any of these is the only rank.

    `backend` is a name that PyTorch knows: MPI carries tensors on hosts, NCCL those on GPUs.
    `timeout` becomes METAOP_TIMEOUT_SECONDS; `group_name` is only a label. Raises ArgumentError if
    the rank or the world size is missing, or for a store, options or a device; DistributedError if
    they differ from MPI's, or for ranks on several hosts without mpirun.

    >>> metaop.distributed.init_process_group()  # a program of one rank
    >>> metaop.distributed.get_rank(), metaop.distributed.get_world_size()
    (0, 1)
    """
    data_parallel.refuse("init_process_group()")
    check_backend(backend)
    for name, value in (("store", store), ("pg_options", pg_options), ("device_id", device_id)):
        if value is not None:
            raise ArgumentError(
                f"init_process_group got {name}={value!r}",
                fix="omit it: MPI and NCCL need none, and cuda.set_device() chooses a GPU",
            )
    if timeout is not None:
        os.environ["METAOP_TIMEOUT_SECONDS"] = str(int(timeout.total_seconds()))
    job.wish = wish_of(init_method, rank, world_size)
    communicator = everyone()
    check_place(job.wish, communicator.rank, communicator.size)
    world_group()


def destroy_process_group(group: Group = None) -> None:
    """Forgets the groups, or one of them; MPI ends with the program.

    >>> metaop.distributed.init_process_group()
    >>> metaop.distributed.destroy_process_group()
    """
    forget_group(group)


def is_torchelastic_launched() -> bool:
    """Whether `torchrun` started the process; its ranks are not metaop's.

    >>> metaop.distributed.is_torchelastic_launched()
    False
    """
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_initialized() -> bool:
    """Whether MPI has been started by this package.

    >>> metaop.distributed.init_process_group()
    >>> metaop.distributed.is_initialized()
    True
    """
    return group.WORLD is not None


def get_rank(group: Group = None) -> int:
    """The number of this process in the group, from 0.

    >>> metaop.distributed.get_rank()  # a program of one rank
    0
    """
    return (group or world_group()).rank()


def get_world_size(group: Group = None) -> int:
    """The number of processes in the group.

    >>> metaop.distributed.get_world_size()  # a program of one rank
    1
    """
    return (group or world_group()).size()
