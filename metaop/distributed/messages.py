"""Point-to-point messages between ranks, of tensors on hosts and on GPUs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from metaop.dist.collectives import MPIWorld, mpi
from metaop.dist.memory import HOST_MEMORY, Memory, memory_of
from metaop.dist.pairs import pair_of
from metaop.distributed.process_group import ProcessGroup, world_group
from metaop.distributed.values import put
from metaop.tensor.core import Tensor
from metaop.tensor.host.arrays import array_of
from metaop.unified_graph.tensor_type import CPU

_ANSWER = 32006


class _OnGpu(NamedTuple):
    """The header of a tensor on a GPU, from which the receiver allocates memory."""

    shape: tuple[int, ...]
    dtype: np.dtype


def send(tensor: Tensor, dst: int, group: ProcessGroup | None = None, tag: int = 0) -> None:
    """Sends the tensor to rank `dst`, which must call `recv` with a tensor of its shape.

    For a tensor on a GPU, the call returns only after that rank has called `recv`.

    >>> metaop.distributed.send(metaop.tensor([1.0, 2.0]), dst=0)  # a program of one rank
    >>> x = metaop.zeros(2)
    >>> metaop.distributed.recv(x), x
    (0, tensor([1., 2.]))
    """
    members = group or world_group()
    rank, what = members.number_of(dst), f"send to rank {dst}"
    memory, value = memory_of(tensor.device), tensor.detach()
    if memory is HOST_MEMORY:
        _give(members, np.ascontiguousarray(value._array()), rank, tag, what)
        return
    shape, kind = tuple(tensor.shape), tensor.dtype.numpy
    _give(members, _OnGpu(shape, kind), rank, tag, what)
    if not _taken(members, rank, _ANSWER, what)[0]:
        _give(members, value.numpy(force=True), rank, _ANSWER, what)
        return
    pair = _pair_of(members, rank, memory)
    with memory.active():
        request = pair.transport.send(array_of(value).reshape(-1), 1 - pair.rank)
        pair.wait(request, what)


def recv(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0
) -> int:
    """Receives a tensor from rank `src` (by default any rank) into `tensor`; returns `src`.

    Both tensors must have the same shape and dtype.

    >>> metaop.distributed.send(metaop.tensor([1.0, 2.0]), dst=0)  # a program of one rank
    >>> x = metaop.zeros(2)
    >>> metaop.distributed.recv(x, src=0), x
    (0, tensor([1., 2.]))
    """
    members, rank = group or world_group(), None
    what = "recv from any rank"
    if src is not None:
        rank, what = members.number_of(src), f"recv from rank {src}"
    value, source = _taken(members, rank, tag, what)
    memory, device = memory_of(tensor.device), CPU
    if isinstance(value, _OnGpu):
        value = _taken_from_gpu(members, value, memory, source, what)
        device = memory.device
    put(tensor, value, device)
    return members.ranks[source]


def _taken_from_gpu(
    members: ProcessGroup, message: _OnGpu, memory: Memory, source: int, what: str
) -> Any:
    """Receives a value from the GPU of a rank, directly or, without a GPU here, through hosts."""
    _give(members, memory is not HOST_MEMORY, source, _ANSWER, what)
    if memory is HOST_MEMORY:
        return _taken(members, source, _ANSWER, what)[0]
    pair = _pair_of(members, source, memory)
    with memory.active():
        value = memory.full(message.shape, 0, message.dtype)
        pair.wait(pair.transport.receive(value.reshape(-1), 1 - pair.rank), what)
    return value


def _give(members: ProcessGroup, value: Any, rank: int, tag: int, what: str) -> None:
    request = members.communicator.isend(value, rank, tag)
    members.world.watchdog.wait_for([rank], lambda: request.test()[0], what)


def _taken(members: ProcessGroup, rank: int | None, tag: int, what: str) -> tuple[Any, int]:
    """Receives an object from a rank (None: any rank); returns it with the rank's number."""
    module = mpi()
    status = module.Status()
    found: list[Any] = []
    source = module.ANY_SOURCE if rank is None else rank

    def is_there() -> bool:
        found[:] = [members.communicator.improbe(source, tag, status)]
        return found[0] is not None

    members.world.watchdog.wait_for([] if rank is None else [rank], is_there, what)
    return found[0].recv(), status.Get_source()


def _pair_of(members: ProcessGroup, rank: int, memory: Memory) -> MPIWorld:
    """The world of this rank and another, which must make the same call."""
    ranks = sorted((members.ranks[members.rank()], members.ranks[rank]))
    return pair_of(ranks[0], ranks[1], memory)
