"""PyTorch's collectives on local tensors, through MPI, and through NCCL between GPUs.

Before anything is sent, the ranks compare what they are about to run; if it differs, all of them
raise a DistributedError that shows both sides with their lines. Collectives are synchronous: the
`Work` that `async_op=True` returns is already complete. Outside the group they do nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta

import numpy as np

from metaop.dist.memory import memory_of
from metaop.distributed.process_group import ProcessGroup, for_members, world_group
from metaop.distributed.reductions import operation
from metaop.distributed.values import (
    combined,
    cut,
    exchanged,
    gathered,
    kind_of,
    kinds_of,
    operand,
    place_of,
    put,
)
from metaop.distributed.work import Work, seconds_of
from metaop.errors import ArgumentError, ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.host.arrays import array_of

Group = ProcessGroup | None


@for_members
def barrier(group: Group = None, async_op: bool = False) -> Work | None:
    """Waits until all ranks of the group have arrived.

    METAOP_TIMEOUT_SECONDS limits the wait; a missing rank raises DistributedError.

    >>> metaop.distributed.barrier()  # a program of one rank
    """
    agreed("barrier", group)
    return done(async_op)


@for_members
def monitored_barrier(
    group: Group = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """Waits until all ranks of the group have arrived, at most for `timeout`.

    Raises DistributedError, which names all ranks that are missing, after `timeout` (a timedelta or
    seconds), by default after METAOP_TIMEOUT_SECONDS.

    >>> metaop.distributed.monitored_barrier(timeout=10.0)  # a program of one rank
    """
    members = group or world_group()
    with members.world.watchdog.within(seconds_of(timeout)):
        members.agree("monitored_barrier")


@for_members
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
    members = agreed(f"all_reduce {op} {kind_of(tensor)}", group)
    (total,) = combined(members, [tensor], op)
    put(tensor, total, tensor.device, divisor_of(op, members))
    return done(async_op, tensor)


@for_members
def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: str = "sum",
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Reduces `tensor` over all ranks, in place, on rank `dst` (0); all pass the same shape.

    `group_dst` names that rank by its number in the group instead.

    >>> x = metaop.tensor([1.0, 2.0])
    >>> metaop.distributed.reduce(x, dst=0)  # a program of one rank
    >>> x
    tensor([1., 2.])
    """
    members = group or world_group()
    root = members.chosen(dst, group_dst, default=0)
    members.agree(f"reduce {op} {kind_of(tensor)} to {members.ranks[root]}")
    (total,) = combined(members, [tensor], op)
    if members.rank() == root:
        put(tensor, total, tensor.device, divisor_of(op, members))
    return done(async_op, tensor)


@for_members
def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Copies the tensor of rank `src` (0) into that of every rank; all pass the same shape.

    `group_src` names that rank by its number in the group instead.

    >>> x = metaop.tensor([1.0, 2.0])
    >>> metaop.distributed.broadcast(x, src=0)  # a program of one rank
    >>> x
    tensor([1., 2.])
    """
    members = group or world_group()
    root = members.chosen(src, group_src, default=0)
    members.agree(f"broadcast {kind_of(tensor)} from {members.ranks[root]}")
    memory = memory_of(tensor.device)
    with memory.active():
        value = array_of(tensor.detach()).reshape(-1).copy()
        request = members.world.transport_at(memory).broadcast(value.view(np.uint8), root)
        members.world.wait(request, f"broadcast of {kind_of(tensor)}")
    put(tensor, value, tensor.device)
    return done(async_op, tensor)


@for_members
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
    members = agreed(what, group)
    check_count("all_gather", tensor_list, members)
    counts = members.communicator.allgather(math.prod(tensor.shape))
    for target, value in zip(tensor_list, cut(gathered(members, tensor, counts), counts)):
        put(target, value, tensor.device)
    return done(async_op, *tensor_list)


@for_members
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
    members = agreed(f"all_gather_into_tensor {kind_of(input_tensor)}", group)
    counts = [math.prod(input_tensor.shape)] * members.size()
    put(output_tensor, gathered(members, input_tensor, counts), input_tensor.device)
    return done(async_op, output_tensor)


all_gather_single = all_gather_into_tensor


@for_members
def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Copies the tensor of rank k into `gather_list[k]` of rank `dst` (0); shapes may differ.

    `group_dst` names that rank by its number in the group instead.

    >>> found = [metaop.zeros(2)]
    >>> metaop.distributed.gather(metaop.tensor([1.0, 2.0]), found)  # a program of one rank
    >>> found
    [tensor([1., 2.])]
    """
    members = group or world_group()
    root = members.chosen(dst, group_dst, default=0)
    members.agree(f"gather {tensor.dtype.name}{place_of(tensor)} to {members.ranks[root]}")
    if members.rank() == root:
        check_count("gather", gather_list, members)
    given: list[Tensor | None] = [None] * members.size()
    given[root] = tensor
    taken = list(gather_list or ()) if members.rank() == root else []
    exchanged(members, given, taken, tensor)
    return done(async_op, *taken)


