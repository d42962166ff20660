"""PyTorch's collectives on local tensors, through MPI, and through NCCL between GPUs.

Before anything is sent, the ranks compare what they are about to run; if it differs, all of them
raise a DistributedError that shows both sides with their lines. Collectives return when they are
done: the `Work` that `async_op=True` returns has nothing to wait for.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from metaop.cuda import nccl
from metaop.dist.collectives import everyone
from metaop.dist.job import job
from metaop.dist.joining import check_place, wish_of
from metaop.dist.memory import memory_of
from metaop.distributed.process_group import (
    ProcessGroup,
    forget_group,
    group,
    make_group,
    world_group,
)
from metaop.distributed.values import (
    combined,
    cut,
    exchanged,
    gathered,
    kind_of,
    operation,
    place_of,
    put,
)
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.host.arrays import array_of
from metaop.tensor.sharded import data_parallel

Group = ProcessGroup | None
_BACKENDS = {"gloo", "mpi", "nccl", "ucc", "xccl"}


class ReduceOp:
    """How the values of the ranks are combined: element by element, in one shape.

    >>> x = metaop.ones(2)
    >>> metaop.distributed.all_reduce(x, metaop.distributed.ReduceOp.MAX)
    >>> x
    tensor([1., 1.])
    """

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "prod"
    MAX = "max"
    MIN = "min"
    # Where annotations look up the type of these.
    RedOpType = str


class Work:
    """A collective that is already done: there is nothing to wait for, whatever its size.

    >>> work = metaop.distributed.all_reduce(metaop.ones(2), async_op=True)
    >>> work.wait()
    True
    """

    def wait(self, timeout: Any = None) -> bool:
        """True: there is nothing to wait for."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True


# --- processes ----------------------------------------------------------------------------------


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
    `timeout` becomes METAOP_TIMEOUT_SECONDS; `group_name` is only a label. Raises ArgumentError for
    incomplete numbers and for a store, options or a device, and DistributedError for numbers that
    differ from MPI's and for ranks on several hosts without mpirun.

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


# --- collectives --------------------------------------------------------------------------------


def barrier(group: Group = None, async_op: bool = False) -> Work | None:
    """Waits until all ranks of the group have arrived.

    METAOP_TIMEOUT_SECONDS limits the wait; a missing rank raises DistributedError.

    >>> metaop.distributed.barrier()  # a program of one rank
    """
    _agreed("barrier", group)
    return _done(async_op)


def all_reduce(
    tensor: Tensor, op: str = "sum", group: Group = None, async_op: bool = False
) -> Work | None:
    """Combines the values of all ranks into the tensor of each.

    All tensors must have the same shape and type; otherwise all ranks raise DistributedError.

    >>> x = metaop.tensor([1.0, 2.0])
    >>> metaop.distributed.all_reduce(x)  # a program of one rank
    >>> x
    tensor([1., 2.])
    """
    members = _agreed(f"all_reduce {op} {kind_of(tensor)}", group)
    put(tensor, combined(members, tensor, op), tensor.device, _divisor(op, members))
    return _done(async_op)


def reduce(
    tensor: Tensor, dst: int = 0, op: str = "sum", group: Group = None, async_op: bool = False
) -> Work | None:
    """Combines the values of all ranks, which have one shape, into the tensor of rank `dst`.

    >>> x = metaop.tensor([1.0, 2.0])
    >>> metaop.distributed.reduce(x, dst=0)  # a program of one rank
    >>> x
    tensor([1., 2.])
    """
    members = _agreed(f"reduce {op} {kind_of(tensor)} to {dst}", group)
    total = combined(members, tensor, op)
    if members.rank() == members.number_of(dst):
        put(tensor, total, tensor.device, _divisor(op, members))
    return _done(async_op)


