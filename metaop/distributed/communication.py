"""PyTorch's collectives on local tensors, carried by MPI.

Before anything is sent the ranks compare what they are about to do; a difference is a
DistributedError on all of them that shows both sides with their lines. Collectives return when they
are done, so the `Work` that `async_op=True` gives has nothing to wait for.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.dist.collectives import mpi
from metaop.dist.packing import Packed
from metaop.distributed.process_group import ProcessGroup, group, make_group, world_group
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.gradients import no_grad

Group = ProcessGroup | None


class ReduceOp:
    """How the values of the ranks are combined."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "prod"
    MAX = "max"
    MIN = "min"


class Work:
    """A collective that has been done."""

    def wait(self, timeout: Any = None) -> bool:
        """True: there is nothing to wait for."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True


# --- processes ----------------------------------------------------------------------------------


def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
    """Starts MPI; a rank that fails from now on ends the job.

    The backend and addresses of PyTorch programs are accepted: MPI finds its processes itself.
    """
    world_group()


def destroy_process_group(group: Group = None) -> None:
    """Accepted: MPI ends with the program."""


def is_available() -> bool:
    """Whether mpi4py is installed."""
    return importlib.util.find_spec("mpi4py") is not None


is_mpi_available = is_available


def is_nccl_available() -> bool:
    """False: process groups talk through MPI. Placements on GPUs use NCCL where cupy has it."""
    return False


def is_initialized() -> bool:
    """Whether MPI has been started by this package."""
    return group.WORLD is not None


def get_backend(group: Group = None) -> str:
    """ "mpi"."""
    return "mpi"


def get_rank(group: Group = None) -> int:
    """The number of this process in the group, from 0."""
    return (group or world_group()).rank()


def get_world_size(group: Group = None) -> int:
    """How many processes the group has."""
    return (group or world_group()).size()


def new_group(ranks: Sequence[int] | None = None, **ignored: Any) -> ProcessGroup | None:
    """A group of some ranks; every rank of the job has to call it. None outside of the group."""
    return make_group(ranks)


# --- collectives --------------------------------------------------------------------------------


def barrier(group: Group = None, async_op: bool = False) -> Work:
    """Waits for all ranks."""
    _agreed("barrier", group)
    return Work()


def all_reduce(
    tensor: Tensor, op: str = "sum", group: Group = None, async_op: bool = False
) -> Work:
    """Puts the combination of all ranks' values into the tensor of each."""
    members = _agreed(f"all_reduce {op} {_kind(tensor)}", group)
    _put(tensor, _combined(members, _value(tensor), op))
    return Work()


def reduce(
    tensor: Tensor, dst: int = 0, op: str = "sum", group: Group = None, async_op: bool = False
) -> Work:
    """Puts the combination of all ranks' values into the tensor of rank `dst`."""
    members = _agreed(f"reduce {op} {_kind(tensor)} to {dst}", group)
    total = _combined(members, _value(tensor), op)
    if members.rank() == members.number_of(dst):
        _put(tensor, total)
    return Work()


def broadcast(tensor: Tensor, src: int = 0, group: Group = None, async_op: bool = False) -> Work:
    """Puts the value that rank `src` has into the tensor of every rank."""
    members = _agreed(f"broadcast {_kind(tensor)} from {src}", group)
    value = _value(tensor).copy()
    members.communicator.Bcast(_bytes(value), members.number_of(src))
    _put(tensor, value)
    return Work()


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work:
    """Puts the value of rank k into `tensor_list[k]`, on all ranks; shapes may differ."""
    members = _agreed(f"all_gather {tensor.dtype.name} of {tensor.ndim} dimensions", group)
    _check_count("all_gather", tensor_list, members)
    for target, value in zip(tensor_list, members.communicator.allgather(_value(tensor))):
        _put(target, value)
    return Work()


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work:
    """Puts the values of all ranks one after another into `output_tensor`."""
    members = _agreed(f"all_gather_into_tensor {_kind(input_tensor)}", group)
    value = _value(input_tensor)
    whole = np.empty((members.size(), *value.shape), value.dtype)
    members.communicator.Allgather(_bytes(value), _bytes(whole))
    _put(output_tensor, whole.reshape(tuple(output_tensor.shape)))
    return Work()


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int = 0,
    group: Group = None,
    async_op: bool = False,
) -> Work:
    """Puts the value of rank k into `gather_list[k]` of rank `dst`."""
    members = _agreed(f"gather {tensor.dtype.name} to {dst}", group)
    values = members.communicator.gather(_value(tensor), members.number_of(dst))
    if values is not None:
        _check_count("gather", gather_list, members)
        for target, value in zip(gather_list or (), values):
            _put(target, value)
    return Work()


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int = 0,
    group: Group = None,
    async_op: bool = False,
) -> Work:
    """Puts `scatter_list[k]` of rank `src` into the tensor of rank k."""
    members = _agreed(f"scatter {tensor.dtype.name} from {src}", group)
    values = None
    if members.rank() == members.number_of(src):
        _check_count("scatter", scatter_list, members)
        values = [_value(source) for source in scatter_list or ()]
    _put(tensor, members.communicator.scatter(values, members.number_of(src)))
    return Work()


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: str = "sum",
    group: Group = None,
    async_op: bool = False,
) -> Work:
    """Puts the combination of all ranks' `input_list[k]` into the output of rank k."""
    kinds = ", ".join(_kind(source) for source in input_list)
    members = _agreed(f"reduce_scatter {op} {kinds}", group)
    _check_count("reduce_scatter", input_list, members)
    flat = np.concatenate([_value(source).reshape(-1) for source in input_list])
    counts = [math.prod(source.shape) for source in input_list]
    mine = np.empty(counts[members.rank()], flat.dtype)
    request = members.world.carrier.reduce_scatter(flat, mine, counts, _operation(op))
    members.world.wait(request, f"reduce_scatter {op} of {kinds}")
    _put(output, _averaged(mine, op, members).reshape(tuple(output.shape)))
    return Work()


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: str = "sum", group: Group = None, async_op: bool = False
) -> Work:
    """Puts this rank's part of the combination of all ranks' `input` into `output`."""
    size = (group or world_group()).size()
    return reduce_scatter(output, list(input.chunk(size)), op, group)  # type: ignore[attr-defined]


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Group = None,
    async_op: bool = False,
) -> Work:
    """Puts `input_tensor_list[j]` of rank k into `output_tensor_list[k]` of rank j."""
    members = _agreed("all_to_all", group)
    _check_count("all_to_all", input_tensor_list, members)
    values = [_value(source) for source in input_tensor_list]
    for target, value in zip(output_tensor_list, members.communicator.alltoall(values)):
        _put(target, value)
    return Work()


