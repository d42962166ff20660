"""Collectives that move or reduce several values as one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from metaop.dist.memory import memory_of
from metaop.distributed.collectives import Group, agreed, check_count, divisor_of, done
from metaop.distributed.process_group import for_members, world_group
from metaop.distributed.values import (
    combined,
    cut,
    flat_together,
    kinds_of,
    place_of,
    put,
    swapped,
)
from metaop.distributed.work import Work
from metaop.errors import ArgumentError, ShapeError
from metaop.futures import Future
from metaop.tensor.core import Tensor


@for_members
def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Sends part k of `input` to rank k, and concatenates what arrives in `output`.

    Parts lie one after another along dimension 0 and have the sizes given, by default equal ones.
    Raises ShapeError if sizes do not add up to a tensor, or if other ranks send other sizes.

    >>> found = metaop.zeros(2)
    >>> metaop.distributed.all_to_all_single(found, metaop.tensor([1.0, 2.0]))
    >>> found
    tensor([1., 2.])
    """
    members = group or world_group()
    given = _elements("input", input, input_split_sizes, members.size())
    expected = _elements("output", output, output_split_sizes, members.size())
    members.agree(f"all_to_all_single {input.dtype.name}{place_of(input)}")
    received, arriving = swapped(members, flat_together([input], input), given, input)
    if arriving != expected:
        raise ShapeError(
            f"all_to_all_single: the ranks send {arriving} elements, and the output of shape "
            f"{tuple(output.shape)} has room for {expected}",
            fix="let output_split_sizes[k] be the rows that rank k sends to this one",
        )
    put(output, received, input.device)
    return done(async_op, output)


def _elements(name: str, tensor: Tensor, sizes: Sequence[int] | None, ranks: int) -> list[int]:
    """The numbers of elements of the parts of a tensor along dimension 0."""
    rows = tensor.shape[0] if tensor.ndim else 0
    rest = math.prod(tensor.shape[1:])
    if not sizes and rows % ranks:
        raise ShapeError(
            f"all_to_all_single: {rows} rows of the {name} for {ranks} ranks",
            fix=f"pass {name}_split_sizes, one size for every rank",
        )
    parts = list(sizes or [rows // ranks] * ranks)
    if len(parts) != ranks or sum(parts) != rows or min(parts) < 0:
        raise ShapeError(
            f"all_to_all_single: {name}_split_sizes are {parts} for {rows} rows and {ranks} ranks",
            fix="pass one size for every rank; they add up to the rows of the tensor",
        )
    return [part * rest for part in parts]


@for_members
def all_reduce_coalesced(
    tensors: Tensor | Sequence[Tensor],
    op: str = "sum",
    group: Group = None,
    async_op: bool = False,
) -> Future[list[Tensor]] | None:
    """Reduces several tensors of one type over all ranks, in place, as one; shapes may differ.

    All ranks must pass the same shapes. With `async_op`, returns a completed future.

    >>> x, y = metaop.ones(2), metaop.ones(1)
    >>> metaop.distributed.all_reduce_coalesced([x, y])  # a program of one rank
    >>> x, y
    (tensor([1., 1.]), tensor([1.]))
    """
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    _check_alike("all_reduce_coalesced", given)
    members = agreed(f"all_reduce_coalesced {op} {kinds_of(given)}", group)
    for tensor, total in zip(given, combined(members, given, op)):
        put(tensor, total, tensor.device, divisor_of(op, members))
    return Work(given).get_future() if async_op else None


@for_members
def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Tensor]],
    input_tensor_list: Sequence[Tensor],
    group: Group = None,
    async_op: bool = False,
) -> Future[list[Tensor]] | None:
    """Copies input i of rank k into `output_tensor_lists[k][i]` on all ranks.

    All ranks must pass inputs of the same shapes and of one type. With `async_op`, returns a
    completed future.

    >>> found = [[metaop.zeros(2), metaop.zeros(1)]]
    >>> metaop.distributed.all_gather_coalesced(found, [metaop.ones(2), metaop.ones(1)])
    >>> found
    [[tensor([1., 1.]), tensor([1.])]]
    """
    name, given = "all_gather_coalesced", list(input_tensor_list)
    _check_alike(name, given)
    members = agreed(f"{name} {kinds_of(given)}", group)
    check_count(name, output_tensor_lists, members)
    sizes = [math.prod(tensor.shape) for tensor in given]
    memory = memory_of(given[0].device)
    with memory.active():
        mine = flat_together(given, given[0])
        whole = np.empty_like(mine, shape=(members.size() * mine.size,))
        transport = members.world.transport_at(memory)
        request = transport.all_gather(mine, whole, [mine.size] * members.size())
        members.world.wait(request, f"{name} of {kinds_of(given)}")
    for targets, values in zip(output_tensor_lists, whole.reshape(members.size(), -1)):
        for target, value in zip(targets, cut(values, sizes)):
            put(target, value, given[0].device)
    found = [target for targets in output_tensor_lists for target in targets]
    return Work(found).get_future() if async_op else None


def _check_alike(name: str, tensors: Sequence[Tensor]) -> None:
    kinds = {f"{one.dtype.name} on {one.device}" for one in tensors}
    if len(kinds) != 1:
        raise ArgumentError(
            f"{name} of tensors of {sorted(kinds) or 'no'} kinds",
            fix="pass tensors of one type on one device",
        )