def broadcast(
    tensor: Tensor, src: int = 0, group: Group = None, async_op: bool = False
) -> Work | None:
    """Copies the value of rank `src` into the tensor of every rank; all have one shape.

    >>> x = metaop.tensor([1.0, 2.0])
    >>> metaop.distributed.broadcast(x, src=0)  # a program of one rank
    >>> x
    tensor([1., 2.])
    """
    members = _agreed(f"broadcast {kind_of(tensor)} from {src}", group)
    memory, root = memory_of(tensor.device), members.number_of(src)
    with memory.active():
        value = array_of(tensor.detach()).reshape(-1).copy()
        request = members.world.transport_at(memory).broadcast(value.view(np.uint8), root)
        members.world.wait(request, f"broadcast of {kind_of(tensor)}")
    put(tensor, value, tensor.device)
    return _done(async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Copies the value of rank k into `tensor_list[k]`, on all ranks; shapes may differ.

    >>> found = [metaop.zeros(2)]
    >>> metaop.distributed.all_gather(found, metaop.tensor([1.0, 2.0]))  # a program of one rank
    >>> found
    [tensor([1., 2.])]
    """
    what = f"all_gather {tensor.dtype.name} of {tensor.ndim} dimensions{place_of(tensor)}"
    members = _agreed(what, group)
    _check_count("all_gather", tensor_list, members)
    counts = members.communicator.allgather(math.prod(tensor.shape))
    for target, value in zip(tensor_list, cut(gathered(members, tensor, counts), counts)):
        put(target, value, tensor.device)
    return _done(async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Concatenates the values of all ranks into `output_tensor`.

    They have one shape, whose first size times the number of ranks is that of the output.

    >>> found = metaop.zeros(2)
    >>> metaop.distributed.all_gather_into_tensor(found, metaop.tensor([1.0, 2.0]))
    >>> found
    tensor([1., 2.])
    """
    members = _agreed(f"all_gather_into_tensor {kind_of(input_tensor)}", group)
    counts = [math.prod(input_tensor.shape)] * members.size()
    put(output_tensor, gathered(members, input_tensor, counts), input_tensor.device)
    return _done(async_op)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int = 0,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Copies the value of rank k into `gather_list[k]` of rank `dst`; shapes may differ.

    >>> found = [metaop.zeros(2)]
    >>> metaop.distributed.gather(metaop.tensor([1.0, 2.0]), found)  # a program of one rank
    >>> found
    [tensor([1., 2.])]
    """
    members = _agreed(f"gather {tensor.dtype.name}{place_of(tensor)} to {dst}", group)
    root = members.number_of(dst)
    if members.rank() == root:
        _check_count("gather", gather_list, members)
    given: list[Tensor | None] = [None] * members.size()
    given[root] = tensor
    exchanged(members, given, gather_list or () if members.rank() == root else (), tensor)
    return _done(async_op)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int = 0,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Copies `scatter_list[k]` of rank `src` into the tensor of rank k, which has its shape.

    >>> x = metaop.zeros(2)
    >>> metaop.distributed.scatter(x, [metaop.tensor([1.0, 2.0])])  # a program of one rank
    >>> x
    tensor([1., 2.])
    """
    members = _agreed(f"scatter {tensor.dtype.name}{place_of(tensor)} from {src}", group)
    given: list[Tensor | None] = [None] * members.size()
    if members.rank() == members.number_of(src):
        _check_count("scatter", scatter_list, members)
        given = list(scatter_list or ())
    taken: list[Tensor | None] = [None] * members.size()
    taken[members.number_of(src)] = tensor
    exchanged(members, given, taken, tensor)
    return _done(async_op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: str = "sum",
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Combines all ranks' `input_list[k]`, of one shape, into the output of rank k.

    >>> x = metaop.zeros(2)
    >>> metaop.distributed.reduce_scatter(x, [metaop.tensor([1.0, 2.0])])  # a program of one rank
    >>> x
    tensor([1., 2.])
    """
    kinds = ", ".join(kind_of(source) for source in input_list)
    members = _agreed(f"reduce_scatter {op} {kinds}", group)
    _check_count("reduce_scatter", input_list, members)
    memory = memory_of(input_list[0].device)
    with memory.active():
        flat = np.concatenate([array_of(source.detach()).reshape(-1) for source in input_list])
        counts = [math.prod(source.shape) for source in input_list]
        mine = np.empty_like(flat, shape=(counts[members.rank()],))
        transport = members.world.transport_at(memory)
        request = transport.reduce_scatter(flat, mine, counts, operation(op))
        members.world.wait(request, f"reduce_scatter {op} of {kinds}")
    put(output, mine, input_list[0].device, _divisor(op, members))
    return _done(async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: str = "sum", group: Group = None, async_op: bool = False
) -> Work | None:
    """Combines all ranks' `input` and copies this rank's part into `output`.

    The first size of the input is that of the output times the number of ranks.

    >>> x = metaop.zeros(2)
    >>> metaop.distributed.reduce_scatter_tensor(x, metaop.tensor([1.0, 2.0]))
    >>> x
    tensor([1., 2.])
    """
    parts = input.chunk((group or world_group()).size())  # type: ignore[attr-defined]
    return reduce_scatter(output, list(parts), op, group, async_op)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Copies `input_tensor_list[j]` of rank k into `output_tensor_list[k]` of rank j.

    Each tensor has the shape of the one into which it is copied.

    >>> found = [metaop.zeros(2)]
    >>> metaop.distributed.all_to_all(found, [metaop.tensor([1.0, 2.0])])  # a program of one rank
    >>> found
    [tensor([1., 2.])]
    """
    kinds = sorted({f"{one.dtype.name}{place_of(one)}" for one in input_tensor_list})
    members = _agreed(f"all_to_all {', '.join(kinds)}", group)
    _check_count("all_to_all", input_tensor_list, members)
    _check_count("all_to_all", output_tensor_list, members)
    exchanged(members, input_tensor_list, output_tensor_list, input_tensor_list[0])
    return _done(async_op)


def broadcast_object_list(
    object_list: list[Any], src: int = 0, group: Group = None, device: Any = None
) -> None:
    """Fills the list with the objects in the list of rank `src`.

    They are pickled, so ranks must trust each other.

    >>> found = [{"step": 3}]
    >>> metaop.distributed.broadcast_object_list(found)  # a program of one rank
    >>> found
    [{'step': 3}]
    """
    members = _agreed("broadcast_object_list", group)
    object_list[:] = members.communicator.bcast(list(object_list), members.number_of(src))


def all_gather_object(object_list: list[Any], obj: Any, group: Group = None) -> None:
    """Fills the list with the objects of all ranks.

    They are pickled, so ranks must trust each other.

    >>> found = [None]
    >>> metaop.distributed.all_gather_object(found, {"step": 3})  # a program of one rank
    >>> found
    [{'step': 3}]
    """
    object_list[:] = _agreed("all_gather_object", group).communicator.allgather(obj)


# --- helpers ------------------------------------------------------------------------------------


def _agreed(what: str, group: Group) -> ProcessGroup:
    """The group, after checking that all of its ranks are about to run the same collective."""
    members = group or world_group()
    members.world.agree(what, "collectives")
    return members


def _done(async_op: bool) -> Work | None:
    """What a collective returns: as in PyTorch, a `Work` only with `async_op`."""
    return Work() if async_op else None


def _divisor(op: str, members: ProcessGroup) -> int:
    return members.size() if op == "avg" else 1


def _check_count(name: str, tensors: Sequence[Tensor] | None, members: ProcessGroup) -> None:
    count = len(tensors or ())
    if count != members.size():
        raise ArgumentError(
            f"{name} got {count} tensors for {members.size()} ranks",
            fix="pass one tensor for every rank",
        )
