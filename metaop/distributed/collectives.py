"""PyTorch's collectives on local tensors, through MPI, and through NCCL between GPUs.

Before anything is sent, the ranks compare what they are about to run; if it differs, all of them
raise a DistributedError that shows both sides with their lines. Collectives are synchronous: the
`Work` that `async_op=True` returns is already complete.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.dist.memory import memory_of
from metaop.distributed.process_group import ProcessGroup, world_group
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

Group = ProcessGroup | None


class ReduceOp:
    """The elementwise operation of a reduction over the ranks, whose shapes are equal.

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
    # PyTorch's name for the type of these constants, used in annotations.
    RedOpType = str


class Work:
    """A completed collective, whatever the shapes of its tensors.

    >>> work = metaop.distributed.all_reduce(metaop.ones(2), async_op=True)
    >>> work.wait()
    True
    """

    def wait(self, timeout: Any = None) -> bool:
        """Returns True at once: the collective is complete."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True


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
    """Reduces `tensor` over all ranks, in place; every rank gets the result.

    All ranks must pass the same shape and dtype; otherwise all of them raise DistributedError.

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
    """Reduces `tensor` over all ranks, in place, on rank `dst`; all ranks pass the same shape.

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
    """Copies the tensor of rank `src` into the tensor of every rank; all ranks pass the same shape.

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
    """Copies the tensor of rank k into `tensor_list[k]` on all ranks; shapes may differ.

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
    """Concatenates the tensors of all ranks along dimension 0 into `output_tensor`.

    The inputs have the same shape; the output has as many rows as all of them together.

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
    """Copies the tensor of rank k into `gather_list[k]` of rank `dst`; shapes may differ.

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
    """Reduces `input_list[k]` over all ranks into the output of rank k, which has its shape.

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
    """Reduces `input` over all ranks and scatters it along dimension 0 into the outputs.

    The input has as many rows as all outputs together; all of them have the same shape.

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
    """The group, once all of its ranks have agreed that they run the same collective."""
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
