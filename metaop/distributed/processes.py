"""The processes of a job under PyTorch's names: starting MPI, ranks, groups, backends."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from datetime import timedelta

from metaop.cuda import nccl
from metaop.dist.collectives import everyone
from metaop.dist.job import job
from metaop.dist.joining import check_place, wish_of
from metaop.distributed.process_group import (
    ProcessGroup,
    forget_group,
    group,
    make_group,
    world_group,
)
from metaop.errors import ArgumentError
from metaop.tensor.sharded import data_parallel

Group = ProcessGroup | None
_BACKENDS = {"gloo", "mpi", "nccl", "ucc", "xccl"}


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
    parts = [] if backend is None else [part.rpartition(":")[2] for part in backend.split(",")]
    if {part.lower() for part in parts} - _BACKENDS:
        raise ArgumentError(f"backend is {backend!r}", fix=f"use one of {sorted(_BACKENDS)}")
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


def is_available() -> bool:
    """Whether mpi4py is installed.

    >>> metaop.distributed.is_available()
    True
    """
    return importlib.util.find_spec("mpi4py") is not None


is_mpi_available = is_available


def is_nccl_available() -> bool:
    """Whether NCCL can carry collectives between GPUs.

    >>> metaop.distributed.is_nccl_available() and not metaop.cuda.is_available()
    False
    """
    return nccl.is_available()


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


def get_backend(group: Group = None) -> str:
    """ "mpi", whatever backend was requested.

    >>> metaop.distributed.get_backend()
    'mpi'
    """
    return "mpi"


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


def new_group(ranks: Sequence[int] | None = None) -> ProcessGroup | None:
    """A group of some ranks; every rank of the job must call it. Returns None outside the group.

    Without `ranks`, all ranks; numbers outside the job raise ArgumentError.

    >>> metaop.distributed.get_world_size(metaop.distributed.new_group([0]))
    1
    """
    return make_group(ranks)