def send(tensor: Tensor, dst: int, group: Group = None, tag: int = 0) -> None:
    """Sends the value to rank `dst`, which has to call `recv`."""
    members = group or world_group()
    members.communicator.send(_value(tensor), members.number_of(dst), tag)


def recv(tensor: Tensor, src: int | None = None, group: Group = None, tag: int = 0) -> int:
    """Puts a value that rank `src` (any rank without it) sends into the tensor; returns `src`."""
    members, module = group or world_group(), mpi()
    status = module.Status()
    source = module.ANY_SOURCE if src is None else members.number_of(src)
    _put(tensor, members.communicator.recv(None, source, tag, status))
    return members.ranks[status.Get_source()]


def broadcast_object_list(
    object_list: list[Any], src: int = 0, group: Group = None, device: Any = None
) -> None:
    """Fills the list with the objects that rank `src` has in its own."""
    members = _agreed("broadcast_object_list", group)
    object_list[:] = members.communicator.bcast(list(object_list), members.number_of(src))


def all_gather_object(object_list: list[Any], obj: Any, group: Group = None) -> None:
    """Fills the list with the objects of all ranks."""
    object_list[:] = _agreed("all_gather_object", group).communicator.allgather(obj)


# --- helpers ------------------------------------------------------------------------------------


def _agreed(what: str, group: Group) -> ProcessGroup:
    """The group, when all of its ranks are about to do the same."""
    members = group or world_group()
    members.world.agree(what, "collectives")
    return members


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype.name}{list(tensor.shape)}"


def _value(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().numpy(force=True))


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


@no_grad()
def _put(tensor: Tensor, value: np.ndarray) -> None:
    array = np.ascontiguousarray(value).reshape(tuple(tensor.shape))
    tensor.copy_(from_array(array, tensor.dtype))  # type: ignore[attr-defined]


def _operation(op: str) -> str:
    """The name of a reduction among the reducers; of a mean that of the sum."""
    names = {"sum": "add", "avg": "add", "prod": "mul", "max": "max", "min": "min"}
    if op not in names:
        raise ArgumentError(f"unknown reduction {op!r}", fix=f"use one of {', '.join(names)}")
    return names[op]


def _averaged(total: np.ndarray, op: str, members: ProcessGroup) -> np.ndarray:
    return (total / members.size()).astype(total.dtype) if op == "avg" else total


def _combined(members: ProcessGroup, value: np.ndarray, op: str) -> np.ndarray:
    """The combination over the ranks."""
    total = np.empty_like(value)
    given = Packed.alone(value.reshape(-1))
    request = members.world.carrier.all_reduce(given, total.reshape(-1), _operation(op))
    members.world.wait(request, f"all_reduce {op} of {value.dtype}{list(value.shape)}")
    return _averaged(total, op, members)


def _check_count(name: str, tensors: Sequence[Tensor] | None, members: ProcessGroup) -> None:
    count = len(tensors or ())
    if count != members.size():
        raise ArgumentError(
            f"{name} got {count} tensors for {members.size()} ranks",
            fix="pass one tensor for every rank",
        )