@for_members
def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Copies `scatter_list[k]` of rank `src` (0) into the tensor of rank k, which has its shape.

    `group_src` names that rank by its number in the group instead.

    >>> x = metaop.zeros(2)
    >>> metaop.distributed.scatter(x, [metaop.tensor([1.0, 2.0])])  # a program of one rank
    >>> x
    tensor([1., 2.])
    """
    members = group or world_group()
    root = members.chosen(src, group_src, default=0)
    members.agree(f"scatter {tensor.dtype.name}{place_of(tensor)} from {members.ranks[root]}")
    given: list[Tensor | None] = [None] * members.size()
    if members.rank() == root:
        check_count("scatter", scatter_list, members)
        given = list(scatter_list or ())
    taken: list[Tensor | None] = [None] * members.size()
    taken[root] = tensor
    exchanged(members, given, taken, tensor)
    return done(async_op, tensor)


@for_members
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
    kinds = kinds_of(input_list)
    members = agreed(f"reduce_scatter {op} {kinds}", group)
    check_count("reduce_scatter", input_list, members)
    memory = memory_of(input_list[0].device)
    with memory.active():
        flat = np.concatenate([operand(source, op) for source in input_list])
        counts = [math.prod(source.shape) for source in input_list]
        mine = np.empty_like(flat, shape=(counts[members.rank()],))
        transport = members.world.transport_at(memory)
        request = transport.reduce_scatter(flat, mine, counts, operation(op, input_list[0]))
        members.world.wait(request, f"reduce_scatter {op} of {kinds}")
    put(output, mine, input_list[0].device, divisor_of(op, members))
    return done(async_op, output)


@for_members
def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: str = "sum", group: Group = None, async_op: bool = False
) -> Work | None:
    """Reduces `input` over all ranks and scatters it along dimension 0 into the outputs.

    The input has as many rows as all outputs together, or stacks them; all of them have the same
    shape, else it raises ShapeError.

    >>> x = metaop.zeros(2)
    >>> metaop.distributed.reduce_scatter_tensor(x, metaop.tensor([1.0, 2.0]))
    >>> x
    tensor([1., 2.])
    """
    ranks = (group or world_group()).size()
    if math.prod(input.shape) != ranks * math.prod(output.shape):
        raise ShapeError(
            f"reduce_scatter_tensor of shape {tuple(input.shape)} into {ranks} outputs of shape "
            f"{tuple(output.shape)}",
            fix="pass an input with the rows of all outputs",
        )
    # Parts of the elements, as in PyTorch: the input may also stack the outputs.
    parts = input.reshape(-1).chunk(ranks)  # type: ignore[attr-defined]
    return reduce_scatter(output, list(parts), op, group, async_op)


reduce_scatter_single = reduce_scatter_tensor


@for_members
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
    members = agreed(f"all_to_all {', '.join(kinds)}", group)
    check_count("all_to_all", input_tensor_list, members)
    check_count("all_to_all", output_tensor_list, members)
    exchanged(members, input_tensor_list, output_tensor_list, input_tensor_list[0])
    return done(async_op, *output_tensor_list)


# --- helpers ------------------------------------------------------------------------------------


def agreed(what: str, group: Group) -> ProcessGroup:
    """The group, once all of its ranks have agreed that they run the same collective."""
    members = group or world_group()
    members.agree(what)
    return members


def done(async_op: bool, *tensors: Tensor) -> Work | None:
    """What a collective returns: as in PyTorch, a `Work` only with `async_op`."""
    return Work(tensors) if async_op else None


def divisor_of(op: str, members: ProcessGroup) -> int:
    """What a sum over the ranks is divided by."""
    return members.size() if op == "avg" else 1


def check_count(name: str, given: Sequence[object] | None, members: ProcessGroup) -> None:
    """Raises ArgumentError unless a list has an entry for every rank."""
    count = len(given or ())
    if count != members.size():
        raise ArgumentError(
            f"{name} got a list of {count} for {members.size()} ranks",
            fix="pass one entry for every rank",
        )
